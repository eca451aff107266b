"""Assigns pods to replicas, and derives a replica's state from its pod. Pure.

A Deployment creates pods that belong to no replica. A waiting replica takes a pod of its revision as soon as the pod has a node;
the pod is labelled with the replica, so that every observer recognises it. A pod is to be deleted when its replica is over or is
to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import ContainerStatus, Pod, condition
from fairway.engines.kubernetes.operator.pod import report as pod_report
from fairway.engines.kubernetes.serving import naming
from fairway.plan.service.replica import REVISION_LABEL, SERVICE_LABEL
from fairway.state.job import JobState
from fairway.state.phase import RunIntent, TaskPhase
from fairway.state.service import ServiceKey
from fairway.state.task import Task, TaskExit, TaskKey, TaskReport

STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError")


def service_of(run: JobState) -> ServiceKey:
    """Return the service of a replica's run."""
    return ServiceKey(naming.namespace_of(run.key), run.labels.get(SERVICE_LABEL, ""))


def counts(runs: Iterable[JobState]) -> dict[ServiceKey, dict[int, int]]:
    """Return the desired number of replicas of each revision: those that are not over and not to end."""
    by_service: dict[ServiceKey, dict[int, int]] = {}
    for run in runs:
        if naming.is_replica_run(run.key) and not run.phase.over and run.intent is RunIntent.RUN:
            revisions = by_service.setdefault(service_of(run), {})
            number = int(run.labels.get(REVISION_LABEL, "0"))
            revisions[number] = revisions.get(number, 0) + 1
    return by_service


def seat_label(key: TaskKey) -> dict[str, str]:
    """Return the labels that assign a pod to the replica."""
    return {annotation.REPLICA: key.job, annotation.ATTEMPT: str(key.attempt)}


def sits(pod: Pod, key: TaskKey) -> bool:
    """Return whether the pod is assigned to the replica."""
    labels = pod.metadata.labels
    return all(labels.get(name) == value for name, value in seat_label(key).items())


def is_going(pod: Pod) -> bool:
    """Return whether the pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def is_ready(pod: Pod) -> bool:
    """Return whether requests may be sent to the pod."""
    ready = condition(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True" and not is_going(pod) and bool(pod.status.pod_ip)


def free(pods: Iterable[Pod], revision: str) -> list[Pod]:
    """Return the pods of a revision that have a node but no replica yet, the most advanced first."""
    pods_free = [
        pod
        for pod in pods
        if pod.metadata.labels.get(annotation.REVISION) == revision
        and annotation.REPLICA not in pod.metadata.labels
        and pod.spec.node_name
        and not is_going(pod)
        and not pod.over
    ]
    return sorted(pods_free, key=lambda pod: (not is_ready(pod), pod.metadata.creation_timestamp or "", pod.metadata.name))


def waiting(pods: Iterable[Pod], revision: str) -> str:
    """Return why pods of a revision have no node yet; empty when no reason is reported."""
    for pod in pods:
        if pod.metadata.labels.get(annotation.REVISION) == revision and not pod.spec.node_name and not is_going(pod):
            scheduled = condition(pod.status.conditions, "PodScheduled")
            if scheduled is not None and scheduled.status == "False" and scheduled.message:
                return scheduled.message
    return ""


def leavers(pods: Iterable[Pod], tasks: Mapping[tuple[str, str], Task]) -> list[Pod]:
    """Return the pods to delete: their replica is over, is to end, or is unknown. `tasks` are keyed by replica and attempt."""
    leaving = []
    for pod in pods:
        labels = pod.metadata.labels
        if annotation.REPLICA not in labels or labels.get(annotation.PART) != naming.REPLICA:
            continue
        task = tasks.get((labels[annotation.REPLICA], labels.get(annotation.ATTEMPT, "")))
        if task is None or task.phase.over or task.evicting_since is not None:
            leaving.append(pod)
    return leaving


def report(task: Task, pod: Pod | None, why: str) -> TaskReport:
    """Return the report of a replica. `why` is what its revision's pods wait for, used while it has no pod."""
    key = task.key
    evicted = task.evicting_since is not None
    if pod is None:
        if evicted:
            return TaskReport(key, TaskPhase.STOPPED, exit=TaskExit(by_us=True))
        if task.node:
            return TaskReport(key, TaskPhase.LOST, exit=TaskExit(disrupted="its pod was deleted before its exit was observed"))
        return TaskReport(key, task.phase, message=why)
    if evicted:
        return TaskReport(key, TaskPhase.STOPPED, exit=TaskExit(by_us=True)) if pod.over else TaskReport(key, task.phase)
    state = replace(pod_report.report(key, pod), leave=annotation.read_leave(pod.metadata.annotations))
    crash = crashed(pod)
    if crash is not None:
        return replace(
            state, phase=TaskPhase.FAILED, exit=crash, message=crash.tail.strip().splitlines()[-1] if crash.tail else ""
        )
    if state.phase.over or is_going(pod):
        disrupted = pod_report.disruption(pod) or "its pod was deleted by a user or another program"
        return replace(state, phase=TaskPhase.LOST, exit=TaskExit(disrupted=disrupted))
    if state.phase is TaskPhase.RUNNING:
        return replace(state, address=f"{pod.status.pod_ip}:{naming.REPLICA_PORT}")
    if (state.message or "").startswith(STUCK):
        # It waits until a user fixes it; the message tells what.
        return replace(state, phase=TaskPhase.PLACED)
    return state


def crashed(pod: Pod) -> TaskExit | None:
    """Return how the replica's program, or an init container, ended by itself; None while neither did.

    The kubelet restarts it, but here the replica is over, as on a single machine: the planner counts failures and starts another.
    """
    if is_going(pod) or pod.over:
        return None
    # The sidecar that uploads samples may fail: that loses samples only.
    steps = [status for status in pod.status.init_container_statuses if status.name != naming.SAMPLES]
    for status in (*steps, *pod.status.container_statuses):
        exit_state = _ended(status, in_the_beginning=status in steps)
        if exit_state is not None:
            return exit_state
    return None


def _ended(status: ContainerStatus, *, in_the_beginning: bool) -> TaskExit | None:
    state = status.state.terminated or status.last_state.terminated
    if state is None or (in_the_beginning and not state.exit_code and not status.restart_count):
        return None
    number = state.signal or (state.exit_code - 128 if state.exit_code > 128 else 0)
    code = None if number else state.exit_code
    return TaskExit(code, number or None, out_of_memory=state.reason == "OOMKilled", tail=state.message)
