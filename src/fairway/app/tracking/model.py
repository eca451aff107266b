"""Use cases of MLflow clients for models: those that a run logged, and those of the registry."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fairway.app.model import ModelRegistration, ModelUseCases
from fairway.app.port.port import ChangeSet
from fairway.app.port.tracking import ArtifactOwner, ArtifactStore, Kind
from fairway.app.tracking.experiment import grown
from fairway.app.tracking.run import MetricValue, TokenCaller, TrackingUseCases, location_of
from fairway.errors import ConflictError, DeniedError, NotFoundError, RefusedError, UsageError
from fairway.state.mlflow_record import LoggedModel, RegisteredModelName, TrackedRun
from fairway.state.model import LATEST, ModelFacts, ModelLineage, ModelVersion
from fairway.units.names import is_made, is_name, model_name

LOGGED = "models"
REGISTERED = "registered"
"""First path segments of artifacts that belong to no run: a logged model, a version of the registry."""
RUN_TAG = "mlflow.runId"
SOURCE_TAG = "mlflow.source"
NOTE_TAG = "mlflow.note.content"
LINK_TAG = "mlflow.runLink"
MAKER_TAG = "fairway.run"
"""The run whose token registered the version, `default/mnist-7`: it may set aliases on it. Clients cannot set this tag."""
DERIVED_TAGS = (SOURCE_TAG, RUN_TAG, NOTE_TAG, LINK_TAG, MAKER_TAG)
"""Tags of a version that have their own fields in the protocol, or that are not for clients."""
PICKLE_TAG = "fairway.allow_pickle"
"""A tag of the version that allows files that run code when loaded. On a job, the label `allow-pickle` does the same."""
PICKLE_LABEL = "allow-pickle"
PROMPT_TAG = "mlflow.prompt.is_prompt"
"""Clients store prompts as registered models with this tag."""


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """A client's request for a new version."""

    name: str
    """The client's name of the model."""
    source: str
    run: str = ""
    model: str = ""
    """The logged model to be registered as a version."""
    tags: Mapping[str, str] | None = None
    description: str = ""
    link: str = ""
    """URL of an external page about the run."""


@dataclass(frozen=True, slots=True)
class VersionContent:
    """The content of a new version."""

    folder: Path
    run: TrackedRun | None = None
    """The run that it comes from, as given by the client or as logged."""
    job: str = ""
    """The job's run whose files contain it."""
    copied: ModelVersion | None = None
    """The version of which it is a copy."""


class TrackedModelUseCases:
    """Logged models, and the registry under the clients' names."""

    def __init__(
        self,
        tracking: TrackingUseCases,
        artifacts: ArtifactStore,
        models: ModelUseCases,
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

    def log_model(self, speaker: TokenCaller, draft: LoggedModel) -> LoggedModel:
        """Create a logged model, without files yet, under a generated name."""
        job = speaker.run
        if draft.run:
            maker = self.tracking.run(speaker.namespace, draft.run)
            self.tracking.check_may_write(speaker, maker)
            job = maker.job
        group = self.tracking.experiments.get(speaker.namespace, draft.experiment)
        self.tracking.experiments.check_active(group)
        name, now = f"m-{self._new_id()}", self._clock.now()
        model = replace(
            draft, namespace=speaker.namespace, name=name, title=draft.title or name, job=job, created=now, updated=now
        )
        return self.put(replace(model, location=location_of(group.location, f"models/{name}")))

    def logged(self, namespace: str, name: str) -> LoggedModel:
        """Return the logged model of that name."""
        model = self._store.tracked(LoggedModel, namespace, name)
        if model is None or model.deleted:
            message = f"Logged model with ID {name!r} not found"
            raise NotFoundError(message, fix="log it first")
        return model

    def all_logged(self, namespace: str, experiments: list[str]) -> list[LoggedModel]:
        """Return the logged models of these experiments, newest first."""
        logged = [
            model
            for experiment in dict.fromkeys(experiments)
            for model in self._store.all_tracked(LoggedModel, namespace, experiment)
        ]
        return [model for model in logged if not model.deleted]

    def delete_logged(self, speaker: TokenCaller, name: str) -> None:
        """Mark a logged model as deleted. Its files stay with its run, and versions created from it stay in the registry."""
        model = self.logged(speaker.namespace, name)
        self._check_may_write(speaker, model)
        self.put(replace(model, deleted=True, updated=self._clock.now()))

    def drop_logged_tag(self, speaker: TokenCaller, name: str, key: str) -> LoggedModel:
        """Remove a tag from a logged model."""
        if key not in self.logged(speaker.namespace, name).tags:
            message = f"No tag with key {key!r} found for model with ID {name!r}"
            raise NotFoundError(message, fix="mlflow.get_logged_model shows its tags")
        return self.change_logged(speaker, name, tags={key: None})

    def measure_logged(self, speaker: TokenCaller, name: str, run: str, measured: MetricValue, dataset: tuple[str, str]) -> None:
        """Store a metric value of a logged model; `dataset` is the name and the digest of the data it was measured on."""
        model = self.logged(speaker.namespace, name)
        self._check_may_write(speaker, model)
        metric_key = json.dumps([measured.name, *dataset])
        stored = json.loads(model.metrics[metric_key]) if metric_key in model.metrics else None
        if stored is not None and (stored["step"], stored["time"]) > (measured.step, measured.time):
            return
        value = {"run": run, "value": repr(measured.value), "time": measured.time, "step": measured.step}
        self.put(
            replace(model, metrics=grown(model.metrics, {metric_key: json.dumps(value)}, "metrics"), updated=self._clock.now())
        )

    def change_logged(
        self,
        speaker: TokenCaller,
        name: str,
        *,
        status: str = "",
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> LoggedModel:
        """Change status, parameters and tags; a tag of None is removed."""
        model = self.logged(speaker.namespace, name)
        self._check_may_write(speaker, model)
        now_tags = {key: value for key, value in {**model.tags, **(tags or {})}.items() if value is not None}
        all_params = {**model.params, **(params or {})}
        return self.put(
            replace(model, status=status or model.status, params=all_params, tags=now_tags, updated=self._clock.now())
        )

    # The registry

    async def registered(self, namespace: str, name: str) -> RegisteredModelName:
        """Return the model that a client refers to, under that very name; its name in the registry is accepted too."""
        return replace(await self.found(namespace, name), name=name)

    async def all_registered(self, namespace: str) -> list[RegisteredModelName]:
        """Return all registered models, in order of name."""
        records = self._store.all_tracked(RegisteredModelName, namespace)
        by_model = {item.model: item for item in records if not item.deleted}
        for version in await self._models.list(namespace=namespace):
            model = self._models.shown(version, namespace).name
            by_model.setdefault(
                model, RegisteredModelName(namespace, version.title or model, model=model, created=version.created)
            )
        return sorted(by_model.values(), key=lambda item: item.name)

    async def register_name(
        self, speaker: TokenCaller, name: str, tags: Mapping[str, str], description: str
    ) -> RegisteredModelName:
        """Create a registered model. Its name in the registry is `model_name(name)`."""
        namespace = speaker.namespace
        if tags.get(PROMPT_TAG) == "true":
            message = f"{name!r} is a prompt, and Fairway has no prompts"
            raise UsageError(message, fix="keep prompts in files, as artifacts of a run or with the code")
        model = await self.check_free(namespace, name)
        registered = RegisteredModelName(
            namespace, name, model=model, created=self._clock.now(), description=description, tags=dict(tags)
        )
        return self.put(replace(registered, maker=speaker.run))

    async def check_free(self, namespace: str, name: str) -> str:
        """Return the registry's name for a new model; raise if the name is taken or invalid."""
        if not name.strip() or any(letter in name for letter in "/:"):
            message = f"{name!r} is not a valid name of a registered model: it has no letters, or contains '/' or ':'"
            raise UsageError(message, fix="choose another name")
        if await self._registered(namespace, name) is not None:
            message = f"Registered Model (name={name}) already exists"
            raise ConflictError(message, fix="make a version of it, or choose another name")
        model = model_name(name)
        taken = next((registered.name for registered in await self.all_registered(namespace) if registered.model == model), "")
        if taken:
            message = f"{name!r} would have the name {model} in the registry, like {taken!r}"
            raise UsageError(message, fix="choose another name")
        return model

    async def describe(
        self, speaker: TokenCaller, name: str, description: str | None, tags: Mapping[str, str]
    ) -> RegisteredModelName:
        """Change description and tags of a model. A run's token may change only a model that it created."""
        registered = await self.found(speaker.namespace, name)
        if not speaker.made(registered.maker):
            message = f"{speaker.run} may not describe the model {name!r}: it did not create it"
            raise DeniedError(message, fix="put tags on the version that the run registers, or describe it from outside of a job")
        new_description = registered.description if description is None else description
        all_tags = grown(registered.tags, tags, "tags")
        return replace(
            self.put(replace(registered, description=new_description, tags=all_tags, updated=self._clock.now())), name=name
        )

    async def versions(self, known: RegisteredModelName) -> list[ModelVersion]:
        """Return the versions of a model, oldest first."""
        return await self._models.list(self._models.own(known.model, known.namespace))

    async def all_versions(self, namespace: str) -> list[tuple[RegisteredModelName, ModelVersion]]:
        """Return every version of every model, models in order of name, the newest version of each first."""
        by_model: dict[str, list[ModelVersion]] = {}
        for version in await self._models.list(namespace=namespace):
            by_model.setdefault(self._models.shown(version, namespace).name, []).insert(0, version)
        return [
            (registered, model_version)
            for registered in await self.all_registered(namespace)
            for model_version in by_model.get(registered.model, ())
        ]

    async def version(self, known: RegisteredModelName, which: str) -> ModelVersion:
        """Return the version of that number or alias."""
        return await self._models.get(self._models.own(f"{known.model}@{which}", known.namespace))

    async def numbered(self, known: RegisteredModelName, number: str) -> ModelVersion:
        """Return the version of that number; aliases are not accepted."""
        if not number.isascii() or not number.isdigit():
            message = f"Parameter 'version' must be an integer, got {number[:80]!r}"
            raise UsageError(message, fix="name a version by its number")
        try:
            return await self.version(known, str(int(number)))
        except NotFoundError as problem:
            message = f"Model Version (name={known.name}, version={number}) not found"
            raise NotFoundError(message, fix=problem.message) from None

    async def aliased(self, known: RegisteredModelName, alias: str) -> ModelVersion:
        """Return the version that an alias refers to."""
        version = next((candidate for candidate in await self.versions(known) if alias in candidate.aliases), None)
        if version is not None:
            return version
        if alias.lower() == LATEST:
            return await self.version(known, LATEST)
        # Clients interpret this kind of error as "the alias does not exist".
        message = f"Registered model alias {alias} not found"
        raise UsageError(message, fix=f"`fairway model list {known.model}` shows the aliases")

    async def register(self, speaker: TokenCaller, wanted: VersionRequest) -> ModelVersion:
        """Store a logged model as a version, with its origin."""
        registered = await self.found(speaker.namespace, wanted.name)
        content = await self._content(speaker, wanted)
        run, copied = content.run, content.copied
        facts = self.tracking.facts(run) if run is not None else None
        job = self.tracking.job_of(run) if run is not None else None
        tags = {**(wanted.tags or {}), SOURCE_TAG: wanted.source, NOTE_TAG: wanted.description, LINK_TAG: wanted.link}
        tags |= {RUN_TAG: run.name if run else copied.tags.get(RUN_TAG, "") if copied else ""}
        tags |= {MAKER_TAG: f"{speaker.namespace}/{speaker.run}" if speaker.run else ""}
        pickle = tags.pop(PICKLE_TAG, "") or (job.labels.get(PICKLE_LABEL, "") if job is not None else "")
        model_facts = ModelFacts(
            metrics={metric.name: metric.value for metric in facts.metrics if math.isfinite(metric.value)} if facts else {},
            best=dict(facts.best) if facts else {},
            lineage=ModelLineage(parameters=dict(run.params) if run else {}, source="" if job else wanted.source),
            tags={name: value for name, value in tags.items() if value},
            title="" if registered.name == registered.model else registered.name,
            # The content of an existing version was allowed when that version was registered.
            allow_pickle=pickle.lower() == "true" or copied is not None,
            anew=True,
        )
        registration = ModelRegistration(
            registered.model,
            str(content.folder),
            model_facts,
            run=job.key if job is not None else None,
            namespace=speaker.namespace,
        )
        # Only files within the shelf of that very run were written by it; a client may name any run.
        registration = replace(registration, made_here=job is not None and content.job == job.key.name)
        try:
            version = await self._models.register(registration)
        except RefusedError as problem:
            if "--allow-pickle" not in problem.fix:
                raise
            fix = (
                f"log it as ONNX; or, if you trust it: the tag {PICKLE_TAG}=true, or the label {PICKLE_LABEL}: 'true' of the job"
            )
            raise RefusedError(problem.message, fix=fix) from problem
        if run is not None:
            self.tracking.note_version(speaker, run, str(self._models.shown(version, speaker.namespace)))
        return version

    async def set_alias(self, speaker: TokenCaller, known: RegisteredModelName, alias: str, number: str) -> None:
        """Point an alias to a version.

        A run's token may only use its own versions, and not take an alias from another's version.
        """
        version = await self.numbered(known, number)
        name = f"{known.model}@{version.version}"
        fix = f"promote it from outside of a job: fairway model promote {name} {alias}"
        if not made_by(speaker, version):
            message = f"{speaker.run} may not put the alias {alias} on {name}: it did not register that version"
            raise DeniedError(message, fix=fix)
        await self.check_may_take(speaker, known, alias, fix)
        await self._models.promote(str(version), alias)

    async def drop_alias(self, speaker: TokenCaller, known: RegisteredModelName, alias: str) -> None:
        """Remove an alias. A run's token may do so if the alias refers to its own version, or if it created the model."""
        fix = f"remove it from outside of a job: fairway model promote {known.model} {alias} --remove"
        await self.check_may_take(speaker, known, alias, fix)
        if not any(alias in version.aliases for version in await self.versions(known)):
            return
        await self._models.demote(self._models.own(known.model, known.namespace), alias)

    # Files

    def shelf(self, namespace: str, path: str) -> tuple[ArtifactOwner, str]:
        """Return the shelf of an artifact path, and the path within it. Versions of the registry are not included."""
        first, _, rest = path.partition("/")
        if first == LOGGED:
            name, _, rest = rest.partition("/")
            model = self.logged(namespace, name)
            return ArtifactOwner(namespace, model.name, model.job), rest
        return self.tracking.facts(self.tracking.run(namespace, first)).shelf, rest

    async def version_file(self, namespace: str, path: str) -> Path:
        """Return a file or folder of a version: `mnist/3/model.onnx`, with the name in the registry."""
        name, _, rest = path.partition("/")
        return await self._file_of(RegisteredModelName(namespace, name, model=name), rest)

    def check_may_write(self, speaker: TokenCaller, path: str) -> None:
        """Check that a run's token writes only files of its job's own runs and logged models."""
        first, _, rest = path.partition("/")
        if first == LOGGED:
            self._check_may_write(speaker, self.logged(speaker.namespace, rest.partition("/")[0]))
        else:
            self.tracking.check_may_write(speaker, self.tracking.run(speaker.namespace, first))

    # Helpers

    async def found(self, namespace: str, name: str) -> RegisteredModelName:
        """Return the model that a client's name refers to, with the name under which it was registered."""
        registered = await self._registered(namespace, name)
        if registered is None:
            message = f"Registered Model with name={name} not found"
            raise NotFoundError(message, fix="register one; `fairway model list` shows the models")
        return registered

    async def _registered(self, namespace: str, name: str) -> RegisteredModelName | None:
        """Return the same as `found`; None if there is none."""
        registered = self._store.tracked(RegisteredModelName, namespace, name)
        if registered is not None and registered.deleted:
            registered = None
        if registered is None and (is_made(name) or not is_name(name)):
            # Its record may be in another namespace, or lost; the versions contain the name as well.
            versions = [item for item in await self._models.list(namespace=namespace) if item.title == name]
            if versions:
                model = self._models.shown(versions[0], namespace).name
                return RegisteredModelName(namespace, name, model=model, created=versions[0].created)
        if registered is not None or not is_name(name):
            return registered
        records = self._store.all_tracked(RegisteredModelName, namespace)
        result = next((item for item in records if item.model == name and not item.deleted), None)
        if result is None and (versions := await self._models.list(self._models.own(name, namespace))):
            result = RegisteredModelName(namespace, versions[-1].title or name, model=name, created=versions[0].created)
        return result

    async def _file_of(self, known: RegisteredModelName, path: str) -> Path:
        """Return a file or folder of a version: `3/model.onnx`."""
        number, _, rest = path.partition("/")
        version = await self.version(known, number)
        root = (await self._models.folder(version)).resolve()
        target = (root / rest).resolve()
        if not target.is_relative_to(root) or not target.exists():
            message = f"{known.name} version {number} has no file {rest!r}"
            raise NotFoundError(message, fix="list the files of the version")
        return target

    async def check_may_take(self, speaker: TokenCaller, known: RegisteredModelName, alias: str, fix: str) -> None:
        """Raise `DeniedError` if both the model and the version that the alias refers to were created by others."""
        current = next((version for version in await self.versions(known) if alias in version.aliases), None)
        if current is not None and not made_by(speaker, current) and not speaker.made(known.maker):
            message = f"{speaker.run} may not move the alias {alias} of {known.model}, which is version {current.version} now"
            raise DeniedError(message, fix=fix)

    async def _content(self, speaker: TokenCaller, wanted: VersionRequest) -> VersionContent:
        """Return the content of a new version, and its origin."""
        namespace = speaker.namespace
        scheme, _, rest = wanted.source.partition(":/")
        rest = rest.lstrip("/")
        if scheme == "models" and not rest.startswith("m-"):
            # A copy of an existing version under another name: its origin is recorded only as its source.
            name, _, rest = rest.partition("/")
            registered = await self.registered(namespace, name)
            number, _, inside = rest.partition("/")
            copied = None if inside else await self.version(registered, number)
            return VersionContent(await self._file_of(registered, rest), copied=copied)
        prefixes = {"mlflow-artifacts": rest, "runs": rest, "models": f"{LOGGED}/{rest}"}
        if scheme not in prefixes or re.match(r"[\w-]+://[^/]", wanted.source):
            message = f"{wanted.source!r} cannot be registered: Fairway does not store it"
            raise UsageError(message, fix="log it as an artifact of a run first; for a path: fairway model register NAME PATH")
        if rest.startswith(f"{REGISTERED}/"):
            return VersionContent(await self.version_file(namespace, rest.removeprefix(f"{REGISTERED}/")))
        shelf, path = self.shelf(namespace, prefixes[scheme])
        first, _, _ = prefixes[scheme].partition("/")
        maker = self.logged(namespace, shelf.name).run if first == LOGGED else shelf.name
        name = wanted.run or maker
        run = self.tracking.run(namespace, name) if name else None
        if run is not None and run.name != maker and not speaker.made(run.job):
            message = f"{speaker.run} may not register {wanted.source!r} as an output of {run.name}: another run logged it"
            raise DeniedError(message, fix=f"leave run_id out, or name {maker or speaker.run}")
        return VersionContent(self.artifacts.find(shelf, path), run, shelf.job)

    def _check_may_write(self, speaker: TokenCaller, model: LoggedModel) -> None:
        owner = TrackedRun(model.namespace, model.name, job=model.job)
        self.tracking.check_may_write(speaker, owner)

    def put(self, record: Kind) -> Kind:
        """Store a record."""
        self._store.commit(ChangeSet(tracked=(record,)))
        return record


def made_by(speaker: TokenCaller, version: ModelVersion) -> bool:
    """Return whether the calling run registered this version, or the caller is the owner."""
    return not speaker.run or version.tags.get(MAKER_TAG) == f"{speaker.namespace}/{speaker.run}"
