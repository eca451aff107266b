"""The status of a TrainingJob object names what fails for its run."""

from __future__ import annotations

from fairway.engines.kubernetes.operator.status import status_of
from fairway.state.fault import Fault
from fairway.testing.builders import a_job


def degraded(status: dict[str, object]) -> dict[str, str] | None:
    conditions = status["conditions"]
    assert isinstance(conditions, list)
    return next((one for one in conditions if one["type"] == "Degraded"), None)


def test_a_fault_is_a_condition_until_it_is_over() -> None:
    job = a_job()
    fault = Fault(str(job.key), "perform", "no route to host", since=1.0, tries=2, retry_at=3.0)
    well = status_of(job, [], 1, {}, 10.0)
    assert degraded(well) is None
    failing = status_of(job, [], 1, well, 20.0, [fault])
    found = degraded(failing)
    assert found is not None
    assert (found["status"], found["reason"], found["message"]) == ("True", "Fault", "perform failed: no route to host")
    over = degraded(status_of(job, [], 1, failing, 30.0))
    assert over is not None
    assert over["status"] == "False"
