"""Two queues of equal weight, one greedy with ten times the jobs: shares over a day, and the time until a share is back.

The jobs are those of a Philly trace in the order and at the pace of the trace: as many consecutive ones, from a position drawn by
the seed, as it takes for the modest queue alone to request twice its half of the machines over the day. Of eleven
consecutive jobs one, drawn by the seed, goes to the modest queue and ten to the greedy one. A quarter of them waits when the day
begins, the times of the others are compressed to the day, so that both queues want more than their share nearly all day long;
where one does not, the unused part is not counted as denied to it (`simulation/queue/fair_share.py` describes the count). It is
the production scheduler, on the virtual clock; an evicted run takes 30 seconds to stop, and loses two minutes when it starts
again.

A share is back when its queue holds it, or as much of it as the sizes of its jobs allow: where 3 GPUs are missing and the
smallest waiting job needs 4, no run is evicted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import tell

from fairway.simulation import philly_trace
from fairway.simulation.queue import fair_share
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.state.queue import Queue

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "traces" / "philly"
CLUSTERS = {"ee9e8c": EqualNodes(14, 8), "b436b2": EqualNodes(12, 8)}
SEEDS = (1, 2, 3)
DAY = 24 * 3600.0
NOON = DAY / 2
GRACE = 30.0
"""The default of `grace` in documents, in seconds."""
WAITING = 0.25
"""Fraction of the jobs that waits when the day begins."""
TIMES = 10
"""Number of jobs of the greedy queue for each job of the modest queue."""
ASKED = 2.0
"""Requests of the modest queue, as a multiple of its half of the machines."""
MODEST, GREEDY = "modest", "greedy"
QUEUES = {"until they end": None, "in turns": 600.0}


def day(entries: Sequence[RecordedJob], nodes: EqualNodes, seed: int) -> list[RecordedJob]:
    """Return the jobs of the day, distributed to the queues."""
    chance = random.Random(seed)
    at = chance.randrange(len(entries))
    found: list[RecordedJob] = []
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


def share(name: str, entries: list[RecordedJob], nodes: EqualNodes, queues: list[Queue]) -> None:
    """Print the share of each queue over the day."""
    moments = list(fair_share.watch(entries, nodes, queues, DAY, GRACE))
    found = fair_share.shares(moments, queues)
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


def reclaim(name: str, entries: list[RecordedJob], nodes: EqualNodes, queues: list[Queue]) -> None:
    """Print how soon the modest queue gets its half when its jobs arrive at noon, after the greedy one had everything."""
    late = [replace(entry, submitted=max(NOON, entry.submitted)) if entry.queue == MODEST else entry for entry in entries]
    moments = list(fair_share.watch(late, nodes, queues, DAY, GRACE))
    before = max(moment.held[GREEDY] for moment in moments if moment.at < NOON)
    back = fair_share.back_after(moments, MODEST, nodes.total / 2, NOON)
    wanted = next(moment.wanted[MODEST] for moment in moments if moment.at >= NOON)
    held = next(moment.held[MODEST] for moment in moments if moment.at >= NOON + GRACE)
    ratio = back / GRACE if back is not None else float("inf")
    more = {"seconds": back, "borrowed_to": before, "wanted": wanted, "held_after_grace": held, "half": nodes.total // 2}
    tell(f"{name}: time until a borrowed half is back / grace", ratio, "<= 1", met=ratio <= 1, **more)


def main() -> int:
    """Run both benchmarks on both traces."""
    if not FOLDER.is_dir():
        print(f"the recorded queues are not at {FOLDER}", file=sys.stderr)
        return 1
    for name, nodes in CLUSTERS.items():
        trace = philly_trace.read(FOLDER / f"{name}.csv")
        for how, time_slice in QUEUES.items():
            queues = [Queue(MODEST, time_slice=time_slice), Queue(GREEDY, time_slice=time_slice)]
            for seed in SEEDS:
                entries = day(trace, nodes, seed)
                share(f"{name}, runs stay {how} ({seed})", entries, nodes, queues)
                reclaim(f"{name}, runs stay {how} ({seed})", entries, nodes, queues)
    return 0


if __name__ == "__main__":
    sys.exit(main())
