"""When places become free: the arrays forecast what happens if every run ends as expected."""

from __future__ import annotations

import random

import pytest

from fairway.plan.scheduling import seat_reservation
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.state.job import JobKey
from fairway.testing.fake.fake_cluster import FakeCluster, gang, machine


def busy_floor(seed: int) -> FakeCluster:
    draw = random.Random(seed)
    floor = FakeCluster([machine(f"n{number}", 4, draw.choice(["T4", "A100"]), rack=f"r{number % 2}") for number in range(4)])
    for number in range(16):
        floor.ask(f"r{number:02}", gang(draw.choice([1, 1, 2])), limit=float(draw.randint(1, 50) * 600))
    floor.settle()
    return floor


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("gpus", "tasks", "kind", "apart"),
    [(1, 1, "", False), (4, 1, "", False), (2, 3, "", False), (1, 4, "", True), (3, 1, "T4", False)],
)
def test_both_ways_find_the_same_time(
    seed: int, gpus: int, tasks: int, kind: str, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = busy_floor(seed)
    request = GangRequest(JobKey("default", "large"), gang(gpus, tasks, kind=kind, apart=apart), floor.now)
    played = seat_reservation.soonest(floor.scheduler.ledger, request, floor.now)
    monkeypatch.setattr(seat_reservation, "MOST_PLAYED", 0)
    foreseen = seat_reservation.soonest(floor.scheduler.ledger, request, floor.now)
    assert (played is None) == (foreseen is None)
    if played is not None and foreseen is not None:
        assert foreseen[1] == pytest.approx(max(floor.now, played[1]))
        assert len(foreseen[0]) == tasks


def test_what_is_kept_for_others_is_not_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat_reservation, "MOST_PLAYED", 0)
    floor = FakeCluster([machine("n", 4)])
    floor.ask("busy", gang(4), limit=600.0)
    floor.settle()
    floor.ask("next", gang(3))
    floor.settle()
    ledger = floor.scheduler.ledger
    assert seat_reservation.soonest(ledger, GangRequest(JobKey("default", "one"), gang(1), floor.now), floor.now) is not None
    assert seat_reservation.soonest(ledger, GangRequest(JobKey("default", "two"), gang(2), floor.now), floor.now) is None
