"""Observations of an engine, before they are folded into a run."""

from __future__ import annotations

from fairway.app.loop.fault_register import FaultRegister
from fairway.app.loop.observation_fold import ReportingRuns, folded_runs
from fairway.app.port.port import MetricPoint, Observation
from fairway.state.job import JobKey
from fairway.state.snapshot import PlannerSnapshot
from fairway.testing.builder.job_builder import a_job


class NoClock:
    def now(self) -> float:
        return 0.0


KEY = JobKey("default", "mnist-1")


def point(source: str) -> MetricPoint:
    return MetricPoint(1.0, 1, {"loss": 0.5}, "worker-0", source)


def test_what_a_run_tells_through_mlflow_silences_what_is_detected() -> None:
    spoken = ReportingRuns()
    detected = Observation(KEY, (point("auto"),))
    assert spoken.counting(detected) == detected
    observation = Observation(KEY, (point("mlflow"),))
    assert spoken.counting(observation) == observation
    assert spoken.counting(detected) == Observation(KEY)
    assert spoken.counting(Observation(KEY, (point("auto"), point("report")))).points == (point("report"),)
    assert spoken.counting(Observation(JobKey("default", "other-1"), (point("auto"),))).points == (point("auto"),)


def test_a_run_that_is_over_is_forgotten() -> None:
    spoken = ReportingRuns()
    spoken.counting(Observation(KEY, (point("report"),)))
    spoken.forget(KEY)
    assert spoken.counting(Observation(KEY, (point("auto"),))).points == (point("auto"),)


def test_the_step_0_that_mlflow_clients_fill_in_is_no_progress_and_comes_before_later_steps() -> None:
    snapshot = PlannerSnapshot()
    job = a_job(["python"], name="mnist-1")
    snapshot.put_job(job)
    values = [(0, 0.9), (1, 0.5), (2, 0.3), (0, 0.8)]
    points = tuple(MetricPoint(float(time), step, {"loss": value}, "", "mlflow") for time, (step, value) in enumerate(values))
    (folded,), kept = folded_runs(snapshot, [Observation(job.key, points)], FaultRegister(NoClock()))
    assert (folded.progress.step, folded.progress.metrics, folded.progress.last) == (2, {"loss": 0.8}, {"loss": 0.3})
    assert folded.progress.summaries["loss"].best("min") == (0.3, 2)
    assert len(kept) == 4
