"""Queues side by side, on the production scheduler: shares over a day, and a borrowed share is returned."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fairway.simulation.queue import fair_share
from fairway.simulation.queue.fair_share import QueueUsageSpan
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.state.queue import Queue

HOUR = 3600.0
GRACE = 30.0
FOUR = EqualNodes(4, 8)


def equal(time_slice: float | None = None) -> list[Queue]:
    return [Queue("greedy", time_slice=time_slice), Queue("modest", time_slice=time_slice)]


def moment(held: dict[str, int], wanted: dict[str, int]) -> QueueUsageSpan:
    return QueueUsageSpan(0.0, 1.0, Counter(held), Counter(wanted), {})


@pytest.mark.parametrize(
    ("held", "wanted", "due"),
    [
        pytest.param(
            {"greedy": 20, "modest": 12}, {"greedy": 90, "modest": 40}, {"greedy": 16, "modest": 16}, id="both want more"
        ),
        pytest.param({"greedy": 26, "modest": 6}, {"greedy": 90, "modest": 6}, {"greedy": 26, "modest": 6}, id="one is content"),
        pytest.param({"greedy": 28, "modest": 4}, {"greedy": 90, "modest": 8}, {"greedy": 24, "modest": 8}, id="one is denied"),
        pytest.param({"greedy": 9, "modest": 0}, {"greedy": 9, "modest": 0}, {"greedy": 9, "modest": 0}, id="one is away"),
    ],
)
def test_nobody_is_due_what_it_does_not_ask_for(held: dict[str, int], wanted: dict[str, int], due: dict[str, float]) -> None:
    assert fair_share.dues(moment(held, wanted), equal()) == due


def test_what_is_due_goes_by_weight() -> None:
    queues = [Queue("a", weight=3.0), Queue("b"), Queue("c")]
    wanted = {"a": 90, "b": 90, "c": 2}
    assert fair_share.dues(moment({"a": 30, "b": 2}, wanted), queues) == {"a": 22.5, "b": 7.5, "c": 2}


@pytest.mark.parametrize("time_slice", [None, 600.0])
def test_ten_times_the_jobs_are_not_a_larger_share(time_slice: float | None) -> None:
    chance = random.Random(1)
    jobs = [RecordedJob(0.0, chance.choice([1, 1, 2, 4]), HOUR * chance.choice([0.2, 1, 4]), queue="greedy") for _ in range(700)]
    jobs += [RecordedJob(0.0, chance.choice([1, 2, 8]), HOUR * chance.choice([2, 4, 30]), queue="modest") for _ in range(70)]
    moments = list(fair_share.watch(jobs, FOUR, equal(time_slice), 24 * HOUR, GRACE))
    assert all(moment.wanted[name] >= 16 for moment in moments for name in ("greedy", "modest"))
    found = fair_share.shares(moments, equal())
    assert sum(share.held_h for share in found.values()) > 0.9 * FOUR.total * 24
    assert max(share.off for share in found.values()) <= 0.05


def test_a_queue_of_large_gangs_comes_as_near_to_its_part_as_they_allow() -> None:
    """Four gangs of eight and three more GPUs leave five of its half to the others; with a fifth gang it has three of theirs."""
    nodes = EqualNodes(10, 8)
    jobs = [RecordedJob(0.0, 1, 2 * HOUR, queue="greedy") for _ in range(900)]
    jobs += [RecordedJob(0.0, 1, 90 * HOUR, queue="modest") for _ in range(3)]
    jobs += [RecordedJob(HOUR, 8, 90 * HOUR, queue="modest") for _ in range(9)]
    moments = list(fair_share.watch(jobs, nodes, equal(), 24 * HOUR, GRACE))
    after = [moment for moment in moments if moment.at >= HOUR + GRACE]
    # Half a gang off its forty is as close as gangs of eight can get; and it stays there instead of oscillating.
    assert {abs(moment.held["modest"] - 40) <= 4 for moment in after} == {True}
    assert len({moment.held["modest"] for moment in after}) <= 3


@pytest.mark.parametrize("time_slice", [None, 600.0])
def test_a_large_share_that_was_lent_is_back_within_one_grace(time_slice: float | None) -> None:
    """More gangs arrive at once than one decision makes room for."""
    nodes = EqualNodes(10, 8)
    jobs = [RecordedJob(0.0, 1, 9 * HOUR, queue="greedy") for _ in range(200)]
    jobs += [RecordedJob(2 * HOUR, 1, 9 * HOUR, queue="modest") for _ in range(60)]
    moments = list(fair_share.watch(jobs, nodes, equal(time_slice), 3 * HOUR, GRACE))
    assert max(moment.held["greedy"] for moment in moments) == nodes.total
    assert fair_share.back_after(moments, "modest", nodes.total / 2, 2 * HOUR) == GRACE
    assert moments[-1].held == {"greedy": 40, "modest": 40}


def test_places_that_were_kept_for_the_borrower_are_back_at_once() -> None:
    """Half of the machines are idle for a large gang of the greedy queue; more gangs arrive than start in one decision."""
    nodes = EqualNodes(10, 8)
    jobs = [RecordedJob(0.0, 8, 1 * HOUR, queue="greedy") for _ in range(5)] + [
        RecordedJob(0.0, 8, 90 * HOUR, queue="greedy") for _ in range(5)
    ]
    jobs += [
        RecordedJob(60.0, 80, HOUR, queue="greedy"),
        *(RecordedJob(2 * HOUR, 1, 9 * HOUR, queue="modest") for _ in range(60)),
    ]
    moments = list(fair_share.watch(jobs, nodes, equal(), 3 * HOUR, GRACE))
    before = [moment for moment in moments if HOUR < moment.at < 2 * HOUR]
    assert {moment.held["greedy"] for moment in before} == {40}
    assert fair_share.back_after(moments, "modest", nodes.total / 2, 2 * HOUR) == 0.0


def test_a_share_is_back_when_the_rest_of_it_is_too_small_for_anybody() -> None:
    seen = [
        QueueUsageSpan(at, 1.0, Counter(modest=held), Counter(modest=40), {"modest": 4})
        for at, held in ((0.0, 8), (1.0, 13), (2.0, 16))
    ]
    assert fair_share.back_after(seen, "modest", 16, 0.0) == 1.0
    assert fair_share.back_after(seen, "modest", 40, 0.0) is None
