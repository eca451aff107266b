"""Models: what jobs leave behind becomes versions, and what may be asked of these."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairway.app.loop import Loop
from fairway.app.model_store import ModelStore
from fairway.app.ports import Changes, DatasetStore, JobFilter
from fairway.app.receipt import Receipts, RequestKey
from fairway.app.sent import Sent, not_here
from fairway.app.verification import Course
from fairway.errors import BugError, ConflictError, FairwayError, NotFoundError, UnavailableError, UsageError
from fairway.plan.model import DATASET_OUTPUT, OUTPUT, facts_of, leaves_something, must_stay, registered_name, superfluous
from fairway.state.content import Verified
from fairway.state.dataset import DatasetVersion
from fairway.state.event import Event
from fairway.state.job import Job, JobKey
from fairway.state.model import ModelFacts, ModelFile, ModelVersion
from fairway.state.phase import JobPhase
from fairway.state.tracking import TrackedRun

RETRY_AFTER = 30.0
"""Seconds after which a registration is tried again that the disk had no room for."""

FREE_AFTER = 1.0
"""Seconds after which the space of deleted versions is given back, or tried to while somebody writes."""

NOT_REGISTERED = "NotRegistered"
"""The event of a run whose output is no model."""
_PAGE = 1000

log = logging.getLogger("fairway.models")


@dataclass(frozen=True, slots=True)
class Registration:
    """What to register, and what its author says of it."""

    name: str
    source: str
    """An absolute path, or for an import any URI."""
    facts: ModelFacts = field(default_factory=ModelFacts)
    run: JobKey | None = None
    """The run that it comes from: its lineage and last metrics are taken over."""
    imported: bool = False
    """Whether the source is recorded as the origin."""
    manifest: str = ""
    """The digest of what was sent ahead, where the source lies on another machine."""
    made_here: bool = False
    """Whether the caller knows that the source is what the run left, unchanged. No client says this for itself."""
    namespace: str = "default"
    """The namespace in which `name` is a name."""


class Models:
    """The use cases about models, over one loop. Questions are answered when what has ended is registered."""

    def __init__(self, loop: Loop, store: ModelStore | None, datasets: DatasetStore) -> None:
        self._loop = loop
        self._kept = store
        self._datasets = datasets
        self._lock = asyncio.Lock()
        self._receipts = Receipts(loop.store, loop.clock)
        self._background: set[asyncio.Task[None]] = set()
        self._freeing = False
        self.output_of: Callable[[JobKey, str], str] = _nowhere
        """The folder of a run's output; whoever knows the engine sets it."""
        self.in_use: Callable[[ModelVersion], str] = lambda _version: ""
        """Who uses a version now, in words; empty when nobody does. Whoever serves models sets it."""
        self.batching: Callable[[ModelVersion], str] = lambda _version: ""
        """Whether replicas batch requests to a version and why, in words; empty when that is not known."""
        if store is not None:
            loop.watchers.over.append(self._note_end)

    # What runs leave behind

    def expect(self, jobs: Iterable[Job]) -> None:
        """Before a run is remembered: note that it may leave a model behind, so that no crash can make it forgotten."""
        for job in jobs:
            if leaves_something(job.spec) and self._kept is not None:
                self._kept.expect(str(job.key))

    async def start(self) -> None:
        """Register what ended while nobody looked, and give back the space of deleted versions."""
        if self._kept is None:
            return
        for run in self._kept.expected():
            # Without a record the daemon died in the middle of a submit.
            if not self._loop.store.has_job(_key(run)):
                self._kept.settle(run)
        self.free_soon()
        self._begin()

    async def catch_up(self) -> None:
        """Register what runs that are over have left behind, each once, whatever crashed in between."""
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

    def of_job(self, job: Job) -> tuple[ModelVersion, ...]:
        """The version that a run left behind, if it did."""
        if self._kept is None or not registered_name(job.spec) or job.phase is not JobPhase.SUCCEEDED:
            return ()
        try:
            found = self._kept.of_run(self._kept.own(registered_name(job.spec), job.key.namespace), str(job.key))
        except FairwayError:
            # The name is none: its refusal is an event of the run.
            return ()
        return (found,) if found is not None else ()

    def refusal(self, job: Job) -> str:
        """Why a run that has succeeded left no version behind; empty when it did, or named no model."""
        if self._kept is None or not registered_name(job.spec) or job.phase is not JobPhase.SUCCEEDED:
            return ""
        told = [event.message for event in self._loop.store.events_of(str(job.key)) if event.reason == NOT_REGISTERED]
        return told[-1] if told else ""

    # Commands

    async def register(self, asked: Registration, request: RequestKey | None = None) -> ModelVersion:
        """Keep files as the next version of a model; content and facts of the newest again give that one. With a key, once."""
        async with self._receipts.once(self._asked_by(request), "register", repr(asked)) as once:
            if once.over and once.known is not None:
                return self._store.get(once.known.made[0])
            made = await self._register(asked)
            if once.key is not None:
                self._loop.store.commit(Changes(receipts=once.receipt([made])))
            return made

    def _asked_by(self, key: RequestKey | None) -> RequestKey | None:
        """The key as it counts: where others know who asks, with the user that they name."""
        return key

    async def _register(self, asked: Registration) -> ModelVersion:
        name = self._store.own(asked.name, asked.namespace)
        facts, now = await self._facts(asked), self._now()
        content = await self._content(asked)
        made = await asyncio.to_thread(self._store.register, name, content, facts, now)
        if made.created == now:
            by = f", sent by {content.owner}" if isinstance(content, Sent) else ""
            self._record(made, "ModelRegistered", f"{made} from {asked.source}{by}")
        return made

    async def preview(self, asked: Registration) -> str:
        """The format that a registration would find; raises what it would, and keeps nothing."""
        return await asyncio.to_thread(self._store.examine, asked.source, await self._facts(asked))

    async def promote(self, reference: str, alias: str) -> tuple[ModelVersion, int | None]:
        """Let an alias mean a version; the version, and the number of the one that it meant before."""
        version = await self.get(reference)
        before = self._store.promote(version, alias)
        if before != version.version:
            was = f", before it was {version.name}@{before}" if before is not None else ""
            self._record(version, "ModelPromoted", f"{version} is {alias}{was}")
        return self._store.get(str(version)), before

    async def demote(self, reference: str, alias: str) -> int:
        """Take an alias away; the number of the version that it meant. A version that is named must be that one."""
        version = await self.get(reference)
        if "@" in reference and alias not in version.aliases:
            message = f"{version} is not {alias}; it is {' and '.join(version.aliases) or 'nothing of that kind'}"
            raise ConflictError(message, fix=f"fairway model list {version.name} shows which is; or name the model alone")
        number = self._store.demote(version.name, alias)
        self._record(version, "ModelDemoted", f"{version.name}@{number} is no longer {alias}")
        return number

    async def tag(self, reference: str, tags: Mapping[str, str | None]) -> ModelVersion:
        """Put tags on a version; None takes one off."""
        return self._store.tag(await self.get(reference), tags)

    async def delete(self, reference: str) -> ModelVersion:
        """Let a version be gone; refused while an alias means it or somebody serves it."""
        version = await self.check_delete(reference)
        await asyncio.to_thread(self._store.delete, version)
        self._record(version, "ModelDeleted", str(version))
        self.free_soon()
        return version

    async def rename(self, name: str, new: str, title: str = "") -> None:
        """Give all versions of a model another name, which no model has; `title` is what MLflow clients call it."""
        versions = await self.list(name)
        await asyncio.to_thread(self._store.rename, name, new, title)
        for version in versions[-1:]:
            moved = replace(version, name=new)
            self._record(moved, "ModelRenamed", f"{name} is {new} now, with {len(versions)} versions")

    async def check_delete(self, reference: str) -> ModelVersion:
        """The version, or the refusal with who needs it."""
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
        """The versions that may go so that the newest `keep` are left; what is aliased or served is not among them."""
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

    async def verify(self, reference: str, namespace: str, course: Course) -> Verified:
        """Compare content with its digests: of a version, of all versions of a model, or of a namespace (no reference)."""
        if "@" in reference:
            versions = [await self.get(reference)]
        else:
            versions = await self.list(reference, namespace)
        found = await asyncio.to_thread(self._store.verify, versions, course)
        shown = {str(version): str(self.shown(version, namespace)) for version in versions}
        return replace(found, damaged=tuple(replace(each, version=shown[each.version]) for each in found.damaged))

    # Queries

    async def get(self, reference: str) -> ModelVersion:
        """The version that `mnist@3`, `mnist@champion` or `mnist` means."""
        await self.catch_up()
        return self._store.get(reference)

    async def list(self, name: str = "", namespace: str = "") -> list[ModelVersion]:
        """Versions, by name and number: of one model, of a namespace, or all."""
        await self.catch_up()
        return [each for each in self._store.list(name) if not namespace or self._is_in(each.name, namespace)]

    def own(self, reference: str, namespace: str) -> str:
        """What a bare name means in a namespace, and in no other."""
        return self._store.own(reference, namespace)

    def shown(self, version: ModelVersion, namespace: str) -> ModelVersion:
        """The version under the name that it has in a namespace."""
        return replace(version, name=self._store.relative(version.name, namespace))

    async def files(self, version: ModelVersion) -> tuple[ModelFile, ...]:
        """The files of a version."""
        return await asyncio.to_thread(self._store.files, version)

    async def folder(self, version: ModelVersion) -> Path:
        """A folder with a version's files, not to be written to."""
        return await asyncio.to_thread(self._store.folder, version)

    # Parts

    async def _content(self, asked: Registration) -> str | Sent:
        """What is to be kept: here everybody's files are this machine's."""
        if asked.manifest:
            raise not_here()
        return asked.source

    @property
    def _store(self) -> ModelStore:
        if self._kept is None:
            message = "this application was made without a registry of models"
            raise BugError(message)
        return self._kept

    def _note_end(self, job: Job) -> None:
        if leaves_something(job.spec):
            self._begin()

    def _begin(self) -> None:
        """Catch up without making anybody wait."""
        task = asyncio.create_task(self._catch_up_quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _catch_up_quietly(self) -> None:
        try:
            await self.catch_up()
        except Exception:  # Nobody waits for it, and the next end, question or start tries again.
            log.exception("models could not be registered; it is tried again")

    def free_soon(self) -> None:
        """Give back the space of deleted versions of models and datasets, in a moment, for all that go now together."""
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
            log.warning("the space of deleted versions could not be given back; the next delete tries again: %s", problem)
            return
        if freed is None:
            self.free_soon()
        else:
            log.info("%d bytes of deleted versions were given back", freed)

    async def _needed(self) -> set[str]:
        """What code needs of the content that versions share with it, by manifest. A page at a time: others must not wait."""
        found: set[str] = set()
        services = [record.service for record in self._loop.store.services()]
        # On a cluster an object names its code with a word before the digest.
        codes = [each.origin.code_digest for service in services for each in service.revisions]
        found.update(code.removeprefix("blob:") for code in codes if code)
        page = self._loop.store.list_jobs(JobFilter(limit=_PAGE))
        while True:
            found.update(job.origin.code_digest for job in page.jobs if job.origin.code_digest)
            if not page.next:
                return found
            await asyncio.sleep(0)
            page = self._loop.store.list_jobs(JobFilter(limit=_PAGE, before=page.next))

    async def _registered(self, job: Job) -> bool:
        """Whether there is nothing left to register of a run that has succeeded."""
        dataset = DATASET_OUTPUT not in job.spec.outputs or await self._dataset_kept(job)
        return (not registered_name(job.spec) or await self._model_registered(job)) and dataset

    async def _dataset_kept(self, job: Job) -> bool:
        """The output as a version of its dataset; done again it gives the same version, since it has the same content."""
        name, folder = job.spec.outputs[DATASET_OUTPUT], self.output_of(job.key, DATASET_OUTPUT)
        try:
            dataset = self._datasets.own(name, job.key.namespace)
            made = await asyncio.to_thread(self._datasets.add, dataset, folder, self._now(), run=str(job.key))
        except (UnavailableError, OSError) as problem:
            log.warning("%s: its dataset is not kept yet: %s", job.key, problem)
            asyncio.get_running_loop().call_later(RETRY_AFTER, self._begin)
            return False
        except FairwayError as problem:
            self._record_once(job, "NotKept", f"the output {DATASET_OUTPUT} is no version of {name}: {problem.message}")
            return True
        self._record_once(job, "Kept", f"kept dataset {made}")
        return True

    async def _model_registered(self, job: Job) -> bool:
        name, run = registered_name(job.spec), str(job.key)
        try:
            model = self._store.own(name, job.key.namespace)
            # Also after a crash between the registration and its event.
            made = self._store.of_run(model, run)
            if made is None:
                facts = replace(facts_of(job, self._inputs(job), self._logged(job)), made_here=True)
                folder = self.output_of(job.key, OUTPUT)
                made = await asyncio.to_thread(self._store.register, model, folder, facts, self._now())
        except (UnavailableError, OSError) as problem:
            log.warning("%s: its model is not registered yet: %s", run, problem)
            asyncio.get_running_loop().call_later(RETRY_AFTER, self._begin)
            return False
        except FairwayError as problem:
            fix = f"; {problem.fix}" if problem.fix else ""
            self._record_once(job, NOT_REGISTERED, f"the output {OUTPUT} is no version of {name}: {problem.message}{fix}")
            return True
        self._record_once(job, "Registered", f"registered {made}")
        return True

    async def _facts(self, asked: Registration) -> ModelFacts:
        facts = asked.facts
        if asked.run is not None:
            job = self._loop.store.get_job(asked.run)
            if job is None:
                message = f"there is no run {asked.run.name} in namespace {asked.run.namespace}"
                raise NotFoundError(message, fix="`fairway list` shows what there is")
            known = facts_of(job, self._inputs(job), self._logged(job))
            parameters = {**known.lineage.parameters, **facts.lineage.parameters}
            lineage = replace(known.lineage, parameters=parameters)
            made_here = asked.made_here or (not asked.manifest and self._lies_in_output(asked.source, job))
            # A value that was given by hand is of another measurement than the best one of the run.
            best = {name: value for name, value in known.best.items() if name not in facts.metrics} | facts.best
            metrics = {**known.metrics, **facts.metrics}
            facts = replace(facts, lineage=lineage, metrics=metrics, best=best, made_here=made_here)
        if asked.imported:
            facts = replace(facts, lineage=replace(facts.lineage, source=asked.source))
        return facts

    def _lies_in_output(self, source: str, job: Job) -> bool:
        """Whether a path lies in the output of the run, so that the run itself left it there."""
        if OUTPUT not in job.spec.outputs or "://" in source:
            return False
        return Path(source).resolve().is_relative_to(Path(self.output_of(job.key, OUTPUT)).resolve())

    def _logged(self, job: Job) -> dict[str, str]:
        """The parameters that the run's program logged through an MLflow client."""
        tracked = self._loop.store.tracked(TrackedRun, job.key.namespace, job.key.name)
        return tracked.params if tracked is not None else {}

    def _inputs(self, job: Job) -> dict[str, str]:
        """The run's inputs, `mnist@latest` as the version that was the newest when it started."""
        began = job.started if job.started is not None else job.created
        found = {}
        for name, text in job.spec.data.items():
            found[name] = text
            if text.endswith("@latest"):
                versions = [each for each in self._versions_of(text.partition("@")[0], job) if each.created <= began]
                found[name] = self._datasets.relative(str(versions[-1]), job.key.namespace) if versions else text
        return found

    def _versions_of(self, dataset: str, job: Job) -> Sequence[DatasetVersion]:
        try:
            meant = self._datasets.meant(dataset, job.key.namespace)
        except UsageError:
            return ()  # A path or a URI.
        return [each for each in self._datasets.list() if each.name == meant]

    def _is_in(self, name: str, namespace: str) -> bool:
        return self._store.own(name.rpartition("/")[2], namespace) == name

    def _record(self, version: ModelVersion, reason: str, message: str) -> None:
        self._loop.store.commit(Changes(events=(Event(self._now(), subject(version.name), reason, message),)))

    def _record_once(self, job: Job, reason: str, message: str) -> None:
        run = str(job.key)
        if not any(event.reason == reason and event.message == message for event in self._loop.store.events_of(run)):
            self._loop.store.commit(Changes(events=(Event(self._now(), run, reason, message),)))
            self._loop.watchers.tell([job.key])

    def _now(self) -> float:
        return self._loop.clock.now()


def subject(name: str) -> str:
    """What events about a model are about: no run is called so."""
    return f"model:{name}"


def _key(run: str) -> JobKey:
    namespace, _, name = run.partition("/")
    return JobKey(namespace, name)


def _nowhere(key: JobKey, name: str) -> str:
    message = f"nobody knows where the output {name} of {key} lies"
    raise BugError(message)
