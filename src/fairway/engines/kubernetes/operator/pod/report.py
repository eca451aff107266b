"""Converts the status of a pod into the report of its task. Pure."""

from __future__ import annotations

import signal as signals
from dataclasses import replace
from typing import Any

from fairway.engines.kubernetes import annotation, pod_cause
from fairway.engines.kubernetes.objects import ContainerStatus, ContainerTerminated, Pod, condition
from fairway.engines.kubernetes.timestamp import seconds
from fairway.runtime.failure.cause import find
from fairway.runtime.pod import termination_message
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskExit, TaskKey, TaskReport
from fairway.units.number import int64

TAIL = 8192
"""Maximum number of characters of the log that are kept with the end."""
TASK = "task"
"""The name of the container in which the task runs."""

_DISRUPTED = {
    "Evicted": "its node ran short of resources and evicted it",
    "NodeLost": "its node was lost",
    "NodeShutdown": "its node shut down",
    "Terminated": "its node shut down",
    "Preempting": "its node made room for a critical pod",
    "NodeAffinity": "its node no longer has the labels that it requires",
    "UnexpectedAdmissionError": "its node could not allocate the promised devices",
}
_STEPS = {
    "code": "code or data could not be brought into the pod",
    "environment": "the environment could not be created",
}
_STEP = "a step before the task failed"
_CANNOT_RUN = frozenset({126, 127})
_BOUNDS = {"code": (0, 255), "signal": (1, 64), "rank": (0, 2**31 - 1)}
"""Numbers of a termination message, and their bounds. The task's program can write anything there."""
_SHOWN = 60
"""Maximum number of characters of a bad value that a message quotes."""
_TOLD_TO_END = frozenset({128 + signals.SIGTERM, 128 + signals.SIGKILL})
"""Exit codes of a container that its kubelet ended."""


def report(key: TaskKey, pod: Pod) -> TaskReport:
    """Return the report of a task from its pod."""
    result = TaskReport(
        key,
        phase_of(pod),
        ready=True,
        node=pod.spec.node_name or None,
        devices=_devices(pod),
        leave=annotation.read_leave(pod.metadata.annotations),
        started=_started(pod),
        message=_words(pod),
        address=pod.status.pod_ip or None,
    )
    if not result.phase.over:
        return result
    ended = exit_of(pod)
    return TaskReport(
        key,
        result.phase,
        ready=True,
        node=result.node,
        devices=result.devices,
        started=result.started,
        finished=_finished(pod),
        exit=ended,
        message=result.message or damage(pod) or (ended.tail if ended.code in _CANNOT_RUN else ""),
    )


def phase_of(pod: Pod) -> TaskPhase:
    """Return the phase of the task. A task that was ended by us is stopped, whatever its exit code is."""
    if pod.status.phase == "Succeeded":
        # A program that saves on request exits with 0, but its work is not complete.
        requested = annotation.DELETED_FOR in pod.metadata.annotations and _was_deleted_first(pod)
        return TaskPhase.STOPPED if requested else TaskPhase.SUCCEEDED
    if pod.status.phase == "Failed":
        return TaskPhase.STOPPED if annotation.DELETED_FOR in pod.metadata.annotations else TaskPhase.FAILED
    if pod.status.phase == "Running":
        return TaskPhase.RUNNING
    if pod.spec.node_name:
        return TaskPhase.STARTING
    # A pod that is deleted before it is placed will never be placed, and no kubelet will report its end.
    deleted = pod.metadata.deletion_timestamp is not None
    by_us = annotation.DELETED_FOR in pod.metadata.annotations
    return TaskPhase.STOPPED if deleted and by_us else TaskPhase.FAILED if deleted else TaskPhase.PLACED


def exit_of(pod: Pod) -> TaskExit:
    """Return how the task ended."""
    by_us = annotation.DELETED_FOR in pod.metadata.annotations
    ended = _ended(pod)
    disrupted = "" if by_us else disruption(pod)
    if ended is None:
        return TaskExit(by_us=by_us, disrupted=disrupted)
    record = termination_message.decode(ended.message)
    killed = ended.reason == "OOMKilled"
    if record is None or _wrong(record):
        # Our first process was killed, an init step failed, or the message is damaged: the kubelet's own numbers count.
        number = ended.signal or (ended.exit_code - 128 if ended.exit_code > 128 else 0)
        code = None if number else ended.exit_code
        # Nothing of a damaged message is used; the log has the program's last words.
        tail = annotation.storable(ended.message) if record is None else ""
        return TaskExit(code, number or None, out_of_memory=killed, by_us=by_us, tail=tail, disrupted=disrupted)
    code_, killer, rank = (int64(record[name]) for name in ("code", "signal", "rank"))
    return TaskExit(code_, killer, rank or 0, killed, by_us, tail=annotation.storable(record["words"]), disrupted=disrupted)


def with_last_words(ended: TaskExit, log: str) -> TaskExit:
    """Add what the last part of the log shows about the end: the last lines, and the error of the rank that failed."""
    ended = replace(ended, tail=ended.tail or log[-TAIL:])
    if ended.code == 0 or ended.by_us:
        return ended
    cause = find(log)
    return replace(
        ended,
        traceback_digest=cause.digest,
        error=annotation.storable(cause.error),
        error_rank=int64(cause.rank),
        error_code=int64(cause.code),
        error_signal=int64(cause.signal),
    )


def damage(pod: Pod) -> str:
    """Return a message about data of the pod that the operator rejected; empty when there is none."""
    ended = _ended(pod)
    record = termination_message.decode(ended.message) if ended is not None else None
    wrong = _wrong(record) if record is not None else ""
    if ended is not None and wrong:
        return f"its termination message is damaged: {wrong}; the exit code {ended.exit_code} of its container counts"
    if annotation.LEAVE in pod.metadata.annotations and annotation.read_leave(pod.metadata.annotations) is None:
        return f"its annotation {annotation.LEAVE} cannot be read and is ignored"
    return ""


def _wrong(record: dict[str, Any]) -> str:
    """Return which field of a termination message has an impossible value; empty when none has."""
    for name, (least, most) in _BOUNDS.items():
        value, number = record[name], int64(record[name])
        if value is None and name != "rank":
            continue
        if number is None or not least <= number <= most:
            return f"{name} is {_shown(value)}, which is not a number from {least} to {most}"
    return "" if isinstance(record["words"], str) else f"words is {_shown(record['words'])}, which is not text"


def _shown(value: object) -> str:
    """Quote a value from outside, shortened. The conversion of a very long integer raises."""
    try:
        return annotation.storable(repr(value))[:_SHOWN]
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__} that is too large to show"


def disruption(pod: Pod) -> str:
    """Return what ended the pod from outside; empty when its own program ended."""
    reason = pod.status.reason
    if reason in _DISRUPTED:
        return _DISRUPTED[reason] + (f" ({pod.status.message})" if pod.status.message else "")
    if reason.startswith("OutOf"):
        return f"its node {pod.spec.node_name} had no room for it when it arrived ({pod.status.message or reason})"
    ended = _ended(pod)
    if ended is not None and ended.reason == "ContainerStatusUnknown":
        return f"its node {pod.spec.node_name} came back without it"
    target = condition(pod.status.conditions, "DisruptionTarget")
    if target is not None and target.status == "True":
        return target.message or target.reason
    return "its pod was deleted by a user or another program" if _was_deleted_first(pod) else ""


def _was_deleted_first(pod: Pod) -> bool:
    """Whether the deletion was requested before the task ended, and so ended it."""
    limit = seconds(pod.metadata.deletion_timestamp)
    if limit is None:
        return False
    ended = _ended(pod)
    if ended is not None and ended.exit_code in _TOLD_TO_END:
        return True  # Its node's clock may differ from the API server's.
    requested = limit - (pod.metadata.deletion_grace_period_seconds or 0)
    finished = _finished(pod)
    # Both times are in whole seconds.
    return finished is None or finished >= requested - 1


def _ended(pod: Pod) -> ContainerTerminated | None:
    """Return the end that counts: that of the task's container, or else of an init step that failed."""
    for status in pod.status.container_statuses:
        if status.name == TASK and status.state.terminated is not None:
            return status.state.terminated
    failed = [status.state.terminated for status in pod.status.init_container_statuses]
    return next((end for end in failed if end is not None and end.exit_code != 0), None)


def _words(pod: Pod) -> str:
    """Return why the task waits or what it does; empty when there is nothing to report."""
    if not pod.spec.node_name:
        return pod_cause.words(pod)
    if pod.status.phase == "Failed":
        failing = next((status for status in pod.status.init_container_statuses if _failed(status)), None)
        return f"{_STEPS.get(failing.name, _STEP)}: {_last_words(failing)}" if failing is not None else ""
    if pod.status.phase != "Pending":
        return damage(pod) if not pod.over else ""
    return pod_cause.words(pod) or f"starts on {pod.spec.node_name}"


def _failed(status: ContainerStatus) -> bool:
    return status.state.terminated is not None and status.state.terminated.exit_code != 0


def _last_words(status: ContainerStatus) -> str:
    ended = status.state.terminated
    lines = ended.message.strip().splitlines() if ended is not None else []
    return lines[-1][:1000] if lines else f"exit code {ended.exit_code if ended is not None else '?'}"


def _devices(pod: Pod) -> tuple[str, ...] | None:
    text = pod.metadata.annotations.get(annotation.GPU_IDS)
    return tuple(text.split(",")) if text else None


def _started(pod: Pod) -> float | None:
    for status in pod.status.container_statuses:
        if status.name == TASK:
            state = status.state
            since = state.running.started_at if state.running else state.terminated.started_at if state.terminated else None
            return seconds(since)
    return None


def _finished(pod: Pod) -> float | None:
    ended = _ended(pod)
    return seconds(ended.finished_at) if ended is not None else None
