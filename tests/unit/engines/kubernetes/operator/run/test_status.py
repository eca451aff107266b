"""The status of a TrainingJob object reports failures that concern its run."""

from __future__ import annotations

from dataclasses import replace

from fairway.engines.kubernetes.operator.run.status import status_of
from fairway.state.fault import WorkFault
from fairway.state.observation import fold_summaries
from fairway.testing.builder.job_builder import a_job


def degraded(status: dict[str, object]) -> dict[str, str] | None:
    conditions = status["conditions"]
    assert isinstance(conditions, list)
    return next((condition for condition in conditions if condition["type"] == "Degraded"), None)


def test_a_fault_is_a_condition_until_it_is_over() -> None:
    job = a_job()
    fault = WorkFault(str(job.key), "perform", "no route to host", since=1.0, tries=2, retry_at=3.0)
    well = status_of(job, [], 1, {}, 10.0)
    assert degraded(well) is None
    failing = status_of(job, [], 1, well, 20.0, [fault])
    found = degraded(failing)
    assert found is not None
    assert (found["status"], found["reason"], found["message"]) == ("True", "Fault", "perform failed: no route to host")
    over = degraded(status_of(job, [], 1, failing, 30.0))
    assert over is not None
    assert over["status"] == "False"


def test_the_progress_shows_the_last_values_by_step() -> None:
    points = [(float(time), step, {"loss": value}) for time, (step, value) in enumerate([(1, 0.9), (2, 0.5), (0, 0.8)])]
    job = fold_summaries(a_job(), "worker-0", points)
    job = replace(job, progress=replace(job.progress, step=2, metrics={"loss": 0.8, "lr": 0.1}))
    assert status_of(job, [], 1, {}, 10.0)["progress"] == "step 2, loss 0.5, lr 0.1"
