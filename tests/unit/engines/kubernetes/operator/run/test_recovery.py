"""Runs recovered from their objects and pods, for an operator that has lost its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.app.loop.run_recovery import UnreadableRunError
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import CustomObject, Pod
from fairway.engines.kubernetes.operator.engine import BY_RUN, by_run
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.engines.kubernetes.operator.run.recovery import ClusterRunRecovery, job_of
from fairway.engines.kubernetes.operator.run.training_job import UID, was_run
from fairway.state.job import JobKey
from fairway.state.phase import JobPhase, RunIntent, TaskPhase
from fairway.state.task import TaskKey

SPEC = {"roles": {"worker": {"command": ["x"], "replicas": {"min": 1, "max": 1}}}}


def an_object(name: str = "m-7", **status: Any) -> CustomObject:
    body = {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": SPEC,
        "status": status,
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=CustomObject, strict=False)


def a_pod(name: str, attempt: int, phase: str) -> Pod:
    labels = {annotation.MANAGED_BY: annotation.MANAGER, annotation.RUN: name, annotation.ROLE: "worker", annotation.INDEX: "0"}
    labels[annotation.ATTEMPT] = str(attempt)
    metadata = {"name": f"{name}-worker-0-r{attempt}", "namespace": "team", "uid": f"p{attempt}", "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "a"}, "status": {"phase": phase}}, Pod, strict=False)


def kept(folder: Path, *things: CustomObject | Pod) -> ClusterRunRecovery:
    objects: Any = Informer(None, None)  # type: ignore[arg-type]
    pods: Any = Informer(None, None, indexes={BY_RUN: by_run})  # type: ignore[arg-type, var-annotated]
    for thing in things:
        (pods if isinstance(thing, Pod) else objects).put(thing)
    return ClusterRunRecovery(objects, pods, LogArchive(None, folder))  # type: ignore[arg-type]


def test_a_run_comes_from_the_document_and_the_status_of_its_object() -> None:
    job = job_of(an_object(phase="Running", attempt=2, restarts=1, startTime="2026-01-01T00:01:00Z"))
    assert (job.key, job.series, job.number) == (JobKey("team", "m-7"), "m", 7)
    assert (job.phase, job.attempt, job.restarts, job.intent) == (JobPhase.RUNNING, 2, 1, RunIntent.RUN)
    assert job.started == job.created + 60
    assert job.labels[UID] == "u1"
    assert job.origin.spread


def test_a_run_that_ended_is_over_and_says_how() -> None:
    job = job_of(an_object(phase="Failed", attempt=0, reason="Error", message="exited with 3", finishTime="2026-01-01T01:00:00Z"))
    assert job.phase.over
    assert job.outcome is not None
    assert (job.outcome.reason, job.outcome.message) == ("Error", "exited with 3")
    assert job.finished == job.created + 3600


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, False),
        ({"phase": "Failed", "reason": "Refused"}, False),
        ({"phase": "Stopped", "reason": "Suspended"}, False),
        ({"phase": "Pending", "attempt": 0}, True),
        ({"phase": "Succeeded", "attempt": 3, "reason": "Completed"}, True),
        ({"phase": "Dancing", "attempt": 3}, False),
    ],
)
def test_only_what_became_a_run_is_taken_up(status: dict[str, Any], expected: bool) -> None:
    assert was_run(an_object(**status)) is expected


async def test_attempts_are_the_pods_there_are(tmp_path: Path) -> None:
    found = kept(tmp_path, an_object(phase="Running", attempt=1), a_pod("m-7", 1, "Running"), a_pod("other-1", 0, "Running"))
    assert found.keys() == [JobKey("team", "m-7")]
    (attempt,) = found.attempts(JobKey("team", "m-7"))
    assert attempt.key == TaskKey("team", "m-7", "worker", 0, 1)
    (report,) = await found.reports([attempt.key])
    assert (report.phase, report.node) == (TaskPhase.RUNNING, "a")
    assert found.running(JobKey("team", "m-7"))


def test_what_has_no_object_is_not_made_up(tmp_path: Path) -> None:
    found = kept(tmp_path, a_pod("m-7", 0, "Running"))
    with pytest.raises(UnreadableRunError, match="no TrainingJob object"):
        found.job(JobKey("team", "m-7"))
    assert not found.never_recorded(JobKey("team", "m-7"))
