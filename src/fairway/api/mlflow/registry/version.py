"""Routes of the versions of registered models."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.filter import SearchSchema, Values, ordered, read_filter
from fairway.api.mlflow.page import page_of
from fairway.api.mlflow.parameter import MlflowParameters
from fairway.api.mlflow.registry.model import TAG_LIMIT
from fairway.api.mlflow.response import (
    answer,
    changed,
    client_tags,
    milliseconds,
    run_of,
    source_of,
    version_json,
    version_uri,
)
from fairway.api.mlflow.route import Handler, speaker
from fairway.app.tracking.model import TrackedModelUseCases, VersionRequest
from fairway.app.tracking.model_version import TrackedVersionUseCases
from fairway.state.mlflow_record import RegisteredModelName
from fairway.state.model import ModelVersion

TEXTS = ("name", "run_id", "source_path", "source")
NUMBERS = ("version_number", "version", "creation_timestamp", "last_updated_timestamp")
SEARCHED = SearchSchema({**dict.fromkeys(TEXTS, str), **dict.fromkeys(NUMBERS, int)}, ("tags",))
_USUAL, _MOST = 10_000, 200_000


class ModelVersionRoutes:
    """The routes of versions."""

    def __init__(self, models: TrackedModelUseCases, changes: TrackedVersionUseCases) -> None:
        self._models = models
        self._changes = changes

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the routes by method and path."""
        return {
            ("POST", "model-versions/create"): self.create,
            ("GET", "model-versions/get"): self.get,
            ("PATCH", "model-versions/update"): self.update,
            ("DELETE", "model-versions/delete"): self.delete,
            ("GET", "model-versions/search"): self.search,
            ("POST", "model-versions/set-tag"): self.tag,
            ("DELETE", "model-versions/delete-tag"): self.delete_tag,
            ("POST", "model-versions/transition-stage"): self.transition,
            ("GET", "model-versions/get-download-uri"): self.download_uri,
        }

    async def create(self, request: Request) -> Response:
        """Register the output of a run as a version."""
        fields = await MlflowParameters.of(request)
        registration = VersionRequest(
            name=fields.text("name"),
            source=fields.text("source"),
            run=fields.text("run_id", ""),
            tags=fields.pairs("tags", value_limit=TAG_LIMIT),
            description=fields.value("description"),
            link=fields.value("run_link"),
        )
        version = await self._models.register(speaker(request), registration)
        registered = await self._models.registered(speaker(request).namespace, registration.name)
        await self._changes.registered(registered, version)
        return answer({"model_version": version_json(registered, version)})

    async def get(self, request: Request) -> Response:
        """Return one version."""
        return await self._one(request, await MlflowParameters.of(request))

    async def update(self, request: Request) -> Response:
        """Change the description."""
        fields = await MlflowParameters.of(request)
        if fields.has("description"):
            name, number = fields.text("name"), fields.text("version")
            await self._changes.describe(speaker(request), name, number, fields.value("description"))
        return await self._one(request, fields)

    async def delete(self, request: Request) -> Response:
        """Delete one version."""
        fields = await MlflowParameters.of(request)
        await self._changes.delete_version(speaker(request), fields.text("name"), fields.text("version"))
        return answer()

    async def search(self, request: Request) -> Response:
        """Return versions that match a filter, the last changed first."""
        fields = await MlflowParameters.of(request)
        clauses = read_filter(fields.text("filter", ""), SEARCHED)
        candidates = await self._models.all_versions(speaker(request).namespace)
        matches = [pair for pair in candidates if all(clause.holds(_values(pair)) for clause in clauses)]
        orders = fields.texts("order_by") or ["last_updated_timestamp DESC"]
        page, following = page_of(ordered(matches, orders, _values, SEARCHED), fields, usual=_USUAL, most=_MOST)
        return answer({"model_versions": [version_json(*pair) for pair in page], **following})

    async def tag(self, request: Request) -> Response:
        """Set a tag on a version."""
        fields = await MlflowParameters.of(request)
        key, value = fields.pair(TAG_LIMIT)
        await self._changes.tag(speaker(request), fields.text("name"), fields.text("version"), {key: value})
        return answer()

    async def delete_tag(self, request: Request) -> Response:
        """Remove a tag from a version."""
        fields = await MlflowParameters.of(request)
        tags = {fields.key("key"): None}
        await self._changes.tag(speaker(request), fields.text("name"), fields.text("version"), tags)
        return answer()

    async def transition(self, request: Request) -> Response:
        """Move a version to a stage."""
        fields = await MlflowParameters.of(request)
        name, number, stage = fields.text("name"), fields.text("version"), fields.text("stage")
        await self._changes.transition(speaker(request), name, number, stage, fields.flag("archive_existing_versions"))
        return await self._one(request, fields)

    async def download_uri(self, request: Request) -> Response:
        """Return the URI of a version's files."""
        fields = await MlflowParameters.of(request)
        return answer({"artifact_uri": version_uri(*await self._asked(request, fields))})

    async def _one(self, request: Request, fields: MlflowParameters) -> Response:
        return answer({"model_version": version_json(*await self._asked(request, fields))})

    async def _asked(self, request: Request, fields: MlflowParameters) -> tuple[RegisteredModelName, ModelVersion]:
        name, number = fields.text("name"), fields.text("version")
        registered = await self._models.registered(speaker(request).namespace, name)
        return registered, await self._models.numbered(registered, number)


def _values(named: tuple[RegisteredModelName, ModelVersion]) -> Values:
    registered, version = named
    source = source_of(registered, version)
    attributes = {
        "name": registered.name,
        "run_id": run_of(version),
        "source": source,
        "source_path": source,
        "version_number": version.version,
        "version": version.version,
        "creation_timestamp": milliseconds(version.created),
        "last_updated_timestamp": milliseconds(changed(registered, version)),
    }
    return {"attributes": attributes, "tags": {"mlflow.prompt.is_prompt": "false", **client_tags(version)}}
