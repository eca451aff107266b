"""What is remembered of all queues together equals what is computed from scratch."""

from __future__ import annotations

import random
from dataclasses import asdict, replace

import pytest

from fairway.plan.scheduling.delta import RunWaiting
from fairway.plan.scheduling.preemption.queue_balance import PreemptionView, QueueBalanceCache
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import FakeCluster, gang, machine

GANGS = [gang(1), gang(2), gang(4), gang(2, 2), gang(1, kind="A100"), gang(1, 1, 4)]
QUEUES = [Queue("plain"), Queue("heavy", weight=3), Queue("lent", quota={"gpu": 4000}), Queue("limited", per_user={"gpu": 4000})]


def a_step(floor: FakeCluster, draw: random.Random) -> None:
    what = draw.choices(["ask", "end", "node", "queue", "again"], [50, 30, 5, 5, 20])[0]
    kept = sorted(key for key in floor.waiting if str(key) in floor.scheduler.ledger.memory.reservations)
    if what == "end" and floor.running:
        floor.end(draw.choice(sorted(floor.running)))
    elif what == "node":
        node = floor.nodes[draw.choice(sorted(floor.nodes))]
        floor.put_node(replace(node, cpu=draw.choice([32, 64])))
    elif what == "queue":
        floor.put_queue(replace(draw.choice(QUEUES), weight=draw.choice([1, 2, 3])))
    elif what == "again" and kept:
        request = floor.waiting[draw.choice(kept)]
        floor.tell(RunWaiting(replace(request, priority=draw.choice([0, 5]), queue=draw.choice(QUEUES).name)))
    else:
        priority, resumes = draw.choice([0, 0, 0, 5]), draw.random() < 0.5
        queue = draw.choice(QUEUES).name
        floor.ask(f"r{floor.submitted:03}", draw.choice(GANGS), queue=queue, priority=priority, resumes=resumes)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_is_what_is_found_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at, seen = QueueBalanceCache.at, dict[bool, int]()

    def compared(standings: QueueBalanceCache, ledger: SchedulerState, now: float, more: tuple[str, ...] = ()) -> PreemptionView:
        before = standings._stakes
        found, anew = at(standings, ledger, now, more), QueueBalanceCache()
        fresh = at(anew, ledger, now, more)
        assert standings._stakes is not None
        assert anew._stakes is not None
        assert asdict(standings._stakes) == asdict(anew._stakes)
        assert (found.had, found._owners) == (fresh.had, fresh._owners)
        seen[standings._stakes is before] = seen.get(standings._stakes is before, 0) + 1
        return found

    monkeypatch.setattr(QueueBalanceCache, "at", compared)
    draw = random.Random(seed)
    floor = FakeCluster([machine(f"n{number}", 4, draw.choice(["T4", "A100"])) for number in range(4)], QUEUES)
    for _ in range(70):
        a_step(floor, draw)
        floor.decide()
        floor.now += draw.choice([0.0, 1.0, 20.0, 70.0])
        floor.happen()
    assert seen[True]
    assert seen[False]
