"""Routes of models: versions, aliases, and operations on them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.event import show_events
from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import StreamingBody, json_answer, show
from fairway.api.verification import ALL, verifying
from fairway.app.application import Application
from fairway.app.model import ModelRegistration, subject
from fairway.errors import UsageError
from fairway.state.model import ModelFacts, ModelFile, ModelVersion
from fairway.views.model import (
    AliasPromotionView,
    ModelList,
    ModelView,
    model_diff,
    model_diff_text,
    model_text,
    model_view,
    models_text,
    promotion_text,
)
from fairway.views.plan import PlanView, plan_text


class ModelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model to register, with its name."""

    name: str
    source: str
    """An absolute path; with `imported`, any URI."""
    metrics: dict[str, float] = {}
    tags: dict[str, str] = {}
    from_run: str = ""
    format: str = ""
    allow_pickle: bool = False
    imported: bool = False
    plan: bool = False
    manifest: str = ""
    """The digest of the content uploaded before, if the source is on another machine."""


class PromoteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The alias to move to this version, or to remove."""

    alias: str
    remove: bool = False
    plan: bool = False


class TagBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tags to set; null removes one."""

    tags: dict[str, str | None]


class PullBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The target folder."""

    folder: str
    """Absolute path."""


class ModelRoutes:
    """The routes of models."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._models = application.models

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        model_path = "/v1/models/{name}"
        return [
            Route("/v1/models", self.list, methods=["GET"]),
            Route("/v1/models", self.register, methods=["POST"]),
            Route(model_path, self.get, methods=["GET"]),
            Route(model_path, self.delete, methods=["DELETE"]),
            Route(f"{model_path}/events", self.events, methods=["GET"]),
            Route(f"{model_path}/promote", self.promote, methods=["POST"]),
            Route(f"{model_path}/tags", self.tag, methods=["POST"]),
            Route(f"{model_path}/pull", self.pull, methods=["POST"]),
            Route(f"{model_path}/verify", self.verify, methods=["GET"]),
            Route(f"{model_path}/diff/{{other}}", self.diff, methods=["GET"]),
        ]

    async def list(self, request: Request) -> Response:
        """List every version of every model, or of one."""
        params = RequestParameters(request)
        name = self._own(params, params.text("name")) if params.text("name") else ""
        versions = await self._models.list(name, params.namespace)
        if name and not versions:
            await self._models.get(name)
        view = ModelList(tuple(self._view(params, item) for item in versions))
        return show(
            params,
            view,
            text=lambda page: models_text(view.models, self._application.clock.now(), page),
            called=lambda: (str(item) for item in view.models),
        )

    async def get(self, request: Request) -> Response:
        """Return one version, with its files."""
        params = RequestParameters(request)
        version = await self._models.get(self._own(params))
        view = self._view(params, version, await self._models.files(version))
        return show(
            params,
            view,
            text=lambda page: model_text(view, self._application.clock.now(), page),
            called=lambda: [str(view)],
        )

    async def register(self, request: Request) -> Response:
        """Store files as the next version; the newest version's content and facts again return that version."""
        params = RequestParameters(request)
        body = await params.body(ModelBody)
        if "://" not in body.source:
            _check_absolute("source", body.source)
        run = self._application.find(params.namespace, body.from_run).key if body.from_run else None
        facts = ModelFacts(metrics=body.metrics, tags=body.tags, format=body.format, allow_pickle=body.allow_pickle)
        registration = ModelRegistration(
            body.name, body.source, facts, run, body.imported, body.manifest, namespace=params.namespace
        )
        if body.plan:
            format_found = await self._models.preview(registration)
            sentence = f"{body.source} ({format_found}) would become the next version of {body.name}"
            return self._plan(params, sentence)
        view = self._view(params, await self._models.register(registration, params.key()))
        return show(
            params,
            view,
            text=lambda page: model_text(view, self._application.clock.now(), page),
            called=lambda: [str(view)],
            status=201,
        )

    async def promote(self, request: Request) -> Response:
        """Move an alias to a version, or with `remove`, remove it."""
        params = RequestParameters(request)
        body = await params.body(PromoteBody)
        version = await self._models.get(self._own(params))
        name = str(self._models.shown(version, params.namespace))
        model = name.partition("@")[0]
        if body.plan:
            current = [item.version for item in await self._models.list(version.name) if body.alias in item.aliases]
            was = f"; now it is {model}@{current[0]}" if current else ""
            return self._plan(
                params, f"{name} would no longer be {body.alias}" if body.remove else f"{name} would be {body.alias}{was}"
            )
        if body.remove:
            number = await self._models.demote(self._own(params), body.alias)
            view = AliasPromotionView(body.alias, "", f"{model}@{number}")
        else:
            moved, before = await self._models.promote(str(version), body.alias)
            view = AliasPromotionView(body.alias, f"{model}@{moved.version}", f"{model}@{before}" if before is not None else "")
        return show(params, view, text=lambda _page: promotion_text(view), called=lambda: [view.version or view.before])

    async def tag(self, request: Request) -> Response:
        """Set tags on a version, or remove them."""
        params = RequestParameters(request)
        tags = (await params.body(TagBody)).tags
        return json_answer(self._view(params, await self._models.tag(self._own(params), tags)))

    async def pull(self, request: Request) -> Response:
        """Copy a version's files into a new folder."""
        params = RequestParameters(request)
        body = await params.body(PullBody)
        _check_absolute("folder", body.folder)
        version = await self._models.pull(self._own(params), body.folder)
        return json_answer(self._view(params, version))

    async def verify(self, request: Request) -> StreamingBody:
        """Compare content with its digests: of one version, of all versions of a model, or of all models (`*`)."""
        params = RequestParameters(request)
        reference = "" if params.name == ALL else self._own(params)
        if reference:
            await self._models.get(reference)
        return verifying(params, lambda course: self._models.verify(reference, params.namespace, course))

    async def delete(self, request: Request) -> Response:
        """Delete a version, or with `keep` all but the newest `keep`; aliased and served versions are never deleted."""
        params = RequestParameters(request)
        keep = params.optional_number("keep", least=1)
        if keep is None:
            versions = [await self._models.check_delete(self._own(params))]
        else:
            versions = await self._models.superfluous(self._own(params), keep)
        names = [str(self._models.shown(version, params.namespace)) for version in versions]
        if params.flag("plan"):
            return self._plan(params, *(f"{name} would be deleted" for name in names))
        for version in versions:
            await self._models.delete(str(version))
        return json_answer({"deleted": names})

    async def events(self, request: Request) -> Response:
        """Return the events of a model, oldest first."""
        params = RequestParameters(request)
        return show_events(self._application, params, subject((await self._models.get(self._own(params))).name))

    async def diff(self, request: Request) -> Response:
        """Return the differences between two versions."""
        params = RequestParameters(request)
        before = await self._models.get(self._own(params))
        after = await self._models.get(self._own(params, str(request.path_params["other"])))
        files = [await self._models.files(item) for item in (before, after)]
        view = model_diff(self._models.shown(before, params.namespace), self._models.shown(after, params.namespace), *files)
        return show(
            params, view, text=lambda page: model_diff_text(view, page), called=lambda: (item.name for item in view.differences)
        )

    def _own(self, asked: RequestParameters, name: str = "") -> str:
        """Resolve a name in the request's namespace only."""
        return self._models.own(name or asked.name, asked.namespace)

    def _view(self, asked: RequestParameters, version: ModelVersion, files: Sequence[ModelFile] | None = None) -> ModelView:
        models = self._models
        return model_view(models.shown(version, asked.namespace), models.in_use(version), files, models.batching(version))

    @staticmethod
    def _plan(asked: RequestParameters, *sentences: str) -> Response:
        view = PlanView(sentences or ("nothing would change",), ())
        return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.sentences)


def _check_absolute(field: str, path: str) -> None:
    """Reject a relative path: the daemon does not run in the caller's folder."""
    if not path.startswith("/"):
        message = f"{field}={path!r} is not an absolute path"
        raise UsageError(message, fix="write the whole path, from the root of the file system")
