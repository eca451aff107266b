"""What an engine saw, before it is folded."""

from __future__ import annotations

from fairway.app.observation import Spoken
from fairway.app.ports import MetricPoint, Observation
from fairway.state.job import JobKey

KEY = JobKey("default", "mnist-1")


def point(source: str) -> MetricPoint:
    return MetricPoint(1.0, 1, {"loss": 0.5}, "worker-0", source)


def test_what_a_run_tells_through_mlflow_silences_what_is_detected() -> None:
    spoken = Spoken()
    detected = Observation(KEY, (point("auto"),))
    assert spoken.counting(detected) == detected
    told = Observation(KEY, (point("mlflow"),))
    assert spoken.counting(told) == told
    assert spoken.counting(detected) == Observation(KEY)
    assert spoken.counting(Observation(KEY, (point("auto"), point("report")))).points == (point("report"),)
    assert spoken.counting(Observation(JobKey("default", "other-1"), (point("auto"),))).points == (point("auto"),)


def test_a_run_that_is_over_is_forgotten() -> None:
    spoken = Spoken()
    spoken.counting(Observation(KEY, (point("report"),)))
    spoken.forget(KEY)
    assert spoken.counting(Observation(KEY, (point("auto"),))).points == (point("auto"),)
