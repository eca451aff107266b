"""Order, quotas and preemption: small cases, one rule each."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.decision import EvictionCause
from fairway.plan.scheduling.delta import RunPlaced, RunWaiting
from fairway.plan.scheduling.gang import WHOLE, CapacityShortfall, GangRole, GangShape, TaskShape
from fairway.plan.scheduling.gang_request import RunningGang
from fairway.plan.scheduling.preemption.victim import leaving_cost
from fairway.state.job import JobKey
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import GRACE, FakeCluster, gang, machine

HOUR = 3600.0


def names(floor: FakeCluster) -> list[str]:
    """Return the running runs, in the order of their starts."""
    return [start.key.name for _, start in floor.started if start.key in floor.running]


def causes(floor: FakeCluster) -> list[tuple[str, EvictionCause]]:
    return [(evict.key.name, evict.cause) for _, evict in floor.evictions]


def test_the_most_urgent_goes_first_and_then_the_oldest() -> None:
    floor = FakeCluster([machine("n", 1)])
    first = floor.ask("first", gang())
    floor.settle()
    for number, priority in enumerate([0, 5, 0, 9]):
        floor.pass_time(1)
        floor.ask(f"w{number}", gang(), priority=priority, lasts=60)
    floor.end(first)
    floor.settle()
    floor.pass_time(600)
    assert [start.key.name for _, start in floor.started] == ["first", "w3", "w1", "w0", "w2"]


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        pytest.param([Queue("a"), Queue("b")], {"a": 4, "b": 4}, id="equal weights, equal shares"),
        pytest.param([Queue("a", weight=3), Queue("b")], {"a": 6, "b": 2}, id="shares go by weight"),
        pytest.param([Queue("a", quota={"gpu": 6000}), Queue("b")], {"a": 6, "b": 2}, id="a quota comes before weights"),
        pytest.param([Queue("a", quota={"gpu": 2000}, borrow=False), Queue("b")], {"a": 2, "b": 6}, id="no more than the quota"),
        pytest.param([Queue("a", per_user={"gpu": 1000}), Queue("b")], {"a": 1, "b": 7}, id="no more than each user may have"),
        pytest.param([Queue("a", per_user={"runs": 3}), Queue("b")], {"a": 3, "b": 5}, id="no more runs than each user may have"),
    ],
)
def test_queues_share_the_gpus(queues: list[Queue], expected: dict[str, int]) -> None:
    floor = FakeCluster([machine("n1"), machine("n2")], queues)
    for number in range(8):
        for queue in queues:
            floor.ask(f"{queue.name}{number}", gang(), queue=queue.name, user="ann")
    floor.settle()
    held = {queue.name: sum(running.request.queue == queue.name for running in floor.running.values()) for queue in queues}
    assert held == expected


def test_the_dominant_resource_counts() -> None:
    """One queue needs cores and the other GPUs: each gets nearly all of the resource that it needs most."""
    floor = FakeCluster([machine("n", 8, cpu=72)], [Queue("cores"), Queue("gpus")])
    for number in range(16):
        floor.ask(f"c{number}", gang(0, cpu=8000), queue="cores")
        floor.ask(f"g{number}", gang(1, cpu=1000), queue="gpus")
    floor.settle()
    assert sum(name.startswith("c") for name in names(floor)) == 8
    assert sum(name.startswith("g") for name in names(floor)) == 8


def test_what_was_used_long_ago_counts_less() -> None:
    floor = FakeCluster([machine("n", 1)], [Queue("a"), Queue("b")])
    floor.ask("a1", gang(), queue="a", lasts=HOUR)
    floor.settle()
    floor.pass_time(HOUR)
    had = floor.scheduler.ledger.accounts.recent("a", floor.now)
    assert 0.1 < had < 0.12
    floor.pass_time(6 * HOUR)
    assert floor.scheduler.ledger.accounts.recent("a", floor.now) == pytest.approx(had / 2)
    busy = floor.ask("default", gang())
    floor.settle()
    floor.ask("a2", gang(), queue="a")
    floor.pass_time(1)
    floor.ask("b1", gang(), queue="b")
    floor.end(busy)
    floor.settle()
    assert names(floor) == ["b1"]


def test_a_greedy_queue_and_a_modest_one_get_equal_shares_over_a_day() -> None:
    floor = FakeCluster([machine(f"n{number}") for number in range(2)], [Queue("greedy"), Queue("modest")])
    for number in range(400):
        floor.ask(f"g{number:03}", gang(1 + number % 3), queue="greedy", lasts=HOUR * (1 + number % 4) / 2, resumes=True)
    for number in range(120):
        floor.ask(f"m{number:03}", gang(1 + number % 2), queue="modest", lasts=HOUR * (1 + number % 4), resumes=True)
    floor.settle()
    floor.pass_time(24 * HOUR)
    assert {request.queue for request in floor.waiting.values()} == {"greedy", "modest"}
    total = sum(floor.held.values())
    assert total > 0.95 * 8 * 24 * HOUR
    assert floor.held["greedy"] / total == pytest.approx(0.5, abs=0.05)


def test_a_borrowed_share_is_back_within_one_grace() -> None:
    floor = FakeCluster([machine(f"n{number}") for number in range(2)], [Queue("greedy"), Queue("modest")])
    for number in range(40):
        floor.ask(f"g{number:02}", gang(), queue="greedy", resumes=True)
    floor.settle()
    floor.pass_time(2 * HOUR)
    for number in range(8):
        floor.ask(f"m{number}", gang(), queue="modest")
    floor.settle()
    floor.pass_time(GRACE)
    assert sum(running.request.queue == "modest" for running in floor.running.values()) == 4
    assert [cause for _, cause in causes(floor)] == [EvictionCause.RECLAIM] * 4
    floor.pass_time(HOUR)
    assert len(floor.evictions) == 4


def test_a_quota_for_a_type_is_lent_and_taken_back() -> None:
    owner = Queue("owner", quota={"gpu:A100": 2000})
    floor = FakeCluster([machine("a", 2, "A100"), machine("t", 2, "T4")], [owner, Queue("other")])
    for number in range(4):
        floor.ask(f"o{number}", gang(), queue="other", resumes=True)
    floor.settle()
    assert len(floor.running) == 4
    for number in range(3):
        floor.pass_time(120)
        floor.ask(f"w{number}", gang(kind="A100"), queue="owner")
    floor.settle()
    floor.pass_time(GRACE)
    mine = [running for running in floor.running.values() if running.request.queue == "owner"]
    assert len(mine) == 2
    assert {seat.node for running in mine for seat in running.seats} == {"a"}
    assert [cause for _, cause in causes(floor)] == [EvictionCause.RECLAIM] * 2


def test_where_a_type_is_used_up_another_is_taken() -> None:
    floor = FakeCluster([machine("a", 4, "A100"), machine("t", 4, "T4")], [Queue("q", quota={"gpu:A100": 1000}, borrow=False)])
    for number in range(6):
        floor.ask(f"w{number}", gang(), queue="q")
    floor.settle()
    nodes = [seat.node for running in floor.running.values() for seat in running.seats]
    assert sorted(nodes) == ["a", "t", "t", "t", "t"]


def test_an_elastic_gang_grows_no_further_than_its_queue_may() -> None:
    floor = FakeCluster([machine("n", 8)], [Queue("q", quota={"gpu": 3000}, borrow=False)])
    floor.ask("e", gang(1, 1, 8), queue="q", resumes=True)
    floor.settle()
    floor.check_rules()
    assert len(floor.running[JobKey("default", "e")].seats) == 3
    floor.pass_time(HOUR)
    assert floor.evictions == []


def test_a_large_gang_is_not_starved_by_small_ones() -> None:
    floor = FakeCluster([machine("n", 8)])
    for number in range(16):
        floor.ask(f"s{number:03}", gang(), lasts=600 + 60 * (number % 7), limit=1200.0)
    floor.settle()
    floor.pass_time(100)
    large = floor.ask("zlarge", gang(8), lasts=600)
    for number in range(200):
        floor.pass_time(1)
        floor.ask(f"t{number:03}", gang(), lasts=600, limit=1200.0)
    floor.settle()
    for _ in range(200):
        floor.pass_time(60)
        if large in floor.running:
            break
    before = [start.key.name for _, start in floor.started if start.key != large]
    assert large in floor.running
    assert not any(name.startswith("t") for name in before)


def test_small_ones_slip_by_when_they_are_over_in_time() -> None:
    floor = FakeCluster([machine("n", 4)])
    floor.ask("long", gang(2), lasts=4 * HOUR, limit=8 * HOUR)
    floor.settle()
    floor.pass_time(1)
    large = floor.ask("large", gang(4), lasts=HOUR)
    floor.pass_time(1)
    floor.ask("endless", gang(1))
    floor.pass_time(1)
    floor.ask("too-long", gang(1), limit=9 * HOUR)
    floor.pass_time(1)
    floor.ask("short", gang(1), limit=HOUR, lasts=HOUR)
    floor.settle()
    assert names(floor) == ["long", "short"]
    floor.pass_time(4 * HOUR)
    assert large in floor.running


def test_the_shortest_of_equal_ones_slips_by_though_it_came_last() -> None:
    floor = FakeCluster([machine("n", 4)])
    floor.ask("long", gang(2), lasts=4 * HOUR, limit=8 * HOUR)
    floor.settle()
    floor.pass_time(1)
    floor.ask("large", gang(4))
    for number, limit in enumerate([None, 9 * HOUR, HOUR]):
        floor.pass_time(1)
        floor.ask(f"w{number}", gang(), limit=limit)
    floor.settle()
    assert names(floor) == ["long", "w2"]


def test_what_needs_nothing_of_it_goes_past() -> None:
    floor = FakeCluster([machine("a", 4, "A100"), machine("t", 4, "T4")])
    floor.ask("busy", gang(2, kind="A100"))
    floor.settle()
    floor.ask("large", gang(4, kind="A100"))
    floor.pass_time(1)
    floor.ask("other", gang(4, kind="T4"))
    floor.settle()
    assert names(floor) == ["busy", "other"]


def test_the_more_urgent_take_what_is_kept_for_the_less_urgent() -> None:
    """No run is evicted while idle places are reserved for a run of a lower priority."""
    floor = FakeCluster([machine("n", 4)])
    floor.ask("busy", gang(2))
    floor.settle()
    floor.ask("large", gang(4))
    floor.settle()
    floor.pass_time(1)
    floor.ask("urgent", gang(2), priority=5)
    floor.settle()
    assert names(floor) == ["busy", "urgent"]
    assert floor.evictions == []


def test_urgent_ones_get_places_that_are_kept_for_others_and_taken() -> None:
    floor = FakeCluster([machine("n", 4)])
    floor.ask("busy", gang(4))
    floor.settle()
    floor.ask("next", gang(4))
    floor.settle()
    urgent = floor.ask("urgent", gang(4), priority=5)
    floor.settle()
    floor.pass_time(GRACE)
    assert names(floor) == ["urgent"]
    assert causes(floor) == [("busy", EvictionCause.PRIORITY)]
    assert urgent in floor.running


def test_elastic_gangs_shrink_before_anybody_is_evicted_and_grow_again() -> None:
    floor = FakeCluster([machine("n", 8)])
    elastic = floor.ask("elastic", gang(1, 2, 6), resumes=True)
    floor.ask("rigid", gang(2), resumes=True)
    floor.settle()
    assert len(floor.running[elastic].seats) == 6
    floor.pass_time(600)
    urgent = floor.ask("urgent", gang(3), priority=5, lasts=HOUR)
    floor.settle()
    floor.pass_time(GRACE)
    assert causes(floor) == [("elastic", EvictionCause.SHRINK)]
    assert urgent in floor.running
    assert len(floor.running[elastic].seats) == 3
    floor.pass_time(HOUR + 2 * GRACE)
    assert causes(floor)[1:] == [("elastic", EvictionCause.GROW)]
    assert len(floor.running[elastic].seats) == 6


def test_an_elastic_gang_starts_with_what_nobody_else_can_use() -> None:
    floor = FakeCluster([machine("n", 8)])
    busy = floor.ask("busy", gang(8))
    floor.settle()
    elastic = floor.ask("elastic", gang(1, 1, 8))
    floor.pass_time(1)
    floor.ask("other", gang(4))
    floor.end(busy)
    floor.settle()
    assert sorted(names(floor)) == ["elastic", "other"]
    assert len(floor.running[elastic].seats) == 4


def test_what_goes_on_with_fewer_tasks_goes_on_where_it_was() -> None:
    """Waiting runs do not take the places of a gang that only shrinks."""
    floor = FakeCluster([machine("n", 8)])
    elastic = floor.ask("elastic", gang(1, 2, 8), resumes=True)
    floor.settle()
    floor.pass_time(600)
    floor.ask("one", gang(3), priority=0)
    floor.settle()
    floor.pass_time(1)
    floor.ask("two", gang(4), priority=0, user="other")
    floor.settle()
    floor.pass_time(GRACE)
    assert elastic in floor.running
    assert "one" in names(floor)


def test_runs_that_can_resume_take_turns_and_others_do_not() -> None:
    floor = FakeCluster([machine("n", 2)], [Queue("q", time_slice=600.0)])
    floor.ask("resumes", gang(), queue="q", resumes=True)
    floor.ask("cannot", gang(), queue="q")
    floor.settle()
    floor.pass_time(1)
    late = floor.ask("late", gang(), queue="q", resumes=True)
    floor.settle()
    floor.pass_time(7200 + GRACE)
    assert late in floor.running
    assert causes(floor) == [("resumes", EvictionCause.SLICE)]


def test_turns_are_taken_within_a_quota_too() -> None:
    floor = FakeCluster([machine("n", 4)], [Queue("q", time_slice=600.0, quota={"gpu": 1000}, borrow=False)])
    floor.ask("first", gang(), queue="q", resumes=True)
    floor.settle()
    late = floor.ask("late", gang(), queue="q", resumes=True)
    floor.settle()
    floor.pass_time(7200 + GRACE)
    floor.check_rules()
    assert late in floor.running


def test_the_more_urgent_of_a_queue_gets_its_quota() -> None:
    floor = FakeCluster([machine("n", 4)], [Queue("q", quota={"gpu": 1000}, borrow=False)])
    floor.ask("low", gang(), queue="q")
    floor.settle()
    urgent = floor.ask("urgent", gang(), queue="q", priority=5)
    floor.settle()
    floor.pass_time(GRACE)
    floor.check_rules()
    assert names(floor) == ["urgent"]
    assert urgent in floor.running


def test_nobody_is_reclaimed_who_is_more_urgent() -> None:
    """Otherwise the two runs would evict each other again and again."""
    floor = FakeCluster([machine("n", 4)], [Queue("a"), Queue("b")])
    for number in range(4):
        floor.ask(f"b{number}", gang(), queue="b", priority=5)
    floor.settle()
    floor.pass_time(600)
    floor.ask("a1", gang(), queue="a")
    floor.settle()
    floor.pass_time(HOUR)
    assert floor.evictions == []


def test_those_on_the_way_out_are_enough() -> None:
    """A run that can start when current evictions have finished causes no further evictions."""
    floor = FakeCluster([machine("n", 2)])
    floor.ask("a", gang())
    floor.ask("b", gang())
    floor.settle()
    floor.ask("one", gang(), priority=5)
    floor.settle()
    first = floor.ask("two", gang(), priority=4)
    floor.settle()
    assert len(floor.evictions) == 2
    floor.withdraw(next(key for key in floor.waiting if key.name == "one"))
    floor.ask("three", gang(), priority=3)
    floor.settle()
    assert len(floor.evictions) == 2
    floor.pass_time(GRACE)
    assert sorted(names(floor)) == ["three", "two"]
    assert first in floor.running


def test_one_task_more_beside_those_that_sit_gets_one_place() -> None:
    """This also holds when the indexes of the placed tasks have gaps."""
    floor = FakeCluster([machine("n", 8)])
    key = floor.ask("r", gang(1, 8))
    floor.settle()
    running = floor.running[key]
    kept = tuple(seat for seat in running.seats if seat.index in (4, 6, 7))
    floor.tell(RunPlaced(replace(running, seats=kept)))
    floor.tell(RunWaiting(replace(floor.requests[key], gang=gang(1, 1))))
    decision = floor.scheduler.decide(floor.now)
    assert [len(start.seats) for start in decision.starts] == [1]
    assert len(floor.scheduler.ledger.running[key].seats) == 4


def test_places_that_were_told_twice_and_then_once_are_held_once() -> None:
    """A task that restarts beside the one it replaces has the same index, and may have the same place."""
    floor = FakeCluster([machine("n", 8)])
    shape = TaskShape(cpu=1000)
    room = floor.scheduler.ledger.cluster.room
    free = room(shape)
    key = floor.ask("r", GangShape((GangRole("worker", shape, 1, 1),)))
    floor.settle()
    running = floor.running[key]
    floor.tell(RunPlaced(replace(running, seats=(*running.seats, *running.seats))))
    assert room(shape) == free - 2
    floor.tell(RunPlaced(running))
    assert room(shape) == free - 1


@pytest.mark.parametrize("seed", range(40))
def test_victims_are_the_cheapest_there_are(seed: int) -> None:
    """The victims are compared with every possible choice, on clusters small enough to try all."""
    draw = random.Random(seed)
    floor = FakeCluster([machine(f"n{number}") for number in range(3)])
    for number in range(draw.randint(4, 8)):
        asked = gang(draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 2]))
        floor.ask(f"r{number}", asked, resumes=draw.random() < 0.5, priority=draw.randint(0, 2))
        floor.settle()
        floor.pass_time(60 * draw.randint(0, 50))
    before, known = dict(floor.running), len(floor.evictions)
    wanted = gang(*draw.choice([(2, 1), (3, 1), (4, 1), (2, 2), (1, 4), (4, 2)]))
    whom = floor.ask("urgent", wanted, priority=9)
    floor.settle()
    chosen = [evict.key for _, evict in floor.evictions[known:] if evict.to_whom == whom]
    best = None if whom in floor.running or known else _best(floor, before, wanted)
    assert (best is None and (known or not chosen)) or _price(floor, before, chosen) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(6))
def test_of_many_candidates_the_victims_are_nearly_the_cheapest(seed: int) -> None:
    """With too many candidates for an exhaustive search, the victims have the best priority, and rarely cost much more."""
    draw = random.Random(seed)
    floor = FakeCluster([machine(f"n{number}") for number in range(3)])
    for number in range(11):
        floor.ask(f"r{number:02}", gang(1, draw.choice([1, 1, 1, 2])), priority=draw.randint(0, 1))
        floor.settle()
        floor.pass_time(60 * draw.randint(0, 50))
    before = dict(floor.running)
    wanted = gang(*draw.choice([(4, 1), (2, 2), (3, 1)]))
    whom = floor.ask("urgent", wanted, priority=9)
    floor.settle()
    chosen = [evict.key for _, evict in floor.evictions if evict.to_whom == whom]
    best = None if whom in floor.running else _best(floor, before, wanted)
    if best is None:
        assert not chosen
        return
    found = _price(floor, before, chosen)
    assert found[0] == best[0]
    assert found[1] <= 1.5 * best[1]


def _price(floor: FakeCluster, before: dict[JobKey, RunningGang], keys: Iterable[JobKey]) -> tuple[int, float]:
    victims = [before[key] for key in keys]
    return max(victim.request.priority for victim in victims), sum(leaving_cost(victim, floor.now) for victim in victims)


def _best(floor: FakeCluster, before: dict[JobKey, RunningGang], asked: GangShape) -> tuple[int, float] | None:
    prices = []
    for size in range(1, len(before) + 1):
        for keys in combinations(sorted(before), size):
            cluster = ClusterModel(floor.nodes.values(), "best-fit")
            for key, running in before.items():
                if key not in keys:
                    cluster.take(running.seats)
            if not isinstance(cluster.place(asked), CapacityShortfall):
                prices.append(_price(floor, before, keys))
    return min(prices, default=None)


def test_a_share_of_a_gpu_is_counted_in_thousandths() -> None:
    shape = TaskShape(cpu=1000, gpus=1, gpu_milli=250)
    floor = FakeCluster([machine("n", 1)], [Queue("q", quota={"gpu": WHOLE // 2}, borrow=False)])
    for number in range(4):
        floor.ask(f"s{number}", GangShape((GangRole("worker", shape),)), queue="q")
    floor.settle()
    assert len(floor.running) == 2
