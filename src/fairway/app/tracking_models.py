"""What MLflow clients may tell and ask of models: those that a run logged, and those of the registry."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fairway.app.models import Models, Registration
from fairway.app.ports import Changes
from fairway.app.tracking import Measured, Speaker, Tracking, location_of
from fairway.app.tracking_experiments import grown
from fairway.app.tracking_ports import Artifacts, Kind, Shelf
from fairway.errors import ConflictError, DeniedError, NotFoundError, RefusedError, UsageError
from fairway.state.model import LATEST, Lineage, ModelFacts, ModelVersion
from fairway.state.tracking import LoggedModel, RegisteredName, TrackedRun
from fairway.units.names import is_made, is_name, model_name

LOGGED = "models"
REGISTERED = "registered"
"""First parts of the path of an artifact that is no run's: a logged model, a version of the registry."""
RUN_TAG = "mlflow.runId"
SOURCE_TAG = "mlflow.source"
NOTE_TAG = "mlflow.note.content"
LINK_TAG = "mlflow.runLink"
MAKER_TAG = "fairway.run"
"""The run whose token registered the version, `default/mnist-7`: it may put aliases on it. A client cannot choose it."""
DERIVED_TAGS = (SOURCE_TAG, RUN_TAG, NOTE_TAG, LINK_TAG, MAKER_TAG)
"""Tags of a version that have fields of their own in the protocol, or are not for clients."""
PICKLE_TAG = "fairway.allow_pickle"
"""A tag of the version that lets files be kept that run code when they are loaded. On a job, a label `allow-pickle` does."""
PICKLE_LABEL = "allow-pickle"
PROMPT_TAG = "mlflow.prompt.is_prompt"
"""What clients keep prompts with: as registered models with this tag."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version that a client asks for."""

    name: str
    """As the client knows the model."""
    source: str
    run: str = ""
    model: str = ""
    """The logged model that becomes a version."""
    tags: Mapping[str, str] | None = None
    description: str = ""
    link: str = ""
    """A page about the run, elsewhere."""


@dataclass(frozen=True, slots=True)
class Content:
    """What is to become a version."""

    folder: Path
    run: TrackedRun | None = None
    """The run that it comes from, as the client says or as it was logged."""
    job: str = ""
    """The run of ours among whose files it lies."""
    copied: ModelVersion | None = None
    """The version that it is a copy of."""


class TrackedModels:
    """Logged models, and the registry under the names of clients."""

    def __init__(
        self,
        tracking: Tracking,
        artifacts: Artifacts,
        models: Models,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self.tracking = tracking
        self.artifacts = artifacts
        self.registry = models
        self._models = models
        self._store = tracking.store
        self._clock = tracking.clock
        self._new_id = new_id

    # Models that runs logged

    def log_model(self, speaker: Speaker, draft: LoggedModel) -> LoggedModel:
        """A new one, without files yet; its name is made up."""
        job = speaker.run
        if draft.run:
            maker = self.tracking.run(speaker.namespace, draft.run)
            self.tracking.check_may_write(speaker, maker)
            job = maker.job
        group = self.tracking.experiments.get(speaker.namespace, draft.experiment)
        self.tracking.experiments.check_active(group)
        name, now = f"m-{self._new_id()}", self._clock.now()
        made = replace(
            draft, namespace=speaker.namespace, name=name, title=draft.title or name, job=job, created=now, updated=now
        )
        return self.put(replace(made, location=location_of(group.location, f"models/{name}")))

    def logged(self, namespace: str, name: str) -> LoggedModel:
        """The logged model of that name."""
        found = self._store.tracked(LoggedModel, namespace, name)
        if found is None or found.deleted:
            message = f"Logged model with ID {name!r} not found"
            raise NotFoundError(message, fix="log it first")
        return found

    def all_logged(self, namespace: str, experiments: list[str]) -> list[LoggedModel]:
        """The logged models of these experiments, newest first."""
        known = [model for each in dict.fromkeys(experiments) for model in self._store.all_tracked(LoggedModel, namespace, each)]
        return [model for model in known if not model.deleted]

    def delete_logged(self, speaker: Speaker, name: str) -> None:
        """Hide a logged model. Its files stay with its run, and the versions made of it stay in the registry."""
        found = self.logged(speaker.namespace, name)
        self._check_may_write(speaker, found)
        self.put(replace(found, deleted=True, updated=self._clock.now()))

    def drop_logged_tag(self, speaker: Speaker, name: str, key: str) -> LoggedModel:
        """Take a tag off a logged model."""
        if key not in self.logged(speaker.namespace, name).tags:
            message = f"No tag with key {key!r} found for model with ID {name!r}"
            raise NotFoundError(message, fix="mlflow.get_logged_model shows its tags")
        return self.change_logged(speaker, name, tags={key: None})

    def measure_logged(self, speaker: Speaker, name: str, run: str, measured: Measured, dataset: tuple[str, str]) -> None:
        """Keep a value of a metric of a logged model; `dataset` is the name and the digest of what it was measured on."""
        found = self.logged(speaker.namespace, name)
        self._check_may_write(speaker, found)
        place = json.dumps([measured.name, *dataset])
        standing = json.loads(found.metrics[place]) if place in found.metrics else None
        if standing is not None and (standing["step"], standing["time"]) > (measured.step, measured.time):
            return
        value = {"run": run, "value": repr(measured.value), "time": measured.time, "step": measured.step}
        self.put(replace(found, metrics=grown(found.metrics, {place: json.dumps(value)}, "metrics"), updated=self._clock.now()))

    def change_logged(
        self,
        speaker: Speaker,
        name: str,
        *,
        status: str = "",
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> LoggedModel:
        """How it stands, and what is said of it; a tag of None goes."""
        found = self.logged(speaker.namespace, name)
        self._check_may_write(speaker, found)
        now_tags = {key: value for key, value in {**found.tags, **(tags or {})}.items() if value is not None}
        known = {**found.params, **(params or {})}
        return self.put(replace(found, status=status or found.status, params=known, tags=now_tags, updated=self._clock.now()))

    # The registry

    async def registered(self, namespace: str, name: str) -> RegisteredName:
        """The model that a client calls so, under that very name; a model answers to its name in the registry, too."""
        return replace(await self.found(namespace, name), name=name)

    async def all_registered(self, namespace: str) -> list[RegisteredName]:
        """All of them, in order of name."""
        records = self._store.all_tracked(RegisteredName, namespace)
        known = {each.model: each for each in records if not each.deleted}
        for version in await self._models.list(namespace=namespace):
            model = self._models.shown(version, namespace).name
            known.setdefault(model, RegisteredName(namespace, version.title or model, model=model, created=version.created))
        return sorted(known.values(), key=lambda each: each.name)

    async def register_name(self, speaker: Speaker, name: str, tags: Mapping[str, str], description: str) -> RegisteredName:
        """A new name. The registry calls the model by `model_name`."""
        namespace = speaker.namespace
        if tags.get(PROMPT_TAG) == "true":
            message = f"{name!r} is a prompt, and Fairway has no prompts"
            raise UsageError(message, fix="keep prompts in files, as artifacts of a run or with the code")
        model = await self.check_free(namespace, name)
        made = RegisteredName(namespace, name, model=model, created=self._clock.now(), description=description, tags=dict(tags))
        return self.put(replace(made, maker=speaker.run))

    async def check_free(self, namespace: str, name: str) -> str:
        """What the registry would call a model of that name; raises where the name is taken or none."""
        if not name.strip() or any(letter in name for letter in "/:"):
            message = f"{name!r} is no name of a registered model: it has no letters, or has '/' or ':' in it"
            raise UsageError(message, fix="choose another name")
        if await self._registered(namespace, name) is not None:
            message = f"Registered Model (name={name}) already exists"
            raise ConflictError(message, fix="make a version of it, or choose another name")
        model = model_name(name)
        taken = next((each.name for each in await self.all_registered(namespace) if each.model == model), "")
        if taken:
            message = f"{name!r} would be called {model} in the registry, as {taken!r} is"
            raise UsageError(message, fix="choose another name")
        return model

    async def describe(self, speaker: Speaker, name: str, description: str | None, tags: Mapping[str, str]) -> RegisteredName:
        """What is said of a model as a whole. A run's token may change that of a model which it made."""
        found = await self.found(speaker.namespace, name)
        if not speaker.made(found.maker):
            message = f"{speaker.run} may not describe the model {name!r}: it did not make it"
            raise DeniedError(message, fix="put tags on the version that the run registers, or describe it from outside of a job")
        said = found.description if description is None else description
        known = grown(found.tags, tags, "tags")
        return replace(self.put(replace(found, description=said, tags=known, updated=self._clock.now())), name=name)

    async def versions(self, known: RegisteredName) -> list[ModelVersion]:
        """The versions of a model, oldest first."""
        return await self._models.list(self._models.own(known.model, known.namespace))

    async def all_versions(self, namespace: str) -> list[tuple[RegisteredName, ModelVersion]]:
        """Every version of every model, models in order of name, the newest version of each first."""
        found: dict[str, list[ModelVersion]] = {}
        for version in await self._models.list(namespace=namespace):
            found.setdefault(self._models.shown(version, namespace).name, []).insert(0, version)
        return [(known, each) for known in await self.all_registered(namespace) for each in found.get(known.model, ())]

    async def version(self, known: RegisteredName, which: str) -> ModelVersion:
        """The version of that number or alias."""
        return await self._models.get(self._models.own(f"{known.model}@{which}", known.namespace))

    async def numbered(self, known: RegisteredName, number: str) -> ModelVersion:
        """The version of that number; no alias."""
        if not number.isascii() or not number.isdigit():
            message = f"Parameter 'version' must be an integer, got {number[:80]!r}"
            raise UsageError(message, fix="name a version by its number")
        try:
            return await self.version(known, str(int(number)))
        except NotFoundError as problem:
            message = f"Model Version (name={known.name}, version={number}) not found"
            raise NotFoundError(message, fix=problem.message) from None

    async def aliased(self, known: RegisteredName, alias: str) -> ModelVersion:
        """The version that an alias means."""
        found = next((each for each in await self.versions(known) if alias in each.aliases), None)
        if found is not None:
            return found
        if alias.lower() == LATEST:
            return await self.version(known, LATEST)
        # Clients take this kind of error for "there is none".
        message = f"Registered model alias {alias} not found"
        raise UsageError(message, fix=f"`fairway model list {known.model}` shows the aliases")

    async def register(self, speaker: Speaker, wanted: Wanted) -> ModelVersion:
        """Keep what a run logged as a version, with where it came from."""
        known = await self.found(speaker.namespace, wanted.name)
        content = await self._content(speaker, wanted)
        run, copied = content.run, content.copied
        facts = self.tracking.facts(run) if run is not None else None
        job = self.tracking.job_of(run) if run is not None else None
        tags = {**(wanted.tags or {}), SOURCE_TAG: wanted.source, NOTE_TAG: wanted.description, LINK_TAG: wanted.link}
        tags |= {RUN_TAG: run.name if run else copied.tags.get(RUN_TAG, "") if copied else ""}
        tags |= {MAKER_TAG: f"{speaker.namespace}/{speaker.run}" if speaker.run else ""}
        pickle = tags.pop(PICKLE_TAG, "") or (job.labels.get(PICKLE_LABEL, "") if job is not None else "")
        said = ModelFacts(
            metrics={each.name: each.value for each in facts.metrics if math.isfinite(each.value)} if facts else {},
            best=dict(facts.best) if facts else {},
            lineage=Lineage(parameters=dict(run.params) if run else {}, source="" if job else wanted.source),
            tags={name: value for name, value in tags.items() if value},
            title="" if known.name == known.model else known.name,
            # The content of a version that is there already was consented to when that was registered.
            allow_pickle=pickle.lower() == "true" or copied is not None,
            anew=True,
        )
        asked = Registration(
            known.model, str(content.folder), said, run=job.key if job is not None else None, namespace=speaker.namespace
        )
        # Only what lies among the files of that very run was left by it; a client may name any run.
        asked = replace(asked, made_here=job is not None and content.job == job.key.name)
        try:
            made = await self._models.register(asked)
        except RefusedError as problem:
            if "--allow-pickle" not in problem.fix:
                raise
            fix = (
                f"log it as ONNX; or, if you trust it: the tag {PICKLE_TAG}=true, or the label {PICKLE_LABEL}: 'true' of the job"
            )
            raise RefusedError(problem.message, fix=fix) from problem
        if run is not None:
            self.tracking.note_version(speaker, run, str(self._models.shown(made, speaker.namespace)))
        return made

    async def set_alias(self, speaker: Speaker, known: RegisteredName, alias: str, number: str) -> None:
        """Let an alias mean a version. A run's token may name a version that it made, and take no alias from another's."""
        version = await self.numbered(known, number)
        name = f"{known.model}@{version.version}"
        fix = f"promote it from outside of a job: fairway model promote {name} {alias}"
        if not made_by(speaker, version):
            message = f"{speaker.run} may not put the alias {alias} on {name}: it did not register that version"
            raise DeniedError(message, fix=fix)
        await self.check_may_take(speaker, known, alias, fix)
        await self._models.promote(str(version), alias)

    async def drop_alias(self, speaker: Speaker, known: RegisteredName, alias: str) -> None:
        """Take an alias away. A run's token may do so where the alias means a version that it made, or the model is its own."""
        fix = f"take it away from outside of a job: fairway model promote {known.model} {alias} --remove"
        await self.check_may_take(speaker, known, alias, fix)
        if not any(alias in each.aliases for each in await self.versions(known)):
            return
        await self._models.demote(self._models.own(known.model, known.namespace), alias)

    # Files

    def shelf(self, namespace: str, path: str) -> tuple[Shelf, str]:
        """Whose files a path of an artifact means, and the path among them. Versions of the registry are not among these."""
        first, _, rest = path.partition("/")
        if first == LOGGED:
            name, _, rest = rest.partition("/")
            model = self.logged(namespace, name)
            return Shelf(namespace, model.name, model.job), rest
        return self.tracking.facts(self.tracking.run(namespace, first)).shelf, rest

    async def version_file(self, namespace: str, path: str) -> Path:
        """A file or folder of a version: `mnist/3/model.onnx`, with the name in the registry."""
        name, _, rest = path.partition("/")
        return await self._file_of(RegisteredName(namespace, name, model=name), rest)

    def check_may_write(self, speaker: Speaker, path: str) -> None:
        """A run's token may write the files of its job's own runs and logged models."""
        first, _, rest = path.partition("/")
        if first == LOGGED:
            self._check_may_write(speaker, self.logged(speaker.namespace, rest.partition("/")[0]))
        else:
            self.tracking.check_may_write(speaker, self.tracking.run(speaker.namespace, first))

    # Parts

    async def found(self, namespace: str, name: str) -> RegisteredName:
        """The model that a client means by a name, with the name that it was registered under."""
        found = await self._registered(namespace, name)
        if found is None:
            message = f"Registered Model with name={name} not found"
            raise NotFoundError(message, fix="register one; `fairway model list` shows what there is")
        return found

    async def _registered(self, namespace: str, name: str) -> RegisteredName | None:
        """As `_found`; None when there is none."""
        found = self._store.tracked(RegisteredName, namespace, name)
        if found is not None and found.deleted:
            found = None
        if found is None and (is_made(name) or not is_name(name)):
            # Its record may be in another namespace, or lost; the versions have the name, too.
            versions = [each for each in await self._models.list(namespace=namespace) if each.title == name]
            if versions:
                model = self._models.shown(versions[0], namespace).name
                return RegisteredName(namespace, name, model=model, created=versions[0].created)
        if found is not None or not is_name(name):
            return found
        records = self._store.all_tracked(RegisteredName, namespace)
        own = next((each for each in records if each.model == name and not each.deleted), None)
        if own is None and (versions := await self._models.list(self._models.own(name, namespace))):
            own = RegisteredName(namespace, versions[-1].title or name, model=name, created=versions[0].created)
        return own

    async def _file_of(self, known: RegisteredName, path: str) -> Path:
        """A file or folder of a version: `3/model.onnx`."""
        number, _, rest = path.partition("/")
        version = await self.version(known, number)
        root = (await self._models.folder(version)).resolve()
        found = (root / rest).resolve()
        if not found.is_relative_to(root) or not found.exists():
            message = f"{known.name} version {number} has no file {rest!r}"
            raise NotFoundError(message, fix="list what there is")
        return found

    async def check_may_take(self, speaker: Speaker, known: RegisteredName, alias: str, fix: str) -> None:
        """Raises `DeniedError` where the alias of a model that others made means a version that others made."""
        standing = next((each for each in await self.versions(known) if alias in each.aliases), None)
        if standing is not None and not made_by(speaker, standing) and not speaker.made(known.maker):
            message = f"{speaker.run} may not move the alias {alias} of {known.model}, which is version {standing.version} now"
            raise DeniedError(message, fix=fix)

    async def _content(self, speaker: Speaker, wanted: Wanted) -> Content:
        """What is to become a version, and where it comes from."""
        namespace = speaker.namespace
        scheme, _, rest = wanted.source.partition(":/")
        rest = rest.lstrip("/")
        if scheme == "models" and not rest.startswith("m-"):
            # A version that is there already, under another name: it keeps where it came from only as its source.
            name, _, rest = rest.partition("/")
            known = await self.registered(namespace, name)
            number, _, inside = rest.partition("/")
            copied = None if inside else await self.version(known, number)
            return Content(await self._file_of(known, rest), copied=copied)
        places = {"mlflow-artifacts": rest, "runs": rest, "models": f"{LOGGED}/{rest}"}
        if scheme not in places or re.match(r"[\w-]+://[^/]", wanted.source):
            message = f"{wanted.source!r} cannot be registered: it does not lie here"
            raise UsageError(message, fix="log it as an artifact of a run first; for a path: fairway model register NAME PATH")
        if rest.startswith(f"{REGISTERED}/"):
            return Content(await self.version_file(namespace, rest.removeprefix(f"{REGISTERED}/")))
        shelf, path = self.shelf(namespace, places[scheme])
        first, _, _ = places[scheme].partition("/")
        maker = self.logged(namespace, shelf.name).run if first == LOGGED else shelf.name
        name = wanted.run or maker
        run = self.tracking.run(namespace, name) if name else None
        if run is not None and run.name != maker and not speaker.made(run.job):
            message = f"{speaker.run} may not say that {wanted.source!r} comes from {run.name}: another run logged it"
            raise DeniedError(message, fix=f"leave run_id out, or name {maker or speaker.run}")
        return Content(self.artifacts.find(shelf, path), run, shelf.job)

    def _check_may_write(self, speaker: Speaker, model: LoggedModel) -> None:
        owner = TrackedRun(model.namespace, model.name, job=model.job)
        self.tracking.check_may_write(speaker, owner)

    def put(self, record: Kind) -> Kind:
        """Remember a record."""
        self._store.commit(Changes(tracked=(record,)))
        return record


def made_by(speaker: Speaker, version: ModelVersion) -> bool:
    """Whether a run registered this version, or the owner asks."""
    return not speaker.run or version.tags.get(MAKER_TAG) == f"{speaker.namespace}/{speaker.run}"
