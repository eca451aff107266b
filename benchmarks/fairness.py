"""Two queues of equal weight, one greedy with ten times the jobs: what each gets over a day, and how soon a share comes back.

The jobs are those of a Philly trace in the order and at the pace of the trace: as many consecutive ones, from a place drawn by
the seed, as it takes for the modest queue alone to ask for twice its half of the machines over the day. Of eleven
consecutive jobs one, drawn by the seed, goes to the modest queue and ten to the greedy one. A quarter of them waits when the day
begins, the times of the others are compressed to the day, so that both queues want more than they may have nearly all day long;
where one does not, what it leaves is not counted as denied to it (`simulation/queue/sharing.py` says how that is counted). The
scheduler is the one of production, on the virtual clock; who must leave takes 30 seconds to do so, and loses two minutes when
it comes again.

A share is back when its queue holds it, or as much of it as the sizes of its jobs allow: where 3 GPUs are missing and the
smallest job that waits needs 4, nobody is evicted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import tell

from fairway.simulation import philly
from fairway.simulation.queue import sharing
from fairway.simulation.queue.entry import Entry
from fairway.simulation.queue.floor import Nodes
from fairway.state.queue import Queue

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "traces" / "philly"
CLUSTERS = {"ee9e8c": Nodes(14, 8), "b436b2": Nodes(12, 8)}
SEEDS = (1, 2, 3)
DAY = 24 * 3600.0
NOON = DAY / 2
GRACE = 30.0
"""What `restart.grace` is unless a document says otherwise."""
WAITING = 0.25
"""The part of the jobs that waits when the day begins."""
TIMES = 10
"""So many jobs of the greedy queue come with one of the modest queue."""
ASKED = 2.0
"""How many times its half of the machines the modest queue asks for."""
MODEST, GREEDY = "modest", "greedy"
QUEUES = {"until they end": None, "in turns": 600.0}


def day(entries: Sequence[Entry], nodes: Nodes, seed: int) -> list[Entry]:
    """The jobs of the day, dealt out to the queues."""
    chance = random.Random(seed)
    at = chance.randrange(len(entries))
    found: list[Entry] = []
    asked, passed = 0.0, 0.0
    while asked < ASKED * nodes.total / 2 * DAY:
        mine = chance.randrange(TIMES + 1)
        for number in range(TIMES + 1):
            entry, before = entries[at % len(entries)], entries[at % len(entries) - 1]
            passed += max(0.0, entry.submitted - before.submitted)
            found.append(replace(entry, submitted=passed, queue=MODEST if number == mine else GREEDY))
            asked += nodes.whole(entry.gpus) * min(entry.duration, DAY) if number == mine else 0.0
            at += 1
    begun = found[int(WAITING * len(found))].submitted
    return [replace(entry, submitted=max(0.0, entry.submitted - begun) * DAY / (passed - begun)) for entry in found]


def share(name: str, entries: list[Entry], nodes: Nodes, queues: list[Queue]) -> None:
    """Print what each got over the day."""
    moments = list(sharing.watch(entries, nodes, queues, DAY, GRACE))
    found = sharing.shares(moments, queues)
    jobs = {queue.name: sum(entry.queue == queue.name for entry in entries) for queue in queues}
    half = nodes.total / 2
    both = sum(moment.lasted for moment in moments if all(moment.wanted[queue.name] >= half for queue in queues)) / DAY
    off = max(each.off for each in found.values())
    more = {
        "jobs": jobs,
        "share": {each.queue: round(each.part, 3) for each in found.values()},
        "held_gpu_h": {each.queue: round(each.held_h) for each in found.values()},
        "due_gpu_h": {each.queue: round(each.due_h) for each in found.values()},
        "both_want_their_half": round(both, 2),
        "utilisation": round(sum(each.held_h for each in found.values()) / (nodes.total * 24), 3),
    }
    tell(f"{name}: a queue's GPU time off its due", off, "<= 0.05", met=off <= 0.05, **more)


def reclaim(name: str, entries: list[Entry], nodes: Nodes, queues: list[Queue]) -> None:
    """Print how soon the modest queue has its half when it comes at noon, after the greedy one had everything."""
    late = [replace(entry, submitted=max(NOON, entry.submitted)) if entry.queue == MODEST else entry for entry in entries]
    moments = list(sharing.watch(late, nodes, queues, DAY, GRACE))
    before = max(moment.held[GREEDY] for moment in moments if moment.at < NOON)
    back = sharing.back_after(moments, MODEST, nodes.total / 2, NOON)
    wanted = next(moment.wanted[MODEST] for moment in moments if moment.at >= NOON)
    held = next(moment.held[MODEST] for moment in moments if moment.at >= NOON + GRACE)
    ratio = back / GRACE if back is not None else float("inf")
    more = {"seconds": back, "borrowed_to": before, "wanted": wanted, "held_after_grace": held, "half": nodes.total // 2}
    tell(f"{name}: time until a borrowed half is back / grace", ratio, "<= 1", met=ratio <= 1, **more)


def main() -> int:
    """Run all of it."""
    if not FOLDER.is_dir():
        print(f"the recorded queues are not at {FOLDER}", file=sys.stderr)
        return 1
    for name, nodes in CLUSTERS.items():
        trace = philly.read(FOLDER / f"{name}.csv")
        for how, time_slice in QUEUES.items():
            queues = [Queue(MODEST, time_slice=time_slice), Queue(GREEDY, time_slice=time_slice)]
            for seed in SEEDS:
                entries = day(trace, nodes, seed)
                share(f"{name}, runs stay {how} ({seed})", entries, nodes, queues)
                reclaim(f"{name}, runs stay {how} ({seed})", entries, nodes, queues)
    return 0


if __name__ == "__main__":
    sys.exit(main())
