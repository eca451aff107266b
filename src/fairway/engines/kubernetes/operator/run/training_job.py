"""Reconciles TrainingJob objects and runs: an object becomes a run once, and its status shows the run's state. Level-triggered.

The uid of the object is a label of the run, so that an object which was deleted and created again is another run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from fairway.app.port.port import Clock
from fairway.app.submission import Submission
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.identity.caller import CALLER, named_by
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.event import EventRecorder
from fairway.engines.kubernetes.operator.run import status
from fairway.engines.kubernetes.operator.run.tensorboard import TensorBoardReconciler
from fairway.errors import DeniedError, FairwayError
from fairway.spec.job import RoleReplicas, TrainingJob
from fairway.spec.text.document import read_data
from fairway.state.event import RunEvent
from fairway.state.fault import WorkFault
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.phase import JobPhase, RunIntent
from fairway.state.task import Task
from fairway.units import names

log = logging.getLogger("fairway.operator")

UID = f"{annotation.DOMAIN}/uid"
STATUS_MANAGER = "fairway-operator-status"
UNNAMED = "an object that was created without Fairway names no user: use `fairway submit`"


_OVER = frozenset(phase.value for phase in JobPhase if phase.over)


class RunCommands(Protocol):
    """The operations of the application that the intake uses."""

    async def submit(self, submission: Submission) -> JobState:
        """Queue a run."""
        ...

    async def delete(self, key: JobKey) -> None:
        """Forget a run; one that is running is ended first."""
        ...

    async def stop(self, key: JobKey) -> JobState:
        """Request a run to save and end."""
        ...

    async def resume(self, key: JobKey) -> JobState:
        """Resume a run that was stopped."""
        ...

    async def resize(self, key: JobKey, sizes: Mapping[str, RoleReplicas]) -> JobState | None:
        """Change the sizes of a run's roles; None when the run is over."""
        ...

    def known(self, key: JobKey) -> JobState | None:
        """Return the run of that name."""
        ...

    def events(self, job: JobState) -> list[RunEvent]:
        """Return the events of the run."""
        ...

    def tasks(self, job: JobState) -> list[Task]:
        """Return every attempt of every task of the run."""
        ...

    def faults(self, job: JobState) -> tuple[WorkFault, ...]:
        """Return the faults of the run that persist at present."""
        ...


class TrainingJobReconciler:
    """Reconciles an object and its run; `look` is the work of a controller."""

    def __init__(
        self,
        client: ApiClient,
        objects: Informer[CustomObject],
        runs: RunCommands,
        clock: Clock,
        boards: TensorBoardReconciler,
        happenings: EventRecorder,
    ) -> None:
        self._client = client
        self._objects = objects
        self._runs = runs
        self._clock = clock
        self._boards = boards
        self._happenings = happenings

    async def look(self, key: str) -> float | None:
        """Create a run for a new object, end the run of a deleted one, and write the status."""
        namespace, _, name = key.partition("/")
        run = JobKey(namespace, name)
        custom, job = self._objects.get(key), self._runs.known(run)
        if job is not None and (custom is None or job.labels.get(UID) != custom.metadata.uid):
            if UID in job.labels:
                self._happenings.forget(job.labels[UID])
                await self._runs.delete(run)
            job = None
        if custom is None or custom.metadata.deletion_timestamp is not None:
            self._boards.forget(run)
            return None
        job = await self._take(custom) if job is None else await self._as_wished(custom, job)
        if job is None:
            return None
        address, again = await self._boards.look(job)
        self._happenings.tell(custom, self._runs.events(job))
        tasks = self._runs.tasks(job)
        faults = self._runs.faults(job)
        new_status = status.status_of(job, tasks, custom.metadata.generation, custom.status, self._clock.now(), faults)
        await self._tell(custom, new_status | ({"tensorboard": address} if address else {}))
        return again

    async def _take(self, found: CustomObject) -> JobState | None:
        """Submit the object's run, or report in its status why it is refused. A refused object is tried again when it changes."""
        if found.status.get("reason") == "Refused" and found.status.get("observedGeneration") == found.metadata.generation:
            return None
        if was_run(found) and found.status["phase"] in _OVER:
            return None  # An object becomes a run once: the record of this one has expired, or was lost.
        if found.spec_data().get("suspend"):
            await self._tell(found, status.suspended(found.metadata.generation, found.status, self._clock.now()))
            return None
        token = CALLER.set(named_by(found.metadata.annotations))
        try:
            return await self._runs.submit(submission_of(found))
        except FairwayError as error:
            if isinstance(error, errors.ApiError):
                raise  # The error does not concern the document; the object is reconciled again.
            if isinstance(error, DeniedError) and annotation.USER not in found.metadata.annotations:
                error.fix = f"{UNNAMED}, or {error.fix}"
            log.info("%s/%s is refused: %s", found.metadata.namespace, found.metadata.name, error)
            await self._tell(found, status.refused(str(error), found.metadata.generation, found.status, self._clock.now()))
            return None
        finally:
            CALLER.reset(token)

    async def _as_wished(self, found: CustomObject, known: JobState) -> JobState:
        """Stop the run while the object is suspended, and resume it when it no longer is."""
        suspend = bool(found.spec_data().get("suspend"))
        if suspend and not known.phase.over and known.intent is RunIntent.RUN:
            return await self._runs.stop(known.key)
        if not suspend and known.phase is JobPhase.STOPPED:
            known = await self._runs.resume(known.key)
        up_to_date = found.status.get("observedGeneration") == found.metadata.generation
        return known if up_to_date or known.phase.over else await self._sized_as_wished(found, known)

    async def _sized_as_wished(self, found: CustomObject, known: JobState) -> JobState:
        """Resize the run to what the object specifies: `/scale` and edits of `replicas` take effect on a running run."""
        try:
            roles = submission_of(found).document.spec.roles
        except FairwayError as error:
            # The API server accepted what our own checks refuse: the run continues unchanged.
            log.info("a change of %s is ignored: %s", known.key, error)
            return known
        sizes = {name: role.replicas for name, role in roles.items() if name in known.spec.roles}
        if all(known.spec.roles[name].replicas == size for name, size in sizes.items()):
            return known
        return await self._runs.resize(known.key, sizes) or known

    async def _tell(self, found: CustomObject, told: dict[str, Any]) -> None:
        if told == found.status:
            return
        body = {
            "apiVersion": api_resource.TRAINING_JOBS.api_version,
            "kind": api_resource.TRAINING_JOBS.kind,
            "metadata": {"name": found.metadata.name, "namespace": found.metadata.namespace, "uid": found.metadata.uid},
            "status": told,
        }
        await self._client.apply_status(api_resource.TRAINING_JOBS, body, manager=STATUS_MANAGER)


def was_run(found: CustomObject) -> bool:
    """Whether the object became a run, by its status. False for one that was refused, or suspended from the start."""
    status_ = found.status
    is_phase = status_.get("phase") in {phase.value for phase in JobPhase}
    return is_phase and "attempt" in status_ and status_.get("reason") not in ("Refused", "Suspended")


def submission_of(found: CustomObject) -> Submission:
    """Return the object's submission. Raises `FairwayError` with every mistake of the document."""
    metadata = found.metadata
    series, _ = names.split_run(metadata.name)
    labels = {**metadata.labels, UID: metadata.uid}
    plain = {
        "apiVersion": found.api_version or api_resource.TRAINING_JOBS.api_version,
        "kind": "TrainingJob",
        "metadata": {"name": series, "namespace": metadata.namespace, "labels": labels},
        "spec": _sized({name: value for name, value in found.spec_data().items() if name != "suspend"}),
    }
    document = read_data(plain, f"{metadata.namespace}/{metadata.name}")
    assert isinstance(document, TrainingJob)
    # Only the digest: the registry needs it to keep the code, and to record the origin of models.
    code = metadata.annotations.get(annotation.CODE, "").removeprefix(annotation.BLOB)
    origin = SubmissionOrigin(user=metadata.annotations.get(annotation.USER, ""), code_digest=code)
    return replace(Submission(document, origin), run=metadata.name)


def _sized(spec: dict[str, Any]) -> dict[str, Any]:
    """Apply the size that `/scale` wrote: elastic roles get this many replicas, within their bounds."""
    size = spec.pop("size", 0)
    if not size:
        return spec
    roles = {name: {**role, "replicas": _within(role.get("replicas", {}), size)} for name, role in spec["roles"].items()}
    return {**spec, "roles": roles}


def _within(replicas: dict[str, int], size: int) -> dict[str, int]:
    least, most = replicas.get("min", 1), replicas.get("max", 1)
    chosen = max(least, min(most, size))
    return replicas if least == most else {"min": chosen, "max": chosen}
