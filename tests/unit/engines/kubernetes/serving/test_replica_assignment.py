"""Which pod is which replica, and the state of the replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.serving import naming, replica_assignment
from fairway.plan.service import service_command
from fairway.plan.service.replica import new_replica, replica_run
from fairway.spec.service import ServiceSpec
from fairway.state.job import JobState, SubmissionOrigin
from fairway.state.phase import JobPhase, RunIntent, TaskPhase
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.task import Task, TaskKey

KEY = ServiceKey("team", "adds")


def service(**spec: Any) -> ServiceState:
    asked = ServiceSpec.model_validate({"model": "adds@1", **spec})
    return service_command.applied(None, KEY, asked, "adds@1", "onnx", SubmissionOrigin(), {}, 0.0)


def run(number: int, revision: int = 1) -> JobState:
    asked = service()
    job = replica_run(asked, asked.revisions[0], new_replica(asked, revision, number, 0.0), "python3")
    return replace(job, labels={**job.labels, annotation.REVISION: str(revision)})


def pod(name: str, replica: str = "", ready: bool = True, node: str = "node-1", **more: Any) -> Pod:
    labels = naming.replica_labels(KEY, 1) | ({annotation.REPLICA: replica, annotation.ATTEMPT: "0"} if replica else {})
    status = {
        "phase": "Running" if node else "Pending",
        "podIP": "10.0.0.7" if node else "",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [{"name": "task", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
    }
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels, **more.pop("metadata", {})},
        "spec": {"nodeName": node},
        "status": {**status, **more},
    }
    return msgspec.convert(body, Pod)


def task(replica: str = "adds-r1-1", **more: Any) -> Task:
    return Task(TaskKey("team.services", replica, "replica", 0, 0), **{"phase": TaskPhase.PLACED, **more})


GOING = {"deletionTimestamp": "2026-01-01T00:01:00Z"}


def test_counts_are_of_replicas_that_nobody_told_to_end() -> None:
    told, over = replace(run(3), intent=RunIntent.STOP), replace(run(4), phase=JobPhase.FAILED)
    assert replica_assignment.counts([run(1), run(2), told, over, run(5, revision=2)]) == {KEY: {1: 2, 2: 1}}


def test_a_pod_is_free_when_it_has_a_node_and_no_replica_and_stays() -> None:
    pods = [
        pod("late", ready=False),
        pod("ready"),
        pod("taken", "adds-r1-1"),
        pod("unplaced", node=""),
        pod("going", metadata=GOING),
        pod("over", phase="Failed"),
    ]
    assert [one.metadata.name for one in replica_assignment.free(pods, "1")] == ["ready", "late"]
    assert replica_assignment.free(pods, "2") == []


def test_what_pods_wait_for_is_repeated() -> None:
    why = {"type": "PodScheduled", "status": "False", "message": "no GPU is free"}
    waiting = pod("waits", node="", conditions=[why])
    assert replica_assignment.waiting([waiting], "1") == "no GPU is free"
    assert replica_assignment.report(task(), None, "no GPU is free").message == "no GPU is free"


def test_pods_go_whose_replica_is_over_told_to_end_or_unknown() -> None:
    pods = [
        pod("stays", "adds-r1-1"),
        pod("ended", "adds-r1-2"),
        pod("told", "adds-r1-3"),
        pod("unknown", "adds-r1-9"),
        pod("new"),
    ]
    tasks = {
        ("adds-r1-1", "0"): task(),
        ("adds-r1-2", "0"): task(phase=TaskPhase.FAILED),
        ("adds-r1-3", "0"): task(evicting_since=5.0),
    }
    assert [leaver.metadata.name for leaver in replica_assignment.leavers(pods, tasks)] == ["ended", "told", "unknown"]


def test_a_running_pod_gives_the_replica_its_address() -> None:
    report = replica_assignment.report(task(), pod("a", "adds-r1-1"), "")
    assert (report.phase, report.address, report.node) == (TaskPhase.RUNNING, "10.0.0.7:20000", "node-1")


@pytest.mark.parametrize(
    ("found", "phase", "word"),
    [
        (None, TaskPhase.LOST, "deleted"),
        (pod("a", metadata=GOING), TaskPhase.LOST, "deleted by a user"),
        (pod("a", phase="Failed", reason="Evicted"), TaskPhase.LOST, "evicted"),
    ],
)
def test_who_is_ended_from_outside_is_lost_and_costs_nothing(found: Pod | None, phase: TaskPhase, word: str) -> None:
    report = replica_assignment.report(task(phase=TaskPhase.RUNNING, node="node-1"), found, "")
    assert report.phase is phase
    assert report.exit is not None
    assert word in report.exit.disrupted


def test_a_program_that_ends_has_failed_though_the_kubelet_starts_it_again() -> None:
    ended = {"terminated": {"exitCode": 3, "message": "first\nno such file\n"}}
    again = {"name": "task", "restartCount": 1, "state": {"running": {}}, "lastState": ended}
    report = replica_assignment.report(task(node="node-1"), pod("a", containerStatuses=[again]), "")
    assert (report.phase, report.message) == (TaskPhase.FAILED, "no such file")
    assert report.exit is not None
    assert report.exit.code == 3


def test_a_step_that_brought_the_model_is_no_failure_and_one_that_could_not_is() -> None:
    done = {"name": "model", "state": {"terminated": {"exitCode": 0}}}
    assert replica_assignment.crashed(pod("a", initContainerStatuses=[done])) is None
    failed = {"name": "model", "state": {"terminated": {"exitCode": 1, "message": "no such model"}}}
    found = replica_assignment.crashed(pod("a", initContainerStatuses=[failed]))
    assert found is not None
    assert found.tail == "no such model"


def test_what_brings_samples_away_may_fail_at_the_cost_of_samples_alone() -> None:
    died = {"exitCode": 137, "reason": "OOMKilled"}
    again = {"name": "samples", "restartCount": 3, "state": {"running": {}}, "lastState": {"terminated": died}}
    brought = {"name": "model", "state": {"terminated": {"exitCode": 0}}}
    assert replica_assignment.crashed(pod("a", initContainerStatuses=[brought, again])) is None
    assert replica_assignment.report(task(), pod("a", initContainerStatuses=[brought, again]), "").phase is TaskPhase.RUNNING


def test_who_was_told_to_end_is_stopped_once_the_pod_is_gone() -> None:
    told = task(phase=TaskPhase.RUNNING, node="node-1", evicting_since=9.0)
    assert replica_assignment.report(told, pod("a", metadata=GOING), "").phase is TaskPhase.RUNNING
    report = replica_assignment.report(told, None, "")
    assert report.phase is TaskPhase.STOPPED
    assert report.exit is not None
    assert report.exit.by_us
