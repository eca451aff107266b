"""Small queues, computed by hand, and properties of any queue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.errors import NeverFitsError, UsageError
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import POLICIES, QueueReplay, policy_named, replay
from fairway.simulation.queue.queue_result import QueueResult, usage_curve
from fairway.simulation.queue.queue_state import RESTART_COST
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.simulation.queue.timeshare_policy import TimesharePolicy

HOUR = 3600.0
ONE = EqualNodes(1, 8)


def ends(outcome: QueueResult) -> dict[float, float]:
    """Return the end of each job by its time of submission."""
    return {record.entry.submitted: record.ended for record in outcome.records}


def test_first_in_first_out_lets_nobody_pass() -> None:
    queue = [RecordedJob(0.0, 4, 100.0), RecordedJob(1.0, 8, 50.0), RecordedJob(2.0, 1, 10.0)]
    assert ends(replay(queue, ONE, "fifo")) == {0.0: 100.0, 1.0: 150.0, 2.0: 160.0}
    assert ends(replay(queue, ONE, "fifo-skip")) == {0.0: 100.0, 1.0: 150.0, 2.0: 12.0}


def test_backfilling_passes_only_where_it_delays_nobody() -> None:
    queue = [RecordedJob(0.0, 4, 100.0), RecordedJob(1.0, 8, 50.0), RecordedJob(2.0, 1, 98.0), RecordedJob(3.0, 1, 98.0)]
    assert ends(replay(queue, ONE, "backfill")) == {0.0: 100.0, 1.0: 150.0, 2.0: 100.0, 3.0: 248.0}


def test_backfilling_uses_places_that_the_first_does_not_need() -> None:
    queue = [RecordedJob(0.0, 6, 100.0), RecordedJob(1.0, 4, 50.0), RecordedJob(2.0, 2, 500.0)]
    assert ends(replay(queue, ONE, "backfill")) == {0.0: 100.0, 1.0: 150.0, 2.0: 502.0}


def test_the_shortest_goes_first() -> None:
    queue = [RecordedJob(0.0, 8, 100.0), RecordedJob(1.0, 8, 50.0), RecordedJob(2.0, 8, 10.0)]
    assert ends(replay(queue, ONE, "sjf-oracle")) == {0.0: 100.0, 1.0: 160.0, 2.0: 110.0}


def test_the_oracle_interrupts_for_a_shorter_one_and_pays_for_it() -> None:
    outcome = replay([RecordedJob(0.0, 8, 1000.0), RecordedJob(100.0, 8, 50.0)], ONE, "srtf-oracle")
    assert ends(outcome) == {100.0: 150.0, 0.0: 150.0 + RESTART_COST + 900.0}
    assert outcome.preemptions == 1


@pytest.mark.parametrize("policy", ["fairway", "timeshare"])
def test_ours_interrupts_one_that_had_much_when_its_turn_is_over(policy: str) -> None:
    # 8 GPUs reach level 1 after 15 minutes. The new job waits for that, runs, and the first continues.
    outcome = replay([RecordedJob(0.0, 8, 5000.0), RecordedJob(300.0, 8, 100.0)], ONE, policy)
    assert ends(outcome) == pytest.approx({300.0: 1000.0, 0.0: 1000.0 + RESTART_COST + 4100.0}, abs=0.1)


@pytest.mark.parametrize("policy", ["fairway", "timeshare"])
def test_ours_leaves_those_alone_who_are_on_the_same_level(policy: str) -> None:
    outcome = replay([RecordedJob(0.0, 8, 800.0), RecordedJob(300.0, 8, 100.0)], ONE, policy)
    assert ends(outcome) == {0.0: 800.0, 300.0: 900.0}
    assert outcome.preemptions == 0


def test_ours_displaces_only_as_many_as_needed() -> None:
    queue = [RecordedJob(0.0, 4, 20 * HOUR), RecordedJob(0.5, 4, 20 * HOUR), RecordedJob(10 * HOUR, 2, 60.0)]
    outcome = replay(queue, ONE, "timeshare")
    assert outcome.preemptions == 1
    assert ends(outcome)[10 * HOUR] == 10 * HOUR + 60.0


def test_ours_moves_one_where_only_that_makes_room() -> None:
    # When the first job has finished, one GPU is used on one node and two on the other, all on the lowest level.
    queue = [RecordedJob(0.0, 7, 600.0), RecordedJob(1.0, 1, 1.9 * HOUR), RecordedJob(2.0, 2, 0.9 * HOUR)]
    two = EqualNodes(2, 8)
    late = RecordedJob(0.6 * HOUR, 8, 60.0)
    moved = replay([*queue, late], two, "timeshare")
    assert ends(moved)[late.submitted] == late.submitted + 60.0
    assert moved.moves == 1
    assert [record.moves for record in moved.records if record.entry.gpus == 1] == [1]
    stiff = QueueReplay([*queue, late], two, TimesharePolicy(moves=False)).run("timeshare")
    assert (stiff.moves, ends(stiff)[late.submitted]) == (0, 2.0 + 0.9 * HOUR + 60.0)


def test_work_done_in_the_time_of_restarting_is_not_counted() -> None:
    replayed = QueueReplay(
        [RecordedJob(0.0, 8, 1000.0), RecordedJob(100.0, 8, 50.0), RecordedJob(160.0, 8, 20.0)], ONE, policy_named("srtf-oracle")
    )
    found = replayed.run("srtf-oracle")
    # The first job is interrupted at 100, restarts at 150, and again at 180: the time since 150 was lost.
    assert ends(found) == {100.0: 150.0, 160.0: 180.0, 0.0: 180.0 + RESTART_COST + 900.0}


def test_figures_of_two_jobs() -> None:
    outcome = replay([RecordedJob(0.0, 8, HOUR), RecordedJob(0.0, 8, HOUR)], ONE, "fifo")
    assert (outcome.average_jct_h, outcome.median_jct_h, outcome.p99_jct_h) == (1.5, 2.0, 2.0)
    assert (outcome.average_wait_h, outcome.average_first_wait_h, outcome.makespan_h) == (0.5, 0.5, 2.0)
    assert outcome.figures()["policy"] == "fifo"
    assert "records" not in outcome.figures()


def test_the_curve_of_use_has_the_area_of_the_work() -> None:
    outcome = replay([RecordedJob(0.0, 8, HOUR), RecordedJob(0.0, 4, HOUR)], ONE, "fifo")
    curve = usage_curve(outcome, points=4)
    assert curve == [(0.0, 1.0), (0.5, 1.0), (1.0, 0.5), (1.5, 0.5)]


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    replay(
        [RecordedJob(0.0, 8, 5.0), RecordedJob(0.0, 8, 5.0)], ONE, "fifo", progress=lambda done, total: told.append((done, total))
    )
    assert told == [(0, 2), (1, 2), (2, 2)]


def test_what_can_never_run_is_refused() -> None:
    with pytest.raises(NeverFitsError, match="16 GPUs"):
        replay([RecordedJob(0.0, 16, 5.0)], ONE)
    with pytest.raises(UsageError, match="no jobs"):
        replay([], ONE)
    with pytest.raises(UsageError, match="fairway"):
        replay([RecordedJob(0.0, 1, 5.0)], ONE, "magic")


queues = st.lists(
    st.builds(
        RecordedJob,
        submitted=st.integers(0, 40_000).map(float),
        gpus=st.sampled_from([1, 1, 2, 4, 8, 16]),
        duration=st.integers(1, 30_000).map(float),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(queue=queues)
def test_every_job_ends_gets_its_time_and_nothing_is_over_committed(policy: str, queue: list[RecordedJob]) -> None:
    outcome = replay(queue, EqualNodes(2, 8), policy)
    assert len(outcome.records) == len(queue)
    for record in outcome.records:
        least = record.entry.duration + (RESTART_COST if record.evictions else 0.0)
        assert record.ended - record.started >= least - 1e-6
        assert record.started >= record.entry.submitted
    assert all(0 <= held <= 16 for _, held in outcome.busy)
    assert outcome.busy[-1][1] == 0
    assert replay(queue, EqualNodes(2, 8), policy) == outcome


@settings(max_examples=25, deadline=None)
@given(queue=queues)
def test_ours_leaves_nothing_idle_that_somebody_could_use(queue: list[RecordedJob]) -> None:
    replayed = QueueReplay(queue, EqualNodes(2, 8), policy_named("timeshare"))
    while replayed.step() is not None:
        hall = replayed.hall
        assert all(hall.floor.find(job.entry.gpus) is None for job in hall.waiting.values())
        held = [places for job in hall.running.values() for places in job.places]
        for node in range(2):
            assert hall.floor.free[node] == 8 - sum(count for where, count in held if where == node)
