"""Folding reports into a run: for any content, the run can be stored and computed with."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.plan.job import _stop_condition
from fairway.spec.job import JobSpec, StopPolicy, TaskRole
from fairway.state import observation
from fairway.state.job import JobKey, JobState, RunProgress
from fairway.state.metric import best_values
from fairway.state.observation import fold_checkpoint, fold_progress, fold_summaries
from fairway.state.phase import JobPhase
from fairway.stores.sqlite import codec
from fairway.units import number
from fairway.views.job import _progress

SPEC = JobSpec(
    roles={"worker": TaskRole(command=("python",))}, stop=StopPolicy(at_step=2**62, when="loss < 0.1 and not (accuracy <= 0.9)")
)
JOB = JobState(JobKey("default", "mnist-1"), "mnist", 1, SPEC, phase=JobPhase.RUNNING)
ANY_FLOAT = st.floats() | st.sampled_from((math.nan, math.inf, -math.inf, 1.7e308, 5e-324))
STEPS = st.none() | st.integers(-(2**64), 2**64) | st.sampled_from((2**63, 10**400, -(2**63), 2**63 - 1))
POINTS = st.lists(
    st.tuples(st.floats(0, 1e9) | ANY_FLOAT, STEPS, st.dictionaries(st.sampled_from(("loss", "accuracy")), ANY_FLOAT))
)


def folded(*points: tuple[float, int | None, dict[str, float]]) -> RunProgress:
    return fold_progress(JOB, "worker-0", list(points)).progress


@settings(max_examples=200, deadline=None)
@given(POINTS)
def test_any_reports_leave_a_run_that_is_stored_judged_and_shown(
    points: list[tuple[float, int | None, dict[str, float]]],
) -> None:
    job = fold_progress(fold_summaries(JOB, "worker-0", points), "worker-0", points)
    progress = job.progress
    assert set(progress.summaries) == set(progress.metrics)
    assert set(best_values(progress.summaries)) <= set(progress.last)
    assert progress.step is None or number.int64(progress.step) is not None
    assert progress.time is None or math.isfinite(progress.time)
    assert progress.steps_per_second is None or math.isfinite(progress.steps_per_second)
    assert repr(codec.unpack_job(codec.pack(job)).progress) == repr(progress)
    assert isinstance(_stop_condition(job), str)
    left = _progress(job, 1e9).remaining
    assert left is None or math.isfinite(left)


def test_a_bad_step_leaves_the_run_as_it_was() -> None:
    before = folded((1.0, 5, {"loss": 0.5}))
    assert folded((1.0, 5, {"loss": 0.5}), (2.0, 2**63, {"loss": 0.1})) == before
    assert folded((1.0, 5, {"loss": 0.5}), (math.nan, 6, {"loss": 0.1})) == before


def test_a_loss_that_is_no_number_stays_visible_and_ends_nothing() -> None:
    job = fold_progress(JOB, "worker-0", [(1.0, 5, {"loss": math.nan, "accuracy": math.nan})])
    assert math.isnan(job.progress.metrics["loss"])
    assert _stop_condition(job) == ""
    better = fold_progress(job, "worker-0", [(2.0, 6, {"loss": 0.01, "accuracy": math.inf})])
    assert _stop_condition(better).startswith("loss < 0.1")


def test_the_speed_of_two_reports_at_almost_one_time_is_not_infinite() -> None:
    progress = folded((0.0, 0, {}), (5e-324, 10, {}))
    assert progress.steps_per_second is None
    assert progress.step == 10
    assert folded((0.0, 0, {}), (2.0, 10, {})).steps_per_second == 5.0


def test_progress_has_a_bounded_number_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "MOST_METRICS", 3)
    progress = folded(*((float(place), place, {f"n{place}": 1.0, "n0": float(place)}) for place in range(10)))
    assert list(progress.metrics) == ["n0", "n1", "n2"]
    assert progress.metrics["n0"] == 9.0
    assert progress.step == 9


@pytest.mark.parametrize("step", [-1, 2**63, True, 10**400])
def test_a_checkpoint_at_no_step_is_none(step: int) -> None:
    assert fold_checkpoint(JOB, step, 1.0) is JOB


def test_a_checkpoint_without_a_time_counts() -> None:
    saved = fold_checkpoint(JOB, 7, math.inf).progress
    assert (saved.checkpoint_step, saved.checkpoint_time) == (7, None)
    assert replace(saved, checkpoint_time=2.0) == fold_checkpoint(JOB, 7, 2.0).progress


def test_a_run_of_an_earlier_version_is_read_and_its_metrics_count_as_they_came() -> None:
    """A record without summaries, as earlier versions wrote it."""
    old = msgspec.msgpack.decode(codec.pack(replace(JOB, progress=RunProgress(3, {"loss": 0.5, "lr": 0.1}, 1.0))))
    del old["progress"]["summaries"]
    job = codec.unpack_job(msgspec.msgpack.encode(old))
    assert job.progress.last == {"loss": 0.5, "lr": 0.1}
    grown = fold_progress(fold_summaries(job, "worker-0", [(2.0, 4, {"loss": 0.4})]), "worker-0", [(2.0, 4, {"loss": 0.4})])
    assert grown.progress.last == {"loss": 0.4, "lr": 0.1}


def test_summaries_begin_anew_when_another_task_speaks() -> None:
    first = fold_progress(fold_summaries(JOB, "worker-1", [(1.0, 9, {"loss": 0.1})]), "worker-1", [(1.0, 9, {"loss": 0.1})])
    assert fold_summaries(first, "worker-1", [(2.0, 2, {"loss": 0.5})]).progress.summaries["loss"].last == 0.1
    assert fold_summaries(first, "worker-0", [(2.0, 2, {"loss": 0.5})]).progress.summaries["loss"].last == 0.5
    assert fold_summaries(first, "worker-0", []) is first
