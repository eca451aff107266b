"""Changes to registered models and their versions by MLflow clients: stages, tags, names, deletion.

A stage is kept with the model, and is an alias as well: `production` means the newest version in the stage Production, unless
another version was promoted by hand. A version that an alias means, or that is served, is not deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairway.app.models import Models
from fairway.app.tracking_experiments import Speaker, grown
from fairway.app.tracking_models import DERIVED_TAGS, NOTE_TAG, TrackedModels, made_by
from fairway.errors import DeniedError, RefusedError, UsageError
from fairway.state.model import ModelVersion
from fairway.state.tracking import RegisteredName

NO_STAGE = "None"
ALIAS_OF = {"Staging": "staging", "Production": "production"}
"""The alias of each stage that has one."""
STAGES = (NO_STAGE, *ALIAS_OF, "Archived")


class TrackedVersions:
    """Changes registered models. A run's token changes the models and versions that the run made."""

    def __init__(self, models: TrackedModels, registry: Models) -> None:
        self._models = models
        self._registry = registry
        self._clock = models.tracking.clock

    # Models

    async def rename(self, speaker: Speaker, name: str, new: str) -> RegisteredName:
        """Give a model another name, with all its versions, aliases and tags. Refused while a version is served."""
        found = await self._owned(speaker, name, "rename")
        versions = await self._models.versions(found)
        self._check_made(speaker, found, versions, "rename")
        if new == found.name:
            return found
        served = next((use for each in versions if (use := self._registry.in_use(each))), "")
        if served:
            message = f"model {name!r} cannot be renamed: {served}"
            raise RefusedError(message, fix="stop that service, or register the model under the other name as well")
        model = await self._models.check_free(speaker.namespace, new)
        changed = replace(found, name=new, model=model, updated=self._clock.now(), deleted=False)
        if versions:
            title = "" if new == model else new
            await self._registry.rename(
                self._registry.own(found.model, found.namespace), self._registry.own(model, found.namespace), title
            )
        self._models.put(changed)
        self._models.put(replace(found, deleted=True))
        return changed

    async def delete(self, speaker: Speaker, name: str) -> None:
        """Delete a model with all its versions, or none of them: refused where an alias means one, or one is served."""
        found = await self._owned(speaker, name, "delete")
        versions = await self._models.versions(found)
        self._check_made(speaker, found, versions, "delete")
        for version in versions:
            await self._registry.check_delete(str(version))
        for version in versions:
            await self._registry.delete(str(version))
        self._models.put(replace(found, deleted=True, stages={}, touched={}, tags={}, description=""))

    async def drop_tag(self, speaker: Speaker, name: str, key: str) -> None:
        """Take a tag off a model; a tag that is not there is no mistake."""
        found = await self._owned(speaker, name, "untag")
        kept = {each: value for each, value in found.tags.items() if each != key}
        self._models.put(replace(found, tags=kept, updated=self._clock.now()))

    async def latest(self, known: RegisteredName, stages: Sequence[str] = ()) -> list[ModelVersion]:
        """The newest version of each stage, of all stages where none is named; an alias of the stage decides which."""
        wanted = [stage_named(each) for each in stages] or list(STAGES)
        found: dict[str, ModelVersion] = {}
        for version in await self._models.versions(known):
            stage = stage_of(known, version)
            if stage in wanted and ALIAS_OF.get(stage) not in (found[stage].aliases if stage in found else ()):
                found[stage] = version
        return sorted(found.values(), key=lambda each: each.version)

    # Versions

    async def describe(self, speaker: Speaker, name: str, number: str, description: str) -> ModelVersion:
        """Say what a version is."""
        return await self.tag(speaker, name, number, {NOTE_TAG: description or None})

    async def tag(self, speaker: Speaker, name: str, number: str, tags: Mapping[str, str | None]) -> ModelVersion:
        """Put tags on a version; None takes one off."""
        found, version = await self._version(speaker, name, number, "change")
        ours = [key for key in tags if key in DERIVED_TAGS and key != NOTE_TAG]
        if ours:
            message = f"the tag {ours[0]} is set by Fairway when a version is registered"
            raise RefusedError(message, fix="choose another key")
        grown(version.tags, {key: value for key, value in tags.items() if value is not None}, "tags")
        changed = await self._registry.tag(str(version), tags)
        await self._touch(found, version)
        return changed

    async def delete_version(self, speaker: Speaker, name: str, number: str) -> None:
        """Delete one version; refused where an alias means it, or it is served. Its number is not used again."""
        found, version = await self._version(speaker, name, number, "delete")
        await self._registry.delete(str(version))
        found = await self._again(found)
        stages = {each: stage for each, stage in found.stages.items() if each != str(version.version)}
        touched = {each: time for each, time in found.touched.items() if each != str(version.version)}
        self._models.put(replace(found, stages=stages, touched=touched, updated=self._clock.now()))

    async def transition(self, speaker: Speaker, name: str, number: str, stage: str, archive: bool) -> ModelVersion:
        """Put a version into a stage, and let the alias of the stage follow. `archive` takes all others out of that stage."""
        wanted = stage_named(stage)
        if archive and wanted not in ALIAS_OF:
            message = f"existing versions cannot be archived by a transition to {stage!r}: it is no active stage"
            raise UsageError(message, fix=f"archive_existing_versions goes with {' and '.join(ALIAS_OF)}")
        found, version = await self._version(speaker, name, number, "change the stage of")
        versions = await self._models.versions(found)
        before = {str(each.version): stage_of(found, each) for each in versions}
        after = {**before, str(version.version): wanted}
        if archive:
            others = [each for each in versions if before[str(each.version)] == wanted and each.version != version.version]
            self._check_made(speaker, found, others, "archive")
            after |= {str(each.version): "Archived" for each in others}
        moves = self._aliases(versions, before, after)
        for alias in moves:
            await self._models.check_may_take(speaker, found, alias, f"transition {found.model} from outside of a job")
        now = self._clock.now()
        changed = {each: now for each in after if after[each] != before[each]} | {str(version.version): now}
        settled = {each: known for each, known in after.items() if known != found.stages.get(each, NO_STAGE)}
        found = await self._again(found)
        stages = {each: known for each, known in {**found.stages, **settled}.items() if known != NO_STAGE}
        self._models.put(replace(found, stages=stages, touched={**found.touched, **changed}, updated=now))
        for alias, meant in moves.items():
            if meant is not None:
                await self._registry.promote(str(meant), alias)
            else:
                await self._registry.demote(self._registry.own(found.model, found.namespace), alias)
        return await self._models.version(found, str(version.version))

    async def registered(self, known: RegisteredName, version: ModelVersion) -> None:
        """A version was made just now: the model changed with it."""
        found = await self._models.found(known.namespace, known.name)
        self._models.put(replace(found, updated=version.created))

    # Parts

    @staticmethod
    def _aliases(
        versions: Sequence[ModelVersion], before: Mapping[str, str], after: Mapping[str, str]
    ) -> dict[str, ModelVersion | None]:
        """Which aliases of stages move: to which version, or away."""
        moves: dict[str, ModelVersion | None] = {}
        for stage, alias in ALIAS_OF.items():
            if {each for each in before if before[each] == stage} == {each for each in after if after[each] == stage}:
                continue
            standing = next((each for each in versions if alias in each.aliases), None)
            meant = next((each for each in reversed(versions) if after[str(each.version)] == stage), None)
            if (meant and meant.version) != (standing and standing.version):
                moves[alias] = meant
        return moves

    async def _owned(self, speaker: Speaker, name: str, verb: str) -> RegisteredName:
        found = await self._models.found(speaker.namespace, name)
        if not speaker.made(found.maker):
            message = f"{speaker.run} may not {verb} the model {name!r}: it did not make it"
            raise DeniedError(message, fix="do it from outside of a job")
        return found

    async def _version(self, speaker: Speaker, name: str, number: str, verb: str) -> tuple[RegisteredName, ModelVersion]:
        found = await self._models.found(speaker.namespace, name)
        version = await self._models.numbered(found, number)
        self._check_made(speaker, found, [version], verb)
        return found, version

    @staticmethod
    def _check_made(speaker: Speaker, known: RegisteredName, versions: Sequence[ModelVersion], verb: str) -> None:
        other = next((each for each in versions if not made_by(speaker, each)), None)
        if other is not None:
            message = f"{speaker.run} may not {verb} {known.model}@{other.version}: it did not register that version"
            raise DeniedError(message, fix="do it from outside of a job")

    async def _again(self, found: RegisteredName) -> RegisteredName:
        """The model as it is now: another request may have changed it while this one waited."""
        return await self._models.found(found.namespace, found.name)

    async def _touch(self, found: RegisteredName, version: ModelVersion) -> None:
        found = await self._again(found)
        self._models.put(replace(found, touched={**found.touched, str(version.version): self._clock.now()}))


def stage_named(text: str) -> str:
    """The stage of that name, in any case."""
    for stage in STAGES:
        if stage.lower() == text.lower():
            return stage
    message = f"Invalid Model Version stage: {text[:80]!r}"
    raise UsageError(message, fix=f"use one of {', '.join(STAGES)}")


def stage_of(known: RegisteredName, version: ModelVersion) -> str:
    """The stage of a version: that of an alias which it has, else the one that it was put into."""
    by_alias = [stage for stage, alias in ALIAS_OF.items() if alias in version.aliases]
    return by_alias[-1] if by_alias else known.stages.get(str(version.version), NO_STAGE)
