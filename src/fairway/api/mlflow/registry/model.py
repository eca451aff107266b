"""Routes of registered models and of the aliases that refer to their versions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.filter import SearchSchema, Values, ordered, read_filter
from fairway.api.mlflow.page import page_of
from fairway.api.mlflow.parameter import MODEL_LIMIT, MlflowParameters
from fairway.api.mlflow.response import answer, milliseconds, registered_json, version_json
from fairway.api.mlflow.route import Handler, speaker
from fairway.app.tracking.model import TrackedModelUseCases
from fairway.app.tracking.model_version import TrackedVersionUseCases
from fairway.state.mlflow_record import RegisteredModelName

SEARCHED = SearchSchema({"name": str}, ("tags",))
ORDERED = SearchSchema({"name": str, **dict.fromkeys(("timestamp", "last_updated_timestamp", "creation_timestamp"), int)})
TAG_LIMIT = 100_000
"""Maximum number of characters of the value of a tag."""
_USUAL, _MOST = 100, 1000


class RegisteredModelRoutes:
    """The routes of registered models."""

    def __init__(self, models: TrackedModelUseCases, changes: TrackedVersionUseCases) -> None:
        self._models = models
        self._changes = changes

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the routes by method and path."""
        return {
            ("POST", "registered-models/create"): self.create,
            ("GET", "registered-models/get"): self.get,
            ("PATCH", "registered-models/update"): self.update,
            ("POST", "registered-models/rename"): self.rename,
            ("DELETE", "registered-models/delete"): self.delete,
            ("GET", "registered-models/search"): self.search,
            ("POST", "registered-models/set-tag"): self.tag,
            ("DELETE", "registered-models/delete-tag"): self.delete_tag,
            ("POST", "registered-models/get-latest-versions"): self.newest,
            ("GET", "registered-models/get-latest-versions"): self.newest,
            ("POST", "registered-models/alias"): self.set_alias,
            ("GET", "registered-models/alias"): self.by_alias,
            ("DELETE", "registered-models/alias"): self.delete_alias,
        }

    async def create(self, request: Request) -> Response:
        """Create a registered model."""
        fields = await MlflowParameters.of(request)
        registered = await self._models.register_name(
            speaker(request),
            fields.key("name", MODEL_LIMIT),
            fields.pairs("tags", value_limit=TAG_LIMIT),
            fields.value("description"),
        )
        return await self._registered(registered)

    async def get(self, request: Request) -> Response:
        """Return one model."""
        return await self._registered(await self._known(request, await MlflowParameters.of(request)))

    async def update(self, request: Request) -> Response:
        """Change the description."""
        fields = await MlflowParameters.of(request)
        return await self._registered(
            await self._models.describe(speaker(request), fields.text("name"), fields.value("description"), {})
        )

    async def rename(self, request: Request) -> Response:
        """Rename a model."""
        fields = await MlflowParameters.of(request)
        name, new = fields.text("name"), fields.key("new_name", MODEL_LIMIT)
        return await self._registered(await self._changes.rename(speaker(request), name, new))

    async def delete(self, request: Request) -> Response:
        """Delete the model with all versions."""
        await self._changes.delete(speaker(request), (await MlflowParameters.of(request)).text("name"))
        return answer()

    async def tag(self, request: Request) -> Response:
        """Set a tag on a model."""
        fields = await MlflowParameters.of(request)
        await self._models.describe(speaker(request), fields.text("name"), None, dict([fields.pair(TAG_LIMIT)]))
        return answer()

    async def delete_tag(self, request: Request) -> Response:
        """Remove a tag from a model."""
        fields = await MlflowParameters.of(request)
        await self._changes.drop_tag(speaker(request), fields.text("name"), fields.key("key"))
        return answer()

    async def search(self, request: Request) -> Response:
        """Return models that match a filter, in order of name."""
        fields = await MlflowParameters.of(request)
        clauses = read_filter(fields.text("filter", ""), SEARCHED)
        candidates = await self._models.all_registered(speaker(request).namespace)
        matches = [model for model in candidates if all(clause.holds(_values(model)) for clause in clauses)]
        chosen = ordered(matches, fields.texts("order_by"), _values, ORDERED)
        page, following = page_of(chosen, fields, usual=_USUAL, most=_MOST)
        return answer({"registered_models": [await self._json(model) for model in page], **following})

    async def newest(self, request: Request) -> Response:
        """Return the newest version of each stage."""
        fields = await MlflowParameters.of(request)
        registered = await self._known(request, fields)
        versions = await self._changes.latest(registered, fields.texts("stages"))
        return answer({"model_versions": [version_json(registered, version) for version in versions]})

    async def set_alias(self, request: Request) -> Response:
        """Point an alias to a version."""
        fields = await MlflowParameters.of(request)
        name, alias, number = fields.text("name"), fields.text("alias"), fields.text("version")
        registered = await self._models.registered(speaker(request).namespace, name)
        await self._models.set_alias(speaker(request), registered, alias, number)
        return answer()

    async def by_alias(self, request: Request) -> Response:
        """Return the version that an alias refers to."""
        fields = await MlflowParameters.of(request)
        name, alias = fields.text("name"), fields.text("alias")
        registered = await self._models.registered(speaker(request).namespace, name)
        version = await self._models.aliased(registered, alias)
        return answer({"model_version": version_json(registered, version)})

    async def delete_alias(self, request: Request) -> Response:
        """Remove an alias."""
        fields = await MlflowParameters.of(request)
        name, alias = fields.text("name"), fields.text("alias")
        await self._models.drop_alias(speaker(request), await self._models.registered(speaker(request).namespace, name), alias)
        return answer()

    async def _known(self, request: Request, fields: MlflowParameters) -> RegisteredModelName:
        return await self._models.registered(speaker(request).namespace, fields.text("name"))

    async def _json(self, known: RegisteredModelName) -> dict[str, object]:
        return registered_json(known, await self._models.versions(known), await self._changes.latest(known))

    async def _registered(self, known: RegisteredModelName) -> Response:
        return answer({"registered_model": await self._json(known)})


def _values(known: RegisteredModelName) -> Values:
    # Clients exclude prompts by filtering for this tag.
    tags = {"mlflow.prompt.is_prompt": "false", **known.tags}
    updated = milliseconds(max(known.created, known.updated))
    times = {"creation_timestamp": milliseconds(known.created), "timestamp": updated, "last_updated_timestamp": updated}
    return {"attributes": {"name": known.name, **times}, "tags": tags}
