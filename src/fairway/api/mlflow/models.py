"""Routes about the registry: models, their versions, and the aliases that point at them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.answers import answer, registered_json, version_json, version_uri
from fairway.api.mlflow.fields import MODEL_LIMIT, Fields
from fairway.api.mlflow.filter import Values, ordered, read_filter
from fairway.api.mlflow.paging import page_of
from fairway.api.mlflow.routing import Handler, speaker
from fairway.app.tracking_models import RUN_TAG, TrackedModels, Wanted
from fairway.state.model import ModelVersion
from fairway.state.tracking import RegisteredName


class Models:
    """The routes about the registry."""

    def __init__(self, models: TrackedModels) -> None:
        self._models = models

    def routes(self) -> dict[tuple[str, str], Handler]:
        """By method and path."""
        return {
            ("POST", "registered-models/create"): self.create,
            ("GET", "registered-models/get"): self.get,
            ("PATCH", "registered-models/update"): self.update,
            ("GET", "registered-models/search"): self.search,
            ("POST", "registered-models/set-tag"): self.tag,
            ("POST", "registered-models/get-latest-versions"): self.newest,
            ("GET", "registered-models/get-latest-versions"): self.newest,
            ("POST", "registered-models/alias"): self.set_alias,
            ("GET", "registered-models/alias"): self.by_alias,
            ("DELETE", "registered-models/alias"): self.delete_alias,
            ("POST", "model-versions/create"): self.create_version,
            ("GET", "model-versions/get"): self.get_version,
            ("GET", "model-versions/search"): self.search_versions,
            ("GET", "model-versions/get-download-uri"): self.download_uri,
        }

    async def create(self, request: Request) -> Response:
        """A new name."""
        fields = await Fields.of(request)
        made = await self._models.register_name(
            speaker(request), fields.key("name", MODEL_LIMIT), fields.pairs("tags"), fields.value("description")
        )
        return await self._registered(made)

    async def get(self, request: Request) -> Response:
        """One model."""
        return await self._registered(await self._known(request, await Fields.of(request)))

    async def update(self, request: Request) -> Response:
        """Its description."""
        fields = await Fields.of(request)
        return await self._registered(
            await self._models.describe(speaker(request), fields.text("name"), fields.value("description"), {})
        )

    async def tag(self, request: Request) -> Response:
        """Put a tag on a model."""
        fields = await Fields.of(request)
        await self._models.describe(speaker(request), fields.text("name"), None, dict([fields.pair()]))
        return answer()

    async def search(self, request: Request) -> Response:
        """Models that a filter lets through."""
        fields = await Fields.of(request)
        clauses = read_filter(fields.text("filter", ""))
        known = await self._models.all_registered(speaker(request).namespace)
        found = [each for each in known if all(clause.holds(_name_values(each)) for clause in clauses)]
        shown, following = page_of(ordered(found, fields.texts("order_by"), _name_values), fields, usual=100)
        return answer(
            {"registered_models": [registered_json(each, await self._models.versions(each)) for each in shown], **following}
        )

    async def newest(self, request: Request) -> Response:
        """Its newest version."""
        known = await self._known(request, await Fields.of(request))
        return answer({"model_versions": [version_json(known, each) for each in (await self._models.versions(known))[-1:]]})

    async def set_alias(self, request: Request) -> Response:
        """Let an alias mean a version."""
        fields = await Fields.of(request)
        known = await self._known(request, fields)
        await self._models.set_alias(speaker(request), known, fields.key("alias"), fields.text("version"))
        return answer()

    async def by_alias(self, request: Request) -> Response:
        """The version that an alias means."""
        fields = await Fields.of(request)
        known = await self._known(request, fields)
        return answer({"model_version": version_json(known, await self._models.version(known, fields.key("alias")))})

    async def delete_alias(self, request: Request) -> Response:
        """Take an alias away."""
        fields = await Fields.of(request)
        await self._models.drop_alias(speaker(request), await self._known(request, fields), fields.key("alias"))
        return answer()

    async def create_version(self, request: Request) -> Response:
        """What a run logged becomes a version."""
        fields = await Fields.of(request)
        wanted = Wanted(
            name=fields.text("name"),
            source=fields.text("source"),
            run=fields.text("run_id", ""),
            tags=fields.pairs("tags"),
            description=fields.value("description"),
        )
        made = await self._models.register(speaker(request), wanted)
        return answer({"model_version": version_json(await self._known(request, fields), made)})

    async def get_version(self, request: Request) -> Response:
        """One version."""
        known, version = await self._asked_version(request)
        return answer({"model_version": version_json(known, version)})

    async def search_versions(self, request: Request) -> Response:
        """Versions that a filter lets through, the newest first."""
        fields = await Fields.of(request)
        clauses = read_filter(fields.text("filter", ""))
        names = await self._models.all_registered(speaker(request).namespace)
        known = [(name, version) for name in names for version in reversed(await self._models.versions(name))]
        found = [each for each in known if all(clause.holds(_version_values(each)) for clause in clauses)]
        shown, following = page_of(ordered(found, fields.texts("order_by"), _version_values), fields, usual=10_000)
        return answer({"model_versions": [version_json(*each) for each in shown], **following})

    async def download_uri(self, request: Request) -> Response:
        """Where the files of a version can be read."""
        return answer({"artifact_uri": version_uri(*await self._asked_version(request))})

    async def _asked_version(self, request: Request) -> tuple[RegisteredName, ModelVersion]:
        fields = await Fields.of(request)
        known = await self._known(request, fields)
        return known, await self._models.version(known, str(fields.number("version", -1)))

    async def _known(self, request: Request, fields: Fields) -> RegisteredName:
        return await self._models.registered(speaker(request).namespace, fields.text("name"))

    async def _registered(self, known: RegisteredName) -> Response:
        return answer({"registered_model": registered_json(known, await self._models.versions(known))})


def _name_values(known: RegisteredName) -> Values:
    # Clients leave prompts out by asking for this tag.
    tags = {"mlflow.prompt.is_prompt": "false", **known.tags}
    return {"attributes": {"name": known.name, "creation_timestamp": known.created}, "tags": tags}


def _version_values(named: tuple[RegisteredName, ModelVersion]) -> Values:
    known, version = named
    run = version.tags.get(RUN_TAG) or version.lineage.run.rpartition("/")[2]
    about = {
        "name": known.name,
        "run_id": run,
        "version_number": version.version,
        "version": version.version,
        "creation_timestamp": version.created,
        "last_updated_timestamp": version.created,
    }
    return {"attributes": about, "tags": {"mlflow.prompt.is_prompt": "false", **version.tags}}
