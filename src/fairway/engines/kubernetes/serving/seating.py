"""Which pod is which replica, and what a pod says of it. Pure.

A Deployment makes pods without names of ours. A replica that waits takes one of its revision as soon as that has a node; the
pod is labelled with the replica, so that it is known again whoever looks. A pod whose replica is over, or was told to end,
is to go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.objects import ContainerStatus, Pod, condition
from fairway.engines.kubernetes.operator import observe
from fairway.engines.kubernetes.serving import naming
from fairway.plan.service.replica import REVISION_LABEL, SERVICE_LABEL
from fairway.state.job import Job
from fairway.state.phase import Intent, TaskPhase
from fairway.state.service import ServiceKey
from fairway.state.task import Exit, Task, TaskKey, TaskReport

STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError")


def service_of(run: Job) -> ServiceKey:
    """The service that a replica's run belongs to."""
    return ServiceKey(naming.namespace_of(run.key), run.labels.get(SERVICE_LABEL, ""))


def counts(runs: Iterable[Job]) -> dict[ServiceKey, dict[int, int]]:
    """How many replicas each revision should have: those that nobody told to end."""
    found: dict[ServiceKey, dict[int, int]] = {}
    for run in runs:
        if naming.is_replica_run(run.key) and not run.phase.over and run.intent is Intent.RUN:
            revisions = found.setdefault(service_of(run), {})
            number = int(run.labels.get(REVISION_LABEL, "0"))
            revisions[number] = revisions.get(number, 0) + 1
    return found


def seat_label(key: TaskKey) -> dict[str, str]:
    """The labels by which a pod is known to be the replica."""
    return {marks.REPLICA: key.job, marks.ATTEMPT: str(key.attempt)}


def sits(pod: Pod, key: TaskKey) -> bool:
    """Whether the pod is the replica."""
    labels = pod.metadata.labels
    return all(labels.get(name) == value for name, value in seat_label(key).items())


def is_going(pod: Pod) -> bool:
    """Whether somebody has told it to end."""
    return pod.metadata.deletion_timestamp is not None


def is_ready(pod: Pod) -> bool:
    """Whether requests may go there."""
    found = condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True" and not is_going(pod) and bool(pod.status.pod_ip)


def free(pods: Iterable[Pod], revision: str) -> list[Pod]:
    """Pods of a revision that have a node and are no replica yet, those that are furthest first."""
    found = [
        pod
        for pod in pods
        if pod.metadata.labels.get(marks.REVISION) == revision
        and marks.REPLICA not in pod.metadata.labels
        and pod.spec.node_name
        and not is_going(pod)
        and not pod.over
    ]
    return sorted(found, key=lambda pod: (not is_ready(pod), pod.metadata.creation_timestamp or "", pod.metadata.name))


def waiting(pods: Iterable[Pod], revision: str) -> str:
    """Why pods of a revision have no node yet, in words; empty when nobody said."""
    for pod in pods:
        if pod.metadata.labels.get(marks.REVISION) == revision and not pod.spec.node_name and not is_going(pod):
            told = condition(pod.status.conditions, "PodScheduled")
            if told is not None and told.status == "False" and told.message:
                return told.message
    return ""


def leavers(pods: Iterable[Pod], tasks: Mapping[tuple[str, str], Task]) -> list[Pod]:
    """Pods that are to go: replicas that are over, told to end, or not known. `tasks`: by replica and attempt."""
    found = []
    for pod in pods:
        labels = pod.metadata.labels
        if marks.REPLICA not in labels or labels.get(marks.PART) != naming.REPLICA:
            continue
        task = tasks.get((labels[marks.REPLICA], labels.get(marks.ATTEMPT, "")))
        if task is None or task.phase.over or task.evicting_since is not None:
            found.append(pod)
    return found


def report(task: Task, pod: Pod | None, why: str) -> TaskReport:
    """What is known of a replica. `why`: what its revision's pods wait for, told while it has none."""
    key = task.key
    told = task.evicting_since is not None
    if pod is None:
        if told:
            return TaskReport(key, TaskPhase.STOPPED, exit=Exit(by_us=True))
        if task.node:
            return TaskReport(key, TaskPhase.LOST, exit=Exit(disrupted="its pod was deleted, and nobody saw how it ended"))
        return TaskReport(key, task.phase, message=why)
    if told:
        return TaskReport(key, TaskPhase.STOPPED, exit=Exit(by_us=True)) if pod.over else TaskReport(key, task.phase)
    seen = replace(observe.report(key, pod), leave=marks.read_leave(pod.metadata.annotations))
    crash = crashed(pod)
    if crash is not None:
        return replace(
            seen, phase=TaskPhase.FAILED, exit=crash, message=crash.tail.strip().splitlines()[-1] if crash.tail else ""
        )
    if seen.phase.over or is_going(pod):
        disrupted = observe.disruption(pod) or "its pod was deleted by somebody"
        return replace(seen, phase=TaskPhase.LOST, exit=Exit(disrupted=disrupted))
    if seen.phase is TaskPhase.RUNNING:
        return replace(seen, address=f"{pod.status.pod_ip}:{naming.REPLICA_PORT}")
    if (seen.message or "").startswith(STUCK):
        # It waits for somebody to mend it, and says so.
        return replace(seen, phase=TaskPhase.PLACED)
    return seen


def crashed(pod: Pod) -> Exit | None:
    """How the replica's program, or the step that brings its model, ended by itself; None while neither did.

    The kubelet starts it again; for us it is over, as on one machine: the planner counts failures and makes another.
    """
    if is_going(pod) or pod.over:
        return None
    # Who brings samples away may fail: that costs samples alone.
    steps = [status for status in pod.status.init_container_statuses if status.name != naming.SAMPLES]
    for status in (*steps, *pod.status.container_statuses):
        ended = _ended(status, in_the_beginning=status in steps)
        if ended is not None:
            return ended
    return None


def _ended(status: ContainerStatus, *, in_the_beginning: bool) -> Exit | None:
    state = status.state.terminated or status.last_state.terminated
    if state is None or (in_the_beginning and not state.exit_code and not status.restart_count):
        return None
    number = state.signal or (state.exit_code - 128 if state.exit_code > 128 else 0)
    code = None if number else state.exit_code
    return Exit(code, number or None, out_of_memory=state.reason == "OOMKilled", tail=state.message)
