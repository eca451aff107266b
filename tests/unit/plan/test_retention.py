"""How long data is kept."""

from __future__ import annotations

from fairway.plan.retention import RetentionDeadlines, deadlines
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState
from fairway.state.phase import JobPhase


def ended(keep: dict[str, str], **more: object) -> JobState:
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}, "keep": keep})
    return JobState(JobKey("default", "a-1"), "a", 1, spec, **{"phase": JobPhase.SUCCEEDED, "finished": 100.0, **more})  # type: ignore[arg-type]


def test_logs_and_record_go_at_their_own_times() -> None:
    assert deadlines(ended({"logs": "1m", "record": "1h"})) == RetentionDeadlines(160.0, 3700.0)


def test_forever_is_never_and_logs_go_once() -> None:
    assert deadlines(ended({"logs": "forever", "record": "forever"})) == RetentionDeadlines()
    assert deadlines(ended({"logs": "1m", "record": "1h"}, logs_gone=True)) == RetentionDeadlines(None, 3700.0)


def test_a_run_that_is_not_over_loses_nothing() -> None:
    assert deadlines(ended({"logs": "1s", "record": "1s"}, phase=JobPhase.RUNNING, finished=None)) == RetentionDeadlines()
