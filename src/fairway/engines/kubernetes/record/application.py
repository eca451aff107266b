"""The application as callers of the cluster's API have it: what they change, they change in objects.

An object is the truth of a run and of a queue; `kubectl` sees the same. Before anything is changed the API server is asked
whether the caller could do it without us, so that nobody gets through us what they would be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fairway.app.application import Application
from fairway.app.ports import Changes
from fairway.app.receipt import Once, RequestKey
from fairway.app.submission import Submission, receipt_of
from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.objects import Custom
from fairway.engines.kubernetes.operator.gangs import Gangs
from fairway.engines.kubernetes.operator.manifests.service import service
from fairway.engines.kubernetes.people import CALLER, noted
from fairway.engines.kubernetes.record.callers import MANAGER, PATIENCE, callers_key, review, sent_code
from fairway.engines.kubernetes.record.registering import CallersDatasets, CallersModels
from fairway.engines.kubernetes.record.rights import Rights
from fairway.engines.kubernetes.record.services import CallersServices
from fairway.errors import ConflictError, RefusedError, UnavailableError
from fairway.plan.action import BindGang
from fairway.plan.plan import Plan
from fairway.spec.job import TrainingJob
from fairway.spec.queue import JobQueue
from fairway.state.job import Job, JobKey, Origin
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.state.receipt import Receipt
from fairway.units import names

_TRIES = 100
"""Names that are tried for a run; those before are of objects that somebody made by hand."""


class CallersApplication(Application):
    """The same parts as the operator's own; commands act on objects, in the name of whoever asks."""

    def __init__(
        self,
        application: Application,
        client: Client,
        objects: Mirror[Custom],
        services: Mirror[Custom],
        gangs: Gangs,
        rights: Rights,
    ) -> None:
        self.__dict__.update(application.__dict__)
        if application.services is not None:
            self.services = CallersServices(application.services, client, services, rights)
        self.models = CallersModels(application.models, rights.held)
        self.dataset_commands = CallersDatasets(application.dataset_commands, rights.held)
        self._client = client
        self._rights = rights
        self._objects = objects
        self._gangs = gangs
        self._waiting: set[asyncio.Event] = set()
        objects.listen(lambda _key, _before, _now: self._tell())
        application.loop.watchers.changes.append(lambda _key: self._tell())

    # Commands

    async def _submit(
        self, asked: Sequence[Submission], queues: Sequence[Queue], user: str, once: Once, standing: Sequence[Job | None] = ()
    ) -> list[Job]:
        """Make an object of each, all or none, and wait until each is a run.

        With a key the names are reserved before the first object is made: the same request again finds what was made by it.
        """
        del user
        asked = [self._from_caller(submission) for submission in asked]
        for submission in asked:
            meta = submission.document.metadata
            await self._review("create", kinds.TRAINING_JOBS, meta.namespace)
            self._check_means(submission)
        for queue in queues:
            await self._review("patch", kinds.JOB_QUEUES, "", queue.name)
        for submission in asked:
            await self.preview(submission, queues)
        await self._take(queues)
        reserved = self._reserved(asked, once)
        made: list[Custom] = []
        try:
            for place, submission in enumerate(asked):
                made.append(await self._make(submission, queues, reserved, place, asked, once))
        except BaseException as error:  # All or none, also when the client hangs up.
            if once.key is not None and isinstance(error, UnavailableError):
                # It may have been made all the same. The names stay reserved, and the same request again finds out.
                raise
            await self._undo(made, once)
            raise
        try:
            runs = [await self._run_of(one) for one in made]
        except RefusedError:
            await self._undo(made, once)
            raise
        self._commit(receipt_of(once, standing, runs))
        return runs

    async def _undo(self, made: Sequence[Custom], once: Once) -> None:
        """Delete what was made, and take other names next time: what had these may be on its way out for a while."""
        for one in made:
            await self._client.delete(kinds.TRAINING_JOBS, one.metadata.name, one.metadata.namespace, uid=one.metadata.uid)
        self._commit(once.receipt(done=False))

    def _reserved(self, asked: Sequence[Submission], once: Once) -> list[str]:
        """The names of the runs: those that an earlier request with the same key took, or the next numbers."""
        if once.known is not None and len(once.known.made) == len(asked):
            return [name.partition("/")[2] for name in once.known.made]
        found = [self._next_name(submission) for submission in asked]
        self._reserve(asked, found, once)
        return found

    def _reserve(self, asked: Sequence[Submission], found: Sequence[str], once: Once) -> None:
        keys = [JobKey(submission.document.metadata.namespace, name) for submission, name in zip(asked, found, strict=True)]
        self._commit(once.receipt(keys, done=False))

    def _commit(self, receipts: tuple[Receipt, ...]) -> None:
        if receipts:
            self.store.commit(Changes(receipts=receipts))

    def _next_name(self, submission: Submission) -> str:
        meta = submission.document.metadata
        return f"{meta.name}-{self.store.next_number(meta.namespace, meta.name)}"

    async def publish(self, queues: Sequence[JobQueue]) -> None:
        """Make queues objects, which the scheduler reads."""
        for document in queues:
            await self._review("patch", kinds.JOB_QUEUES, "", document.metadata.name)
        for document in queues:
            await self._client.apply(
                kinds.JOB_QUEUES,
                document.model_dump(mode="json", by_alias=True, exclude_unset=True)
                | {"apiVersion": kinds.JOB_QUEUES.api_version, "kind": kinds.JOB_QUEUES.kind},
                manager=MANAGER,
            )

    async def stop(self, key: JobKey, *, now: bool = False) -> Job:
        """Suspend the object; the run ends as it does here."""
        await self._review("patch", kinds.TRAINING_JOBS, key.namespace, key.name)
        if key in self.loop.snapshot.jobs:
            await self._suspend(key, suspend=True)
        return await super().stop(key, now=now)

    async def resume(self, key: JobKey, request: RequestKey | None = None) -> Job:
        """Let the object go on, and its run with it."""
        await self._review("patch", kinds.TRAINING_JOBS, key.namespace, key.name)
        return await super().resume(key, request)

    async def _resume(self, key: JobKey, once: Once) -> Job:
        job = self.find(key.namespace, key.name)
        if job.phase not in (JobPhase.STOPPED, JobPhase.FAILED):
            return await super()._resume(key, once)  # which says why not
        await self._suspend(key, suspend=False)
        try:
            return await super()._resume(key, once)
        except ConflictError:
            # Whoever follows the objects was quicker.
            self._commit(once.receipt([key]))
            return self.find(key.namespace, key.name)

    async def delete(self, key: JobKey) -> None:
        """Delete the object; the run goes with it."""
        await self._review("delete", kinds.TRAINING_JOBS, key.namespace, key.name)
        if not await self._client.delete(kinds.TRAINING_JOBS, key.name, key.namespace):
            await super().delete(key)
            return
        gone = await self._until(lambda: self.store.get_job(key) is None and key not in self.loop.snapshot.jobs)
        if not gone:
            message = f"{key.name} is being deleted, and its pods take long to end"
            raise UnavailableError(message, fix=f"`kubectl -n {key.namespace} get pods` shows what is left")

    # Queries

    def standing(self, submission: Submission, queues: Sequence[Queue] = ()) -> Job | None:
        """The newest run of the series, when it asks for the same."""
        return super().standing(self._from_caller(submission), queues)

    async def preview(self, submission: Submission, queues: Sequence[Queue] = ()) -> Plan:
        """What a submit would do now, under the name that the run would get at the earliest."""
        submission = self._from_caller(submission)
        meta = submission.document.metadata
        # Before anything is looked up that the caller may not even know of.
        await self._rights.check_reads(CALLER.get(), meta.namespace, submission.document.spec.data)
        newest = self.store.newest(meta.namespace, meta.name)
        number = (names.split_run(newest.key.name)[1] or 0) + 1 if newest is not None else 1
        return await super().preview(replace(submission, run=f"{meta.name}-{number}"), queues)

    def objects_of(self, plan: Plan) -> tuple[dict[str, object], ...]:
        """What would be made: the object itself, the Service by which pods find each other, the pods."""
        found: list[dict[str, Any]] = []
        for job in plan.jobs:
            meta = {"name": job.series, "namespace": job.key.namespace, "labels": job.labels}
            document = TrainingJob.model_validate({"metadata": meta, "spec": job.spec})
            # Who asks is left out: what is printed may be applied by others, and nobody but us may say who asked.
            found += [_object(document, job.key.name, job.origin, {}), service(job.key)]
            for action in plan.actions:
                if isinstance(action, BindGang) and action.job.key == job.key:
                    found += self._gangs.manifests(action)
        return tuple(found)

    # Parts

    async def _take(self, queues: Sequence[Queue]) -> None:
        """Know them at once: the runs that name them come before the news of their objects."""
        async with self.loop.lock:
            changes = self.queues.changes(queues, CALLER.get().user)
            self.store.commit(changes)
            self.queues.take(changes)

    async def _review(self, verb: str, resource: Resource[Any], namespace: str, name: str = "") -> None:
        await review(self._client, CALLER.get(), verb, resource, namespace, name)

    def _asked_by(self, key: RequestKey | None) -> RequestKey | None:
        """With the caller that the API server vouches for."""
        return callers_key(key)

    def _as_asked(self, submission: Submission) -> Submission:
        """Code that is packed anew has another digest; it is the same document all the same."""
        return self._from_caller(submission)

    @staticmethod
    def _from_caller(submission: Submission) -> Submission:
        """As the API server knows the caller, whatever the request says; of the caller's machine nothing is left."""
        document = submission.document
        code = sent_code(document.spec.code.path, submission.origin.code_digest)
        if document.spec.code.path.startswith(marks.BLOB):
            # Code that was sent before; in the run it is the folder that it works in.
            spec = document.spec.model_copy(update={"code": document.spec.code.model_copy(update={"path": "."})})
            document = document.model_copy(update={"spec": spec})
        return replace(submission, document=document, origin=Origin(CALLER.get().user, code_digest=code), environment=None)

    @staticmethod
    def _check_means(submission: Submission) -> None:
        """What only the caller's own machine has cannot be used on another."""
        if submission.document.spec.code.in_place:
            message = f"{submission.document.metadata.name} would run in a folder of your machine, which a cluster has not"
            raise RefusedError(message, fix="leave --in-place out: a copy of the folder goes along")
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
        once: Once,
    ) -> Custom:
        """The object of one submission under the name reserved for it; under another where that is taken."""
        meta = submission.document.metadata
        members = {member for queue in (*self.queues.all(), *queues) for member in queue.members}
        # By which groups the caller may read what the run reads: the object is asked about that later, too.
        groups = await self._rights.granting(CALLER.get(), meta.namespace, submission.document.spec.data)
        for _ in range(_TRIES):
            try:
                who = noted(CALLER.get(), members, groups)
                body = _object(submission.document, reserved[place], submission.origin, who, once.id)
                return await self._client.create(kinds.TRAINING_JOBS, body, meta.namespace)
            except errors.AlreadyExists:
                found = await self._made_before_by(once, reserved[place], meta.namespace)
                if found is not None:
                    return found
                reserved[place] = self._next_name(submission)
                self._reserve(asked, reserved, once)
        message = f"{_TRIES} runs of {meta.name} in {meta.namespace} are there that Fairway did not number"
        raise ConflictError(message, fix="choose another name")

    async def _made_before_by(self, once: Once, name: str, namespace: str) -> Custom | None:
        """The object of that name, when an earlier request with the same key made it and it stays."""
        # A list, because the operator may list objects and not get one.
        there = await self._client.list(kinds.TRAINING_JOBS, namespace, fields=f"metadata.name={name}")
        for found in there.items:
            if once.id and found.metadata.annotations.get(marks.REQUEST) == once.id and not found.metadata.deletion_timestamp:
                return found
        return None

    async def _run_of(self, made: Custom) -> Job:
        """The run that the object has become."""
        key = JobKey(made.metadata.namespace, made.metadata.name)

        def refusal() -> str:
            found = self._objects.get(str(key))
            return str(found.status["message"]) if found is not None and found.status.get("reason") == "Refused" else ""

        known = await self._until(lambda: self.store.get_job(key) is not None or bool(refusal()))
        if refusal():
            await self._client.delete(kinds.TRAINING_JOBS, key.name, key.namespace, uid=made.metadata.uid)
            raise RefusedError(refusal())
        if not known:
            message = f"{key.name} is made, and has not become a run within {PATIENCE:g} s"
            raise UnavailableError(message, fix=f"`kubectl -n {key.namespace} describe trainingjob {key.name}` says more")
        return self.find(key.namespace, key.name)

    async def _suspend(self, key: JobKey, *, suspend: bool) -> None:
        change = [{"op": "add", "path": "/spec/suspend", "value": suspend}]
        await self._client.patch(kinds.TRAINING_JOBS, key.name, key.namespace, change)

    def _tell(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Whether it came to hold before the patience ended."""
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


def _object(document: TrainingJob, run: str, origin: Origin, asked: dict[str, str], request: str = "") -> dict[str, Any]:
    """The object that a document means, named as its run, with who `asked` for it, and in which request with a key."""
    plain = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    annotations = {**asked, marks.CODE: origin.code_digest, marks.REQUEST: request}
    return {
        "apiVersion": kinds.TRAINING_JOBS.api_version,
        "kind": kinds.TRAINING_JOBS.kind,
        "metadata": {
            "name": run,
            "namespace": document.metadata.namespace,
            "labels": dict(document.metadata.labels),
            "annotations": {name: value for name, value in annotations.items() if value},
        },
        "spec": plain["spec"],
    }
