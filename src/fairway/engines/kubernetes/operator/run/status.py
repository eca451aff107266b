"""Builds the status of a TrainingJob object from its run: phase, reason, conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.timestamp import stamp
from fairway.state.fault import WorkFault
from fairway.state.job import JobState
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task
from fairway.views.text import phrase

STARTED = frozenset({JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED})


def status_of(
    job: JobState,
    tasks: Sequence[Task],
    generation: int,
    before: Mapping[str, Any],
    now: float,
    faults: Sequence[WorkFault] = (),
) -> dict[str, Any]:
    """Return the whole status. Conditions keep their time while they are unchanged. Faults make the condition `Degraded`."""
    current = [task for task in tasks if task.key.attempt >= job.attempt or not task.phase.over]
    running = sum(task.phase is TaskPhase.RUNNING for task in current)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "phase": job.phase.value,
        "reason": _reason(job),
        "message": _message(job),
        "ready": f"{running}/{len(current)}",
        "replicas": len(current),
        "readyReplicas": running,
        "selector": f"{annotation.RUN}={job.key.name}",
        "attempt": job.attempt,
        "restarts": job.restarts,
        "gpus": f"{sum(task.need.gpu for task in current if task.phase.holds_resources and task.node):g}",
        "progress": _progress(job),
        "conditions": [*_conditions(job, before, now), *_degraded(faults, before, now)],
    }
    if job.resume is not None:
        status["resumed"] = phrase.resume(job.resume)
    times = {"startTime": job.started, "finishTime": job.finished}
    return status | {name: stamp(at) for name, at in times.items() if at is not None}


def suspended(generation: int, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the status of an object that is suspended before it became a run."""
    words = "suspended: it starts when spec.suspend is false"
    condition = _condition("Suspended", "True", "Suspended", words, before, now)
    return {
        "observedGeneration": generation,
        "phase": JobPhase.STOPPED.value,
        "reason": "Suspended",
        "message": words,
        "conditions": [condition],
    }


def _progress(job: JobState) -> str:
    """Return `step 400, loss 0.31`, with the last checkpoint if there is one."""
    progress = job.progress
    parts = [f"step {progress.step}"] if progress.step is not None else []
    parts += [f"{name} {value:.4g}" for name, value in sorted(progress.last.items())]
    parts += [f"saved at {progress.checkpoint_step}"] if progress.checkpoint_step is not None else []
    return ", ".join(parts)


def refused(message: str, generation: int, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the status of an object whose document is refused."""
    condition = _condition("Failed", "True", "Refused", message, before, now)
    return {
        "observedGeneration": generation,
        "phase": JobPhase.FAILED.value,
        "reason": "Refused",
        "message": message,
        "conditions": [condition],
    }


def _reason(job: JobState) -> str:
    if job.hold is not None:
        return job.hold.reason
    return job.outcome.reason if job.outcome is not None else ""


def _message(job: JobState) -> str:
    if job.hold is not None:
        return job.hold.message
    return job.outcome.message if job.outcome is not None else ""


def _conditions(job: JobState, before: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    waits = job.hold is not None and job.phase is JobPhase.PENDING
    scheduled = "False" if waits else "True" if job.phase in STARTED or job.phase is JobPhase.STARTING else "Unknown"
    runs = "True" if job.phase is JobPhase.RUNNING else "False"
    conditions = [
        _condition("Scheduled", scheduled, _reason(job) if waits else "", _message(job) if waits else "", before, now),
        _condition("Running", runs, job.phase.value, "", before, now),
    ]
    if job.evictions:
        leaving = "True" if job.leaving is not None else "False"
        message = job.leaving.message if job.leaving is not None else f"made room {job.evictions} times"
        conditions.append(_condition("Preempted", leaving, "MakingRoom", message, before, now))
    if job.phase.over:
        conditions.append(_condition(job.phase.value, "True", _reason(job), _message(job), before, now))
    return conditions


def _degraded(faults: Sequence[WorkFault], before: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """Return the condition for work on the run that the operator fails at; `False` once it succeeds again."""
    text = "; ".join(fault.text for fault in faults)
    if faults:
        return [_condition("Degraded", "True", "Fault", text, before, now)]
    was = any(condition.get("type") == "Degraded" for condition in before.get("conditions", ()))
    return [_condition("Degraded", "False", "", "", before, now)] if was else []


def _condition(kind: str, status: str, reason: str, message: str, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    previous = next((condition for condition in before.get("conditions", ()) if condition.get("type") == kind), None)
    since = previous["lastTransitionTime"] if previous is not None and previous.get("status") == status else stamp(now)
    return {"type": kind, "status": status, "reason": _word(reason), "message": message, "lastTransitionTime": since}


def _word(reason: str) -> str:
    """Convert a reason to a word that begins with a capital letter, as the API requires: `time-slice` gives `TimeSlice`."""
    parts = [part for part in reason.replace("-", " ").replace("_", " ").split() if part]
    return "".join(part[0].upper() + part[1:] for part in parts) or "AsExpected"
