"""The index of preemptible runs finds the same victims as examining each run."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import replace

import pytest

from fairway.plan.scheduling.cluster import running_index
from fairway.plan.scheduling.gang_request import HEAD_START
from fairway.plan.scheduling.preemption import victim, victim_selection
from fairway.plan.scheduling.preemption.victim import PreemptionClaim, leaving_cost
from fairway.state.job import JobKey
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import FakeCluster, gang, machine

GANGS = [
    gang(1),
    gang(1),
    gang(2),
    gang(4),
    gang(2, 2),
    gang(1, kind="A100"),
    gang(1, 1, 4),
    gang(0, cpu=16000),
    gang(1, milli=500),
]
QUEUES = [
    Queue("plain"),
    Queue("heavy", weight=3),
    Queue("limited", per_user={"gpu": 4000}),
    Queue("lent", quota={"gpu": 4000}),
    Queue("bounded", quota={"gpu": 6000}, borrow=False),
    Queue("turns", time_slice=600.0),
]


def play(seed: int, steps: int, services: float = 0.0) -> None:
    """Play a random history with many preemptions; `services` is the fraction of requests that are replicas of services."""
    draw = random.Random(seed)
    floor = FakeCluster([machine(f"n{number}", 4, draw.choice(["T4", "A100"])) for number in range(5)], QUEUES)
    for _ in range(steps):
        what = draw.choices(["ask", "end", "save"], [60, 25, 15])[0]
        if what == "ask" or not floor.running:
            queue, user = draw.choice(QUEUES).name, draw.choice(["ann", "bob"])
            priority, resumes = draw.choice([0, 0, 0, 3, 5]), draw.random() < 0.5
            asked: dict[str, object] = {"queue": queue, "user": user, "priority": priority, "resumes": resumes}
            if services and draw.random() < services:
                asked |= {"priority": priority + HEAD_START, "resumes": False, "service": "web"}
            floor.ask(f"r{floor.submitted:03}", draw.choice(GANGS), **asked)
        elif what == "end":
            floor.end(draw.choice(sorted(floor.running)))
        else:
            floor.save(draw.choice(sorted(floor.running)))
        floor.decide()
        floor.now += draw.choice([0.0, 1.0, 20.0, 70.0, 900.0])
        floor.happen()


def one_by_one(claim: PreemptionClaim, most: int, *, own_queue: bool) -> list[JobKey]:
    """Return the runs that must give way by examining each, the cheapest first."""
    kinds, found = victim._kinds(claim.request.gang), []
    for key, running in claim._ledger.running.items():
        queue, priority = running.request.queue, running.request.priority
        loses_all = running.request.loses_all
        if claim._cause(queue, priority, loses_all=loses_all) is None or (own_queue and queue != claim.request.queue):
            continue
        if kinds is None or not kinds.isdisjoint(claim._ledger.taken(key)):
            found.append((priority, leaving_cost(running, claim._now), key))
    return [key for *_, key in heapq.nsmallest(most, found)]


@pytest.mark.parametrize("services", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_the_cheapest_are_those_that_a_look_at_each_finds(seed: int, services: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[int] = Counter()
    cheapest = PreemptionClaim._cheapest_gangs

    def compared(claim: PreemptionClaim, most: int, *, own_queue: bool) -> list[JobKey]:
        for few in (1, 3, most):
            found = cheapest(claim, few, own_queue=own_queue)
            assert found == one_by_one(claim, few, own_queue=own_queue)
        seen[len(found)] += 1
        return found

    monkeypatch.setattr(PreemptionClaim, "_cheapest_gangs", compared)
    play(seed, 60, services)
    assert any(count > 1 for count in seen)


@pytest.mark.parametrize("seed", range(4))
def test_where_nobody_would_be_let_go_nobody_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said: Counter[bool] = Counter()
    finds = PreemptionClaim.finds_anybody

    def compared(claim: PreemptionClaim, *, own_queue: bool) -> bool:
        hopeful = finds(claim, own_queue=own_queue)
        said[hopeful] += 1
        assert hopeful or victim_selection._best(claim._ledger, claim, own_queue=own_queue) is None
        return hopeful

    monkeypatch.setattr(PreemptionClaim, "finds_anybody", compared)
    play(seed, 60)
    assert said[True]
    assert said[False]


def test_what_gangs_could_do_without_is_known_as_long_as_they_have_it() -> None:
    floor = FakeCluster([machine("n0", 4)], [Queue("a")])
    key = floor.ask("wide", gang(1, 1, 3), queue="a", resumes=True)
    floor.settle()
    known = floor.scheduler.ledger.roster
    running = floor.running[key]
    assert known.extra == {key: running_index.surplus_of(running)}
    assert len(known.extra[key]) == 2
    assert known.dispensable == {("a", 0): 1}
    floor.end(key)
    assert not known.extra
    assert not known.dispensable
    assert not known._newest


def test_a_gang_whose_first_task_was_lost_keeps_its_least() -> None:
    floor = FakeCluster([machine("n0", 4)], [Queue("a")])
    key = floor.ask("wide", gang(1, 1, 3), queue="a", resumes=True)
    floor.settle()
    running = floor.running[key]
    rest = replace(running, seats=tuple(seat for seat in running.seats if seat.index > 0))
    assert [seat.index for seat in running_index.surplus_of(rest)] == [2], "task 1 is the one that it needs"
