"""The application for callers of the cluster's API: their commands change objects.

An object is the source of truth for a run and for a queue; `kubectl` shows the same. Before every change, an access review of the
API server must allow the caller to make it without Fairway, so that callers gain no rights through Fairway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fairway.app.application import Application
from fairway.app.idempotency import IdempotencyKey, IdempotentRequest
from fairway.app.port.port import ChangeSet
from fairway.app.submission import Submission, receipt_of
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.identity.caller import CALLER, noted
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.gang import GangCreator
from fairway.engines.kubernetes.operator.manifest.headless_service import service
from fairway.engines.kubernetes.record.access_right import AccessReviewer
from fairway.engines.kubernetes.record.front_proxy import MANAGER, PATIENCE, callers_key, review, sent_code
from fairway.engines.kubernetes.record.model import CallerDatasets, CallerModels
from fairway.engines.kubernetes.record.service import CallerServices
from fairway.errors import ConflictError, RefusedError, UnavailableError
from fairway.plan.action import BindGang
from fairway.plan.plan import EnginePlan
from fairway.spec.job import TrainingJob
from fairway.spec.queue import JobQueue
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.state.request_receipt import RequestReceipt
from fairway.units import names

_TRIES = 100
"""Maximum number of names tried for a run. A name is taken if an object of that name was created by hand."""


class CallerApplication(Application):
    """Shares the components of the operator's own application; its commands act on objects, on behalf of the caller."""

    def __init__(
        self,
        application: Application,
        client: ApiClient,
        objects: Informer[CustomObject],
        services: Informer[CustomObject],
        gangs: GangCreator,
        rights: AccessReviewer,
    ) -> None:
        self.__dict__.update(application.__dict__)
        if application.services is not None:
            self.services = CallerServices(application.services, client, services, rights)
        self.models = CallerModels(application.models, rights.held)
        self.dataset_commands = CallerDatasets(application.dataset_commands, rights.held)
        self._client = client
        self._rights = rights
        self._objects = objects
        self._gangs = gangs
        self._waiting: set[asyncio.Event] = set()
        objects.listen(lambda _key, _before, _now: self._tell())
        application.loop.watchers.changes.append(lambda _key: self._tell())

    # Commands

    async def _submit(
        self,
        asked: Sequence[Submission],
        queues: Sequence[Queue],
        user: str,
        once: IdempotentRequest,
        standing: Sequence[JobState | None] = (),
    ) -> list[JobState]:
        """Create an object for each submission, all or none, and wait until each is a run.

        With an idempotency key, the names are reserved before the first object is created: a repeated request finds what the
        first one created.
        """
        del user
        asked = [self._from_caller(submission) for submission in asked]
        for submission in asked:
            meta = submission.document.metadata
            await self._review("create", api_resource.TRAINING_JOBS, meta.namespace)
            self._check_means(submission)
        for queue in queues:
            await self._review("patch", api_resource.JOB_QUEUES, "", queue.name)
        for submission in asked:
            await self.preview(submission, queues)
        await self._take(queues)
        reserved = self._reserved(asked, once)
        made: list[CustomObject] = []
        try:
            for position, submission in enumerate(asked):
                made.append(await self._make(submission, queues, reserved, position, asked, once))
        except BaseException as error:  # All or none, also when the client disconnects.
            if once.key is not None and isinstance(error, UnavailableError):
                # The object may have been created all the same. The names stay reserved, and a repeated request will find out.
                raise
            await self._undo(made, once)
            raise
        try:
            runs = [await self._run_of(item) for item in made]
        except RefusedError:
            await self._undo(made, once)
            raise
        self._commit(receipt_of(once, standing, runs))
        return runs

    async def _undo(self, made: Sequence[CustomObject], once: IdempotentRequest) -> None:
        """Delete the created objects and forget the reserved names.

        A repeated request takes other names, since the deleted objects may take a while to disappear.
        """
        for item in made:
            await self._client.delete(
                api_resource.TRAINING_JOBS, item.metadata.name, item.metadata.namespace, uid=item.metadata.uid
            )
        self._commit(once.receipt(done=False))

    def _reserved(self, asked: Sequence[Submission], once: IdempotentRequest) -> list[str]:
        """Return the names of the runs: those that an earlier request with the same key reserved, or the next numbers."""
        if once.known is not None and len(once.known.made) == len(asked):
            return [name.partition("/")[2] for name in once.known.made]
        reserved = [self._next_name(submission) for submission in asked]
        self._reserve(asked, reserved, once)
        return reserved

    def _reserve(self, asked: Sequence[Submission], found: Sequence[str], once: IdempotentRequest) -> None:
        keys = [JobKey(submission.document.metadata.namespace, name) for submission, name in zip(asked, found, strict=True)]
        self._commit(once.receipt(keys, done=False))

    def _commit(self, receipts: tuple[RequestReceipt, ...]) -> None:
        if receipts:
            self.store.commit(ChangeSet(receipts=receipts))

    def _next_name(self, submission: Submission) -> str:
        meta = submission.document.metadata
        return f"{meta.name}-{self.store.next_number(meta.namespace, meta.name)}"

    async def publish(self, queues: Sequence[JobQueue]) -> None:
        """Apply queues as objects, which the scheduler reads."""
        for document in queues:
            await self._review("patch", api_resource.JOB_QUEUES, "", document.metadata.name)
        for document in queues:
            await self._client.apply(
                api_resource.JOB_QUEUES,
                document.model_dump(mode="json", by_alias=True, exclude_unset=True)
                | {"apiVersion": api_resource.JOB_QUEUES.api_version, "kind": api_resource.JOB_QUEUES.kind},
                manager=MANAGER,
            )

    async def stop(self, key: JobKey, *, now: bool = False) -> JobState:
        """Suspend the object and stop the run."""
        await self._review("patch", api_resource.TRAINING_JOBS, key.namespace, key.name)
        if key in self.loop.snapshot.jobs:
            await self._suspend(key, suspend=True)
        return await super().stop(key, now=now)

    async def resume(self, key: JobKey, request: IdempotencyKey | None = None) -> JobState:
        """Resume the object and its run."""
        await self._review("patch", api_resource.TRAINING_JOBS, key.namespace, key.name)
        return await super().resume(key, request)

    async def _resume(self, key: JobKey, once: IdempotentRequest) -> JobState:
        job = self.find(key.namespace, key.name)
        if job.phase not in (JobPhase.STOPPED, JobPhase.FAILED):
            return await super()._resume(key, once)  # which raises the reason
        await self._suspend(key, suspend=False)
        try:
            return await super()._resume(key, once)
        except ConflictError:
            # The controller of the objects was faster.
            self._commit(once.receipt([key]))
            return self.find(key.namespace, key.name)

    async def delete(self, key: JobKey) -> None:
        """Delete the object; its run is deleted with it."""
        await self._review("delete", api_resource.TRAINING_JOBS, key.namespace, key.name)
        if not await self._client.delete(api_resource.TRAINING_JOBS, key.name, key.namespace):
            await super().delete(key)
            return
        deleted = await self._until(lambda: self.store.get_job(key) is None and key not in self.loop.snapshot.jobs)
        if not deleted:
            message = f"{key.name} is being deleted, and its pods take long to end"
            raise UnavailableError(message, fix=f"`kubectl -n {key.namespace} get pods` shows the remaining pods")

    # Queries

    def standing(self, submission: Submission, queues: Sequence[Queue] = ()) -> JobState | None:
        """Return the newest run of the series, if its document is the same."""
        return super().standing(self._from_caller(submission), queues)

    async def preview(self, submission: Submission, queues: Sequence[Queue] = ()) -> EnginePlan:
        """Return what a submit would do now, under the first name that the run could get."""
        submission = self._from_caller(submission)
        meta = submission.document.metadata
        # Checked before any lookup that could reveal to the caller that something exists.
        await self._rights.check_reads(CALLER.get(), meta.namespace, submission.document.spec.data)
        newest = self.store.newest(meta.namespace, meta.name)
        number = (names.split_run(newest.key.name)[1] or 0) + 1 if newest is not None else 1
        return await super().preview(replace(submission, run=f"{meta.name}-{number}"), queues)

    def objects_of(self, plan: EnginePlan) -> tuple[dict[str, object], ...]:
        """Return what would be created: the object itself, the Service of its pods, the pods."""
        manifests: list[dict[str, Any]] = []
        for job in plan.jobs:
            meta = {"name": job.series, "namespace": job.key.namespace, "labels": job.labels}
            document = TrainingJob.model_validate({"metadata": meta, "spec": job.spec})
            # The user is left out: others may apply the output, and only the operator may write the user of an object.
            manifests += [_object(document, job.key.name, job.origin, {}), service(job.key)]
            for action in plan.actions:
                if isinstance(action, BindGang) and action.job.key == job.key:
                    manifests += self._gangs.manifests(action)
        return tuple(manifests)

    # Parts

    async def _take(self, queues: Sequence[Queue]) -> None:
        """Register the queues at once: runs that name them may arrive before the watch shows their objects."""
        async with self.loop.lock:
            changes = self.queues.changes(queues, CALLER.get().user)
            self.store.commit(changes)
            self.queues.take(changes)

    async def _review(self, verb: str, resource: ApiResource[Any], namespace: str, name: str = "") -> None:
        await review(self._client, CALLER.get(), verb, resource, namespace, name)

    def _asked_by(self, key: IdempotencyKey | None) -> IdempotencyKey | None:
        """Return the key with the caller that the API server authenticated."""
        return callers_key(key)

    def _as_asked(self, submission: Submission) -> Submission:
        """Return the submission as it would be recorded.

        Code that is packed again has another digest; the document is the same.
        """
        return self._from_caller(submission)

    @staticmethod
    def _from_caller(submission: Submission) -> Submission:
        """Set the authenticated caller, whatever the request contains, and drop what names the caller's machine."""
        document = submission.document
        code = sent_code(document.spec.code.path, submission.origin.code_digest)
        if document.spec.code.path.startswith(annotation.BLOB):
            # Code that was sent before; the run uses it as its working folder.
            spec = document.spec.model_copy(update={"code": document.spec.code.model_copy(update={"path": "."})})
            document = document.model_copy(update={"spec": spec})
        return replace(
            submission, document=document, origin=SubmissionOrigin(CALLER.get().user, code_digest=code), environment=None
        )

    @staticmethod
    def _check_means(submission: Submission) -> None:
        """Refuse what exists only on the caller's own machine."""
        if submission.document.spec.code.in_place:
            message = f"{submission.document.metadata.name} would run in a folder of your machine, which a cluster does not have"
            raise RefusedError(message, fix="omit --in-place: then a copy of the folder is sent")
        if submission.files:
            message = "a Python function cannot be sent to a cluster"
            raise RefusedError(message, fix="submit its program: fairway submit -- python train.py")

    async def _make(
        self,
        submission: Submission,
        queues: Sequence[Queue],
        reserved: list[str],
        place: int,
        asked: Sequence[Submission],
        once: IdempotentRequest,
    ) -> CustomObject:
        """Create the object of one submission under its reserved name, or under another where that is taken."""
        meta = submission.document.metadata
        members = {member for queue in (*self.queues.all(), *queues) for member in queue.members}
        # The groups by which the caller may read the run's inputs: the operator checks the object's reads against them later,
        # too.
        groups = await self._rights.granting(CALLER.get(), meta.namespace, submission.document.spec.data)
        for _ in range(_TRIES):
            try:
                annotations = noted(CALLER.get(), members, groups)
                body = _object(submission.document, reserved[place], submission.origin, annotations, once.id)
                return await self._client.create(api_resource.TRAINING_JOBS, body, meta.namespace)
            except errors.AlreadyExists:
                existing = await self._made_before_by(once, reserved[place], meta.namespace)
                if existing is not None:
                    return existing
                reserved[place] = self._next_name(submission)
                self._reserve(asked, reserved, once)
        message = f"the next {_TRIES} run names of {meta.name} in {meta.namespace} are taken by other objects"
        raise ConflictError(message, fix="choose another name")

    async def _made_before_by(self, once: IdempotentRequest, name: str, namespace: str) -> CustomObject | None:
        """Return the object of that name if an earlier request with the same key created it and it is not being deleted."""
        # A list request, because the operator has the permission to list objects but not to get one.
        listed = await self._client.list(api_resource.TRAINING_JOBS, namespace, fields=f"metadata.name={name}")
        for item in listed.items:
            if once.id and item.metadata.annotations.get(annotation.REQUEST) == once.id and not item.metadata.deletion_timestamp:
                return item
        return None

    async def _run_of(self, made: CustomObject) -> JobState:
        """Wait until the object has become a run and return it."""
        key = JobKey(made.metadata.namespace, made.metadata.name)

        def refusal() -> str:
            current = self._objects.get(str(key))
            return str(current.status["message"]) if current is not None and current.status.get("reason") == "Refused" else ""

        decided = await self._until(lambda: self.store.get_job(key) is not None or bool(refusal()))
        if refusal():
            await self._client.delete(api_resource.TRAINING_JOBS, key.name, key.namespace, uid=made.metadata.uid)
            raise RefusedError(refusal())
        if not decided:
            message = f"{key.name} was created, but did not become a run within {PATIENCE:g} s"
            raise UnavailableError(message, fix=f"`kubectl -n {key.namespace} describe trainingjob {key.name}` shows more")
        return self.find(key.namespace, key.name)

    async def _suspend(self, key: JobKey, *, suspend: bool) -> None:
        change = [{"op": "add", "path": "/spec/suspend", "value": suspend}]
        await self._client.patch(api_resource.TRAINING_JOBS, key.name, key.namespace, change)

    def _tell(self) -> None:
        for event in self._waiting:
            event.set()

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Wait until the condition holds. Returns False after a timeout."""
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    await news.wait()
                    news.clear()
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(news)
        return True


def _object(
    document: TrainingJob, run: str, origin: SubmissionOrigin, asked: dict[str, str], request: str = ""
) -> dict[str, Any]:
    """Return the TrainingJob object of a document, named as its run.

    `asked`: annotations with the user; `request`: the key's id.
    """
    plain = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    annotations = {**asked, annotation.CODE: origin.code_digest, annotation.REQUEST: request}
    return {
        "apiVersion": api_resource.TRAINING_JOBS.api_version,
        "kind": api_resource.TRAINING_JOBS.kind,
        "metadata": {
            "name": run,
            "namespace": document.metadata.namespace,
            "labels": dict(document.metadata.labels),
            "annotations": {name: value for name, value in annotations.items() if value},
        },
        "spec": plain["spec"],
    }
