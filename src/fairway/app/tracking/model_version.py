"""Changes of registered models and their versions by MLflow clients: stages, tags, names, deletion.

A stage is stored with the model, and is an alias as well: `production` refers to the newest version in the stage Production,
unless another version was promoted by hand. A version that has an alias, or that is served, cannot be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairway.app.model import ModelUseCases
from fairway.app.tracking.experiment import TokenCaller, grown
from fairway.app.tracking.model import DERIVED_TAGS, NOTE_TAG, TrackedModelUseCases, made_by
from fairway.errors import DeniedError, RefusedError, UsageError
from fairway.state.mlflow_record import RegisteredModelName
from fairway.state.model import ModelVersion

NO_STAGE = "None"
ALIAS_OF = {"Staging": "staging", "Production": "production"}
"""The alias of each stage that has one."""
STAGES = (NO_STAGE, *ALIAS_OF, "Archived")


class TrackedVersionUseCases:
    """Changes registered models. A run's token may change only models and versions that the run created."""

    def __init__(self, models: TrackedModelUseCases, registry: ModelUseCases) -> None:
        self._models = models
        self._registry = registry
        self._clock = models.tracking.clock

    # Models

    async def rename(self, speaker: TokenCaller, name: str, new: str) -> RegisteredModelName:
        """Rename a model with all its versions, aliases and tags. Refused while a version is served."""
        registered = await self._owned(speaker, name, "rename")
        versions = await self._models.versions(registered)
        self._check_made(speaker, registered, versions, "rename")
        if new == registered.name:
            return registered
        served = next((use for version in versions if (use := self._registry.in_use(version))), "")
        if served:
            message = f"model {name!r} cannot be renamed: {served}"
            raise RefusedError(message, fix="stop that service, or register the model under the other name as well")
        model = await self._models.check_free(speaker.namespace, new)
        changed = replace(registered, name=new, model=model, updated=self._clock.now(), deleted=False)
        if versions:
            title = "" if new == model else new
            await self._registry.rename(
                self._registry.own(registered.model, registered.namespace), self._registry.own(model, registered.namespace), title
            )
        self._models.put(changed)
        self._models.put(replace(registered, deleted=True))
        return changed

    async def delete(self, speaker: TokenCaller, name: str) -> None:
        """Delete a model with all its versions, or none of them: refused if one has an alias, or is served."""
        registered = await self._owned(speaker, name, "delete")
        versions = await self._models.versions(registered)
        self._check_made(speaker, registered, versions, "delete")
        for version in versions:
            await self._registry.check_delete(str(version))
        for version in versions:
            await self._registry.delete(str(version))
        self._models.put(replace(registered, deleted=True, stages={}, touched={}, tags={}, description=""))

    async def drop_tag(self, speaker: TokenCaller, name: str, key: str) -> None:
        """Remove a tag from a model; a missing tag is not an error."""
        registered = await self._owned(speaker, name, "untag")
        remaining = {tag_name: value for tag_name, value in registered.tags.items() if tag_name != key}
        self._models.put(replace(registered, tags=remaining, updated=self._clock.now()))

    async def latest(self, known: RegisteredModelName, stages: Sequence[str] = ()) -> list[ModelVersion]:
        """Return the newest version of each stage, of all stages if none is given; an alias of the stage takes precedence."""
        selected = [stage_named(item) for item in stages] or list(STAGES)
        newest: dict[str, ModelVersion] = {}
        for version in await self._models.versions(known):
            stage = stage_of(known, version)
            if stage in selected and ALIAS_OF.get(stage) not in (newest[stage].aliases if stage in newest else ()):
                newest[stage] = version
        return sorted(newest.values(), key=lambda item: item.version)

    # Versions

    async def describe(self, speaker: TokenCaller, name: str, number: str, description: str) -> ModelVersion:
        """Set the description of a version."""
        return await self.tag(speaker, name, number, {NOTE_TAG: description or None})

    async def tag(self, speaker: TokenCaller, name: str, number: str, tags: Mapping[str, str | None]) -> ModelVersion:
        """Set tags on a version; None removes one."""
        registered, version = await self._version(speaker, name, number, "change")
        ours = [key for key in tags if key in DERIVED_TAGS and key != NOTE_TAG]
        if ours:
            message = f"the tag {ours[0]} is set by Fairway when a version is registered"
            raise RefusedError(message, fix="choose another key")
        grown(version.tags, {key: value for key, value in tags.items() if value is not None}, "tags")
        changed = await self._registry.tag(str(version), tags)
        await self._touch(registered, version)
        return changed

    async def delete_version(self, speaker: TokenCaller, name: str, number: str) -> None:
        """Delete one version; refused if it has an alias, or is served. Its number is not reused."""
        registered, version = await self._version(speaker, name, number, "delete")
        await self._registry.delete(str(version))
        registered = await self._again(registered)
        stages = {
            other_number: stage for other_number, stage in registered.stages.items() if other_number != str(version.version)
        }
        touched = {
            other_number: time for other_number, time in registered.touched.items() if other_number != str(version.version)
        }
        self._models.put(replace(registered, stages=stages, touched=touched, updated=self._clock.now()))

    async def transition(self, speaker: TokenCaller, name: str, number: str, stage: str, archive: bool) -> ModelVersion:
        """Move a version to a stage, and move the alias of the stage with it.

        `archive` moves all other versions out of that stage.
        """
        new_stage = stage_named(stage)
        if archive and new_stage not in ALIAS_OF:
            message = f"existing versions cannot be archived by a transition to {stage!r}: it is not an active stage"
            raise UsageError(message, fix=f"archive_existing_versions works only with {' and '.join(ALIAS_OF)}")
        registered, version = await self._version(speaker, name, number, "change the stage of")
        versions = await self._models.versions(registered)
        before = {str(item.version): stage_of(registered, item) for item in versions}
        after = {**before, str(version.version): new_stage}
        if archive:
            others = [item for item in versions if before[str(item.version)] == new_stage and item.version != version.version]
            self._check_made(speaker, registered, others, "archive")
            after |= {str(item.version): "Archived" for item in others}
        moves = self._aliases(versions, before, after)
        for alias in moves:
            await self._models.check_may_take(speaker, registered, alias, f"transition {registered.model} from outside of a job")
        now = self._clock.now()
        changed = {item: now for item in after if after[item] != before[item]} | {str(version.version): now}
        settled = {item: item_stage for item, item_stage in after.items() if item_stage != registered.stages.get(item, NO_STAGE)}
        registered = await self._again(registered)
        stages = {item: item_stage for item, item_stage in {**registered.stages, **settled}.items() if item_stage != NO_STAGE}
        self._models.put(replace(registered, stages=stages, touched={**registered.touched, **changed}, updated=now))
        for alias, target in moves.items():
            if target is not None:
                await self._registry.promote(str(target), alias)
            else:
                await self._registry.demote(self._registry.own(registered.model, registered.namespace), alias)
        return await self._models.version(registered, str(version.version))

    async def registered(self, known: RegisteredModelName, version: ModelVersion) -> None:
        """Record that a version was just created, which changes the model."""
        model = await self._models.found(known.namespace, known.name)
        self._models.put(replace(model, updated=version.created))

    # Helpers

    @staticmethod
    def _aliases(
        versions: Sequence[ModelVersion], before: Mapping[str, str], after: Mapping[str, str]
    ) -> dict[str, ModelVersion | None]:
        """Return the aliases of stages that move: to which version, or None for removal."""
        moves: dict[str, ModelVersion | None] = {}
        for stage, alias in ALIAS_OF.items():
            if {item for item in before if before[item] == stage} == {item for item in after if after[item] == stage}:
                continue
            current = next((item for item in versions if alias in item.aliases), None)
            target = next((item for item in reversed(versions) if after[str(item.version)] == stage), None)
            if (target and target.version) != (current and current.version):
                moves[alias] = target
        return moves

    async def _owned(self, speaker: TokenCaller, name: str, verb: str) -> RegisteredModelName:
        registered = await self._models.found(speaker.namespace, name)
        if not speaker.made(registered.maker):
            message = f"{speaker.run} may not {verb} the model {name!r}: it did not create it"
            raise DeniedError(message, fix="do it from outside of a job")
        return registered

    async def _version(self, speaker: TokenCaller, name: str, number: str, verb: str) -> tuple[RegisteredModelName, ModelVersion]:
        registered = await self._models.found(speaker.namespace, name)
        version = await self._models.numbered(registered, number)
        self._check_made(speaker, registered, [version], verb)
        return registered, version

    @staticmethod
    def _check_made(speaker: TokenCaller, known: RegisteredModelName, versions: Sequence[ModelVersion], verb: str) -> None:
        other = next((version for version in versions if not made_by(speaker, version)), None)
        if other is not None:
            message = f"{speaker.run} may not {verb} {known.model}@{other.version}: it did not register that version"
            raise DeniedError(message, fix="do it from outside of a job")

    async def _again(self, found: RegisteredModelName) -> RegisteredModelName:
        """Return the current state of the model: another request may have changed it while this one waited."""
        return await self._models.found(found.namespace, found.name)

    async def _touch(self, found: RegisteredModelName, version: ModelVersion) -> None:
        found = await self._again(found)
        self._models.put(replace(found, touched={**found.touched, str(version.version): self._clock.now()}))


def stage_named(text: str) -> str:
    """Return the stage of that name, in any case."""
    for stage in STAGES:
        if stage.lower() == text.lower():
            return stage
    message = f"Invalid Model Version stage: {text[:80]!r}"
    raise UsageError(message, fix=f"use one of {', '.join(STAGES)}")


def stage_of(known: RegisteredModelName, version: ModelVersion) -> str:
    """Return the stage of a version: that of its alias, else the one to which it was moved."""
    by_alias = [stage for stage, alias in ALIAS_OF.items() if alias in version.aliases]
    return by_alias[-1] if by_alias else known.stages.get(str(version.version), NO_STAGE)
