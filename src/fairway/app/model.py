"""Use cases of models: outputs of jobs become versions; commands and queries on versions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairway.app.idempotency import IdempotencyKey, ReceiptBook
from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.model_store import ModelStore
from fairway.app.port.port import ChangeSet, DatasetStore, JobFilter
from fairway.app.upload import UploadedContent, not_here
from fairway.app.verification_progress import VerificationProgress
from fairway.errors import BugError, ConflictError, FairwayError, NotFoundError, UnavailableError, UsageError
from fairway.plan.model import DATASET_OUTPUT, OUTPUT, facts_of, leaves_something, must_stay, registered_name, superfluous
from fairway.state.content_check import ContentVerification
from fairway.state.dataset import DatasetVersion
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.mlflow_record import TrackedRun
from fairway.state.model import ModelFacts, ModelFile, ModelVersion
from fairway.state.phase import JobPhase

RETRY_AFTER = 30.0
"""Delay before a registration that failed for lack of disk space is retried, in seconds."""

FREE_AFTER = 1.0
"""Delay before the space of deleted versions is freed, or before the attempt is repeated while another process writes, in
seconds.
"""

NOT_REGISTERED = "NotRegistered"
"""The event of a run whose output is not a model."""
_PAGE = 1000

log = logging.getLogger("fairway.models")


@dataclass(frozen=True, slots=True)
class ModelRegistration:
    """A registration, with the facts that its author provides."""

    name: str
    source: str
    """An absolute path; for an import, any URI."""
    facts: ModelFacts = field(default_factory=ModelFacts)
    run: JobKey | None = None
    """The run that it comes from: its lineage and last metrics are copied."""
    imported: bool = False
    """Whether the source is recorded as the origin."""
    manifest: str = ""
    """The digest of the content uploaded before, if the source is on another machine."""
    made_here: bool = False
    """Whether the caller has verified that the source is the unchanged output of the run. Clients cannot set this."""
    namespace: str = "default"
    """The namespace in which `name` is resolved."""


class ModelUseCases:
    """The use cases of models, on one loop. Queries are answered after the outputs of finished runs are registered."""

    def __init__(self, loop: ReconcileLoop, store: ModelStore | None, datasets: DatasetStore) -> None:
        self._loop = loop
        self._kept = store
        self._datasets = datasets
        self._lock = asyncio.Lock()
        self._receipts = ReceiptBook(loop.store, loop.clock)
        self._background: set[asyncio.Task[None]] = set()
        self._freeing = False
        self.output_of: Callable[[JobKey, str], str] = _nowhere
        """Return the folder of a run's output; set by the code that creates the engine."""
        self.in_use: Callable[[ModelVersion], str] = lambda _version: ""
        """Describe what uses a version now; empty if it is unused. Set by the code that serves models."""
        self.batching: Callable[[ModelVersion], str] = lambda _version: ""
        """Describe whether replicas batch requests to a version and why; empty if not known."""
        if store is not None:
            loop.watchers.over.append(self._note_end)

    # Outputs of runs

    def expect(self, jobs: Iterable[JobState]) -> None:
        """Record, before a run is stored, that it may produce a model, so that no crash loses the output."""
        for job in jobs:
            if leaves_something(job.spec) and self._kept is not None:
                self._kept.expect(str(job.key))

    async def start(self) -> None:
        """Register outputs of runs that ended while the daemon was down, and free the space of deleted versions."""
        if self._kept is None:
            return
        for run in self._kept.expected():
            # A run without a record: the daemon died in the middle of a submit.
            if not self._loop.store.has_job(_key(run)):
                self._kept.settle(run)
        self.free_soon()
        self._begin()

    async def catch_up(self) -> None:
        """Register the outputs of finished runs, each exactly once, even after a crash in between."""
        if self._kept is None:
            return
        async with self._lock:
            for run in self._kept.expected():
                with self._loop.faults.contain(run, "register output"):
                    await self._catch_up(self._kept, run)
        if any(fault.work == "register output" for fault in self._loop.faults.all()):
            asyncio.get_running_loop().call_later(RETRY_AFTER, self._begin)

    async def _catch_up(self, kept: ModelStore, run: str) -> None:
        job = self._loop.store.get_job(_key(run))
        if job is None or not job.phase.over:
            return
        if job.phase is not JobPhase.SUCCEEDED or await self._registered(job):
            kept.settle(run)

    def of_job(self, job: JobState) -> tuple[ModelVersion, ...]:
        """Return the version that was created from the output of a run, if there is one."""
        if self._kept is None or not registered_name(job.spec) or job.phase is not JobPhase.SUCCEEDED:
            return ()
        try:
            version = self._kept.of_run(self._kept.own(registered_name(job.spec), job.key.namespace), str(job.key))
        except FairwayError:
            # The name is invalid: its refusal is an event of the run.
            return ()
        return (version,) if version is not None else ()

    def refusal(self, job: JobState) -> str:
        """Return why a successful run produced no version; empty if it did, or if it names no model."""
        if self._kept is None or not registered_name(job.spec) or job.phase is not JobPhase.SUCCEEDED:
            return ""
        messages = [event.message for event in self._loop.store.events_of(str(job.key)) if event.reason == NOT_REGISTERED]
        return messages[-1] if messages else ""

    # Commands

    async def register(self, asked: ModelRegistration, request: IdempotencyKey | None = None) -> ModelVersion:
        """Store files as the next version of a model; the content and facts of the newest version again return that version.

        With an idempotency key, at most once.
        """
        async with self._receipts.once(self._asked_by(request), "register", repr(asked)) as once:
            if once.over and once.known is not None:
                return self._store.get(once.known.made[0])
            version = await self._register(asked)
            if once.key is not None:
                self._loop.store.commit(ChangeSet(receipts=once.receipt([version])))
            return version

    def _asked_by(self, key: IdempotencyKey | None) -> IdempotencyKey | None:
        """Return the idempotency key in its stored form; an override adds the authenticated user where there is one."""
        return key

    async def _register(self, asked: ModelRegistration) -> ModelVersion:
        name = self._store.own(asked.name, asked.namespace)
        facts, now = await self._facts(asked), self._now()
        content = await self._content(asked)
        version = await asyncio.to_thread(self._store.register, name, content, facts, now)
        if version.created == now:
            by = f", sent by {content.owner}" if isinstance(content, UploadedContent) else ""
            self._record(version, "ModelRegistered", f"{version} from {asked.source}{by}")
        return version

    async def preview(self, asked: ModelRegistration) -> str:
        """Return the format that a registration would detect; raises its errors, and stores nothing."""
        return await asyncio.to_thread(self._store.examine, asked.source, await self._facts(asked))

    async def promote(self, reference: str, alias: str) -> tuple[ModelVersion, int | None]:
        """Point an alias to a version; return the version, and the number of the version that the alias referred to before."""
        version = await self.get(reference)
        before = self._store.promote(version, alias)
        if before != version.version:
            was = f", before it was {version.name}@{before}" if before is not None else ""
            self._record(version, "ModelPromoted", f"{version} is {alias}{was}")
        return self._store.get(str(version)), before

    async def demote(self, reference: str, alias: str) -> int:
        """Remove an alias; return the number of its version. If the reference names a version, the alias must refer to it."""
        version = await self.get(reference)
        if "@" in reference and alias not in version.aliases:
            message = f"{version} does not have the alias {alias}; its aliases: {', '.join(version.aliases) or 'none'}"
            raise ConflictError(
                message, fix=f"fairway model list {version.name} shows which version has it; or name the model without a version"
            )
        number = self._store.demote(version.name, alias)
        self._record(version, "ModelDemoted", f"{version.name}@{number} is no longer {alias}")
        return number

    async def tag(self, reference: str, tags: Mapping[str, str | None]) -> ModelVersion:
        """Set tags on a version; None removes one."""
        return self._store.tag(await self.get(reference), tags)

    async def delete(self, reference: str) -> ModelVersion:
        """Delete a version; refused while an alias refers to it or a service uses it."""
        version = await self.check_delete(reference)
        await asyncio.to_thread(self._store.delete, version)
        self._record(version, "ModelDeleted", str(version))
        self.free_soon()
        return version

    async def rename(self, name: str, new: str, title: str = "") -> None:
        """Give all versions of a model another, unused name; `title` is its name for MLflow clients."""
        versions = await self.list(name)
        await asyncio.to_thread(self._store.rename, name, new, title)
        for version in versions[-1:]:
            moved = replace(version, name=new)
            self._record(moved, "ModelRenamed", f"{name} was renamed to {new}, with {len(versions)} versions")

    async def check_delete(self, reference: str) -> ModelVersion:
        """Return the version, or raise a refusal that names what needs it."""
        version = await self.get(reference)
        reason = must_stay(version, self.in_use(version))
        if reason:
            message = f"{version} cannot be deleted: {reason}"
            fix = (
                "promote another version, or take the alias away with --remove"
                if version.aliases
                else "serve another version first"
            )
            raise ConflictError(message, fix=fix)
        return version

    async def superfluous(self, name: str, keep: int) -> list[ModelVersion]:
        """Return the versions that may be deleted so that the newest `keep` remain.

        Aliased and served versions are not among them.
        """
        versions = await self.list(name)
        if not versions:
            await self.get(name)
        staying = [version.version for version in versions if must_stay(version, self.in_use(version))]
        return superfluous(versions, keep, staying)

    async def pull(self, reference: str, folder: str) -> ModelVersion:
        """Copy a version's files into a new folder."""
        version = await self.get(reference)
        await asyncio.to_thread(self._store.pull, version, folder)
        return version

    async def verify(self, reference: str, namespace: str, course: VerificationProgress) -> ContentVerification:
        """Compare content with its digests: of one version, of all versions of a model, or of a namespace (no reference)."""
        if "@" in reference:
            versions = [await self.get(reference)]
        else:
            versions = await self.list(reference, namespace)
        result = await asyncio.to_thread(self._store.verify, versions, course)
        names = {str(version): str(self.shown(version, namespace)) for version in versions}
        return replace(result, damaged=tuple(replace(item, version=names[item.version]) for item in result.damaged))

    # Queries

    async def get(self, reference: str) -> ModelVersion:
        """Return the version that `mnist@3`, `mnist@champion` or `mnist` refers to."""
        await self.catch_up()
        return self._store.get(reference)

    async def list(self, name: str = "", namespace: str = "") -> list[ModelVersion]:
        """List versions, by name and number: of one model, of a namespace, or all."""
        await self.catch_up()
        return [version for version in self._store.list(name) if not namespace or self._is_in(version.name, namespace)]

    def own(self, reference: str, namespace: str) -> str:
        """Return the absolute name of a bare name in a namespace."""
        return self._store.own(reference, namespace)

    def shown(self, version: ModelVersion, namespace: str) -> ModelVersion:
        """Return the version under its name in a namespace."""
        return replace(version, name=self._store.relative(version.name, namespace))

    async def files(self, version: ModelVersion) -> tuple[ModelFile, ...]:
        """Return the files of a version."""
        return await asyncio.to_thread(self._store.files, version)

    async def folder(self, version: ModelVersion) -> Path:
        """Return a folder with a version's files; callers must not write to it."""
        return await asyncio.to_thread(self._store.folder, version)

    # Helpers

    async def _content(self, asked: ModelRegistration) -> str | UploadedContent:
        """Return the content to store: on one machine, the path of the user's files."""
        if asked.manifest:
            raise not_here()
        return asked.source

    @property
    def _store(self) -> ModelStore:
        if self._kept is None:
            message = "this application has no model registry"
            raise BugError(message)
        return self._kept

    def _note_end(self, job: JobState) -> None:
        if leaves_something(job.spec):
            self._begin()

    def _begin(self) -> None:
        """Catch up in the background, without delaying the caller."""
        task = asyncio.create_task(self._catch_up_quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _catch_up_quietly(self) -> None:
        try:
            await self.catch_up()
        except Exception:  # No caller waits for it, and the next end of a run, query or start tries again.
            log.exception("models could not be registered; trying again")

    def free_soon(self) -> None:
        """Free the space of deleted versions of models and datasets after a short delay.

        Deletions within the delay are handled together.
        """
        if self._kept is not None and self._kept.freeable() and not self._freeing:
            self._freeing = True
            asyncio.get_running_loop().call_later(FREE_AFTER, self._begin_freeing)

    def _begin_freeing(self) -> None:
        self._freeing = False
        task = asyncio.create_task(self._free())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _free(self) -> None:
        try:
            freed = await asyncio.to_thread(self._store.free, await self._needed())
        except (FairwayError, OSError) as problem:
            log.warning("the space of deleted versions could not be freed; the next deletion tries again: %s", problem)
            return
        if freed is None:
            self.free_soon()
        else:
            log.info("freed %d bytes of deleted versions", freed)

    async def _needed(self) -> set[str]:
        """Return the manifests of shared content that code still needs.

        Runs are read page by page, so that other tasks do not wait.
        """
        digests: set[str] = set()
        services = [record.service for record in self._loop.store.services()]
        # In a cluster, an object's code digest has a prefix.
        codes = [revision.origin.code_digest for service in services for revision in service.revisions]
        digests.update(code.removeprefix("blob:") for code in codes if code)
        page = self._loop.store.list_jobs(JobFilter(limit=_PAGE))
        while True:
            digests.update(job.origin.code_digest for job in page.jobs if job.origin.code_digest)
            if not page.next:
                return digests
            await asyncio.sleep(0)
            page = self._loop.store.list_jobs(JobFilter(limit=_PAGE, before=page.next))

    async def _registered(self, job: JobState) -> bool:
        """Return whether nothing remains to be registered of a successful run."""
        dataset = DATASET_OUTPUT not in job.spec.outputs or await self._dataset_kept(job)
        return (not registered_name(job.spec) or await self._model_registered(job)) and dataset

    async def _dataset_kept(self, job: JobState) -> bool:
        """Store the output as a version of its dataset.

        Repeating it returns the same version, because the content is the same.
        """
        name, folder = job.spec.outputs[DATASET_OUTPUT], self.output_of(job.key, DATASET_OUTPUT)
        try:
            dataset = self._datasets.own(name, job.key.namespace)
            version = await asyncio.to_thread(self._datasets.add, dataset, folder, self._now(), run=str(job.key))
        except (UnavailableError, OSError) as problem:
            log.warning("%s: its dataset is not stored yet: %s", job.key, problem)
            asyncio.get_running_loop().call_later(RETRY_AFTER, self._begin)
            return False
        except FairwayError as problem:
            self._record_once(job, "NotKept", f"the output {DATASET_OUTPUT} is no version of {name}: {problem.message}")
            return True
        self._record_once(job, "Kept", f"kept dataset {version}")
        return True

    async def _model_registered(self, job: JobState) -> bool:
        name, run = registered_name(job.spec), str(job.key)
        try:
            model = self._store.own(name, job.key.namespace)
            # A version may exist already, after a crash between the registration and its event.
            version = self._store.of_run(model, run)
            if version is None:
                facts = replace(facts_of(job, self._inputs(job), self._logged(job)), made_here=True)
                folder = self.output_of(job.key, OUTPUT)
                version = await asyncio.to_thread(self._store.register, model, folder, facts, self._now())
        except (UnavailableError, OSError) as problem:
            log.warning("%s: its model is not registered yet: %s", run, problem)
            asyncio.get_running_loop().call_later(RETRY_AFTER, self._begin)
            return False
        except FairwayError as problem:
            fix = f"; {problem.fix}" if problem.fix else ""
            self._record_once(job, NOT_REGISTERED, f"the output {OUTPUT} is no version of {name}: {problem.message}{fix}")
            return True
        self._record_once(job, "Registered", f"registered {version}")
        return True

    async def _facts(self, asked: ModelRegistration) -> ModelFacts:
        facts = asked.facts
        if asked.run is not None:
            job = self._loop.store.get_job(asked.run)
            if job is None:
                message = f"there is no run {asked.run.name} in namespace {asked.run.namespace}"
                raise NotFoundError(message, fix="`fairway list` shows the jobs")
            run_facts = facts_of(job, self._inputs(job), self._logged(job))
            parameters = {**run_facts.lineage.parameters, **facts.lineage.parameters}
            lineage = replace(run_facts.lineage, parameters=parameters)
            made_here = asked.made_here or (not asked.manifest and self._lies_in_output(asked.source, job))
            # A value given by the user belongs to another measurement than the run's best value.
            best = {name: value for name, value in run_facts.best.items() if name not in facts.metrics} | facts.best
            metrics = {**run_facts.metrics, **facts.metrics}
            facts = replace(facts, lineage=lineage, metrics=metrics, best=best, made_here=made_here)
        if asked.imported:
            facts = replace(facts, lineage=replace(facts.lineage, source=asked.source))
        return facts

    def _lies_in_output(self, source: str, job: JobState) -> bool:
        """Return whether a path is inside the output of the run, so that the run itself wrote it."""
        if OUTPUT not in job.spec.outputs or "://" in source:
            return False
        return Path(source).resolve().is_relative_to(Path(self.output_of(job.key, OUTPUT)).resolve())

    def _logged(self, job: JobState) -> dict[str, str]:
        """Return the parameters that the run's program logged with an MLflow client."""
        tracked = self._loop.store.tracked(TrackedRun, job.key.namespace, job.key.name)
        return tracked.params if tracked is not None else {}

    def _inputs(self, job: JobState) -> dict[str, str]:
        """Return the run's inputs, with `mnist@latest` replaced by the newest version at the time of its start."""
        began = job.started if job.started is not None else job.created
        inputs = {}
        for name, text in job.spec.data.items():
            inputs[name] = text
            if text.endswith("@latest"):
                versions = [version for version in self._versions_of(text.partition("@")[0], job) if version.created <= began]
                inputs[name] = self._datasets.relative(str(versions[-1]), job.key.namespace) if versions else text
        return inputs

    def _versions_of(self, dataset: str, job: JobState) -> Sequence[DatasetVersion]:
        try:
            name = self._datasets.meant(dataset, job.key.namespace)
        except UsageError:
            return ()  # A path or a URI.
        return [version for version in self._datasets.list() if version.name == name]

    def _is_in(self, name: str, namespace: str) -> bool:
        return self._store.own(name.rpartition("/")[2], namespace) == name

    def _record(self, version: ModelVersion, reason: str, message: str) -> None:
        self._loop.store.commit(ChangeSet(events=(RunEvent(self._now(), subject(version.name), reason, message),)))

    def _record_once(self, job: JobState, reason: str, message: str) -> None:
        run = str(job.key)
        if not any(event.reason == reason and event.message == message for event in self._loop.store.events_of(run)):
            self._loop.store.commit(ChangeSet(events=(RunEvent(self._now(), run, reason, message),)))
            self._loop.watchers.tell([job.key])

    def _now(self) -> float:
        return self._loop.clock.now()


def subject(name: str) -> str:
    """Return the subject of events about a model; no run can have this name."""
    return f"model:{name}"


def _key(run: str) -> JobKey:
    namespace, _, name = run.partition("/")
    return JobKey(namespace, name)


def _nowhere(key: JobKey, name: str) -> str:
    message = f"the location of output {name} of {key} is not configured"
    raise BugError(message)
