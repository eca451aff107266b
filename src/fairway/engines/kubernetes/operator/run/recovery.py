"""Rebuilds runs from TrainingJob objects and pods, without the record, so that they can be adopted.

An object holds the document, and its status holds the state of the run; the labels of a pod name its attempt. So an operator
whose record was lost starts no run a second time, and ends none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.app.loop.run_recovery import RecordedAttempt, UnreadableRunError
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import CustomObject, Pod
from fairway.engines.kubernetes.operator.engine import BY_RUN
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.engines.kubernetes.operator.pod import name
from fairway.engines.kubernetes.operator.pod import report as pod_report
from fairway.engines.kubernetes.operator.run.training_job import submission_of, was_run
from fairway.engines.kubernetes.timestamp import seconds
from fairway.errors import FairwayError
from fairway.state.job import JobKey, JobState, ResumePoint, RunOutcome
from fairway.state.phase import JobPhase, RunIntent
from fairway.state.task import TaskKey, TaskReport
from fairway.units import names

_STOPPED = frozenset({JobPhase.STOPPING, JobPhase.STOPPED})


class ClusterRunRecovery:
    """The `Kept` port over the objects of a cluster. Read-only."""

    def __init__(self, objects: Informer[CustomObject], pods: Informer[Pod], keeping: LogArchive) -> None:
        self._objects = objects
        self._pods = pods
        self._keeping = keeping

    def keys(self) -> list[JobKey]:
        """Return the runs that objects became."""
        return [JobKey(item.metadata.namespace, item.metadata.name) for item in self._objects if was_run(item)]

    def any(self) -> bool:
        """Whether there are traces of any run."""
        return bool(self.keys() or self._keeping.kept() or any(True for pod in self._pods if _key(pod) is not None))

    def path(self, key: JobKey) -> str:
        """Return the path of the run's logs in the operator's own volume."""
        return str(self._keeping.folder_of(key))

    def job(self, key: JobKey) -> JobState:
        """Return the run as its object describes it."""
        custom = self._objects.get(str(key))
        if custom is None or not was_run(custom):
            message = "there is no TrainingJob object of that name that became a run"
            raise UnreadableRunError(message)
        try:
            return job_of(custom)
        except (FairwayError, ValueError, TypeError) as error:
            message = f"its TrainingJob object cannot be read: {error}"
            raise UnreadableRunError(message) from error

    def attempts(self, key: JobKey) -> list[RecordedAttempt]:
        """Return the attempts that have a pod."""
        pods = self._pods.indexed(BY_RUN, str(key))
        return sorted((RecordedAttempt(task) for pod in pods if (task := _key(pod)) is not None), key=lambda attempt: attempt.key)

    async def reports(self, keys: Sequence[TaskKey]) -> list[TaskReport]:
        """Return reports from the pods of these tasks; the log of an ended pod is copied into the record first."""
        reports_ = []
        for key in keys:
            pod = self._pods.get(f"{key.namespace}/{name.pod_name(key)}")
            if pod is None:
                continue
            report = pod_report.report(key, pod)
            if report.phase.over:
                await self._keeping.keep(pod, key)
            reports_.append(report)
        return reports_

    def never_recorded(self, key: JobKey) -> bool:
        """Return False: before a submission is recorded, its only trace here is its object."""
        del key
        return False

    def running(self, key: JobKey) -> bool:
        """Whether a pod of the run has not ended."""
        return any(not pod.over for pod in self._pods.indexed(BY_RUN, str(key)))

    def reread(self, key: JobKey) -> None:
        """Do nothing: pods report their metrics once, so there is nothing to read again."""


def job_of(found: CustomObject) -> JobState:
    """Return the run that an object became, from its document and its status. Raises `FairwayError` and `ValueError`."""
    submission, status = submission_of(found), found.status
    phase = JobPhase(status["phase"])
    meta = submission.document.metadata
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    return JobState(
        key=JobKey(found.metadata.namespace, found.metadata.name),
        series=meta.name,
        number=names.split_run(found.metadata.name)[1] or 0,
        spec=submission.document.spec,
        origin=replace(submission.origin, spread=True),
        labels=dict(meta.labels),
        intent=RunIntent.STOP if phase in _STOPPED else RunIntent.RUN,
        phase=phase,
        attempt=int(status.get("attempt") or 0),
        restarts=int(status.get("restarts") or 0),
        created=seconds(found.metadata.creation_timestamp) or 0.0,
        started=seconds(status.get("startTime")),
        finished=seconds(status.get("finishTime")),
        outcome=RunOutcome(reason or "Completed", message) if phase.over else None,
        resume=ResumePoint() if status.get("resumed") else None,
    )


def _key(pod: Pod) -> TaskKey | None:
    return name.task_key(pod.metadata.namespace, pod.metadata.labels)
