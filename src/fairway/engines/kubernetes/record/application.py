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
from fairway.app.submission import Submission
from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.objects import Custom
from fairway.engines.kubernetes.operator.gangs import Gangs
from fairway.engines.kubernetes.operator.manifests.service import service
from fairway.engines.kubernetes.people import CALLER, noted
from fairway.engines.kubernetes.record.callers import MANAGER, PATIENCE, review, sent_code
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
        application.loop.changes.append(lambda _key: self._tell())

    # Commands

    async def submit_all(self, asked: Sequence[Submission], queues: Sequence[Queue] = (), user: str = "") -> list[Job]:
        """Make an object of each, all or none, and wait until each is a run."""
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
        made: list[Custom] = []
        try:
            for submission in asked:
                made.append(await self._make(submission, queues))
        except BaseException:  # All or none, also when whoever asks hangs up.
            for one in made:
                await self._client.delete(kinds.TRAINING_JOBS, one.metadata.name, one.metadata.namespace, uid=one.metadata.uid)
            raise
        return [await self._run_of(one) for one in made]

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

    async def resume(self, key: JobKey) -> Job:
        """Let the object go on, and its run with it."""
        await self._review("patch", kinds.TRAINING_JOBS, key.namespace, key.name)
        job = self.find(key.namespace, key.name)
        if job.phase not in (JobPhase.STOPPED, JobPhase.FAILED):
            return await super().resume(key)  # which says why not
        await self._suspend(key, suspend=False)
        try:
            return await super().resume(key)
        except ConflictError:
            # Whoever follows the objects was quicker.
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

    async def _make(self, submission: Submission, queues: Sequence[Queue]) -> Custom:
        meta = submission.document.metadata
        members = {member for queue in (*self.queues.all(), *queues) for member in queue.members}
        # By which groups the caller may read what the run reads: the object is asked about that later, too.
        groups = await self._rights.granting(CALLER.get(), meta.namespace, submission.document.spec.data)
        for _ in range(_TRIES):
            run = f"{meta.name}-{self.store.next_number(meta.namespace, meta.name)}"
            try:
                body = _object(submission.document, run, submission.origin, noted(CALLER.get(), members, groups))
                return await self._client.create(kinds.TRAINING_JOBS, body, meta.namespace)
            except errors.AlreadyExists:
                continue
        message = f"{_TRIES} runs of {meta.name} in {meta.namespace} are there that Fairway did not number"
        raise ConflictError(message, fix="choose another name")

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


def _object(document: TrainingJob, run: str, origin: Origin, asked: dict[str, str]) -> dict[str, Any]:
    """The object that a document means, named as its run, with who `asked` for it."""
    plain = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    annotations = {**asked, marks.CODE: origin.code_digest}
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
