"""Routes about models: versions, aliases, and what may be done with them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.answer import Stream, json_answer, show
from fairway.api.asking import Asked
from fairway.api.happened import show_events
from fairway.api.verifying import ALL, verifying
from fairway.app.application import Application
from fairway.app.models import Registration, subject
from fairway.errors import UsageError
from fairway.state.model import ModelFacts, ModelFile, ModelVersion
from fairway.views.model import (
    ModelList,
    ModelView,
    PromotionView,
    model_diff,
    model_diff_text,
    model_text,
    model_view,
    models_text,
    promotion_text,
)
from fairway.views.plan import PlanView, plan_text


class ModelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to register, and under which name."""

    name: str
    source: str
    """An absolute path; or with `imported` any URI."""
    metrics: dict[str, float] = {}
    tags: dict[str, str] = {}
    from_run: str = ""
    format: str = ""
    allow_pickle: bool = False
    imported: bool = False
    plan: bool = False
    manifest: str = ""
    """The digest of what was sent ahead, where the source lies on another machine."""


class PromoteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which alias is moved here, or taken away."""

    alias: str
    remove: bool = False
    plan: bool = False


class TagBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tags to put on; null takes one off."""

    tags: dict[str, str | None]


class PullBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the files go."""

    folder: str
    """Absolute."""


class Models:
    """The routes about models."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._models = application.models

    def routes(self) -> list[BaseRoute]:
        """Where each is found."""
        one = "/v1/models/{name}"
        return [
            Route("/v1/models", self.list, methods=["GET"]),
            Route("/v1/models", self.register, methods=["POST"]),
            Route(one, self.get, methods=["GET"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/events", self.events, methods=["GET"]),
            Route(f"{one}/promote", self.promote, methods=["POST"]),
            Route(f"{one}/tags", self.tag, methods=["POST"]),
            Route(f"{one}/pull", self.pull, methods=["POST"]),
            Route(f"{one}/verify", self.verify, methods=["GET"]),
            Route(f"{one}/diff/{{other}}", self.diff, methods=["GET"]),
        ]

    async def list(self, request: Request) -> Response:
        """Every version of every model, or of one."""
        asked = Asked(request)
        name = self._own(asked, asked.text("name")) if asked.text("name") else ""
        versions = await self._models.list(name, asked.namespace)
        if name and not versions:
            await self._models.get(name)
        view = ModelList(tuple(self._view(asked, each) for each in versions))
        return show(
            asked,
            view,
            text=lambda page: models_text(view.models, self._application.clock.now(), page),
            called=lambda: (str(each) for each in view.models),
        )

    async def get(self, request: Request) -> Response:
        """One version, with its files."""
        asked = Asked(request)
        version = await self._models.get(self._own(asked))
        view = self._view(asked, version, await self._models.files(version))
        return show(
            asked,
            view,
            text=lambda page: model_text(view, self._application.clock.now(), page),
            called=lambda: [str(view)],
        )

    async def register(self, request: Request) -> Response:
        """Keep files as the next version; the newest one's content and facts again give that version."""
        asked = Asked(request)
        body = await asked.body(ModelBody)
        if "://" not in body.source:
            _check_absolute("source", body.source)
        run = self._application.find(asked.namespace, body.from_run).key if body.from_run else None
        facts = ModelFacts(metrics=body.metrics, tags=body.tags, format=body.format, allow_pickle=body.allow_pickle)
        wanted = Registration(body.name, body.source, facts, run, body.imported, body.manifest, namespace=asked.namespace)
        if body.plan:
            found = await self._models.preview(wanted)
            sentence = f"{body.source} ({found}) would become the next version of {body.name}"
            return self._plan(asked, sentence)
        made = self._view(asked, await self._models.register(wanted, asked.key()))
        return show(
            asked,
            made,
            text=lambda page: model_text(made, self._application.clock.now(), page),
            called=lambda: [str(made)],
            status=201,
        )

    async def promote(self, request: Request) -> Response:
        """Move an alias to a version, or with `remove` take it away."""
        asked = Asked(request)
        body = await asked.body(PromoteBody)
        version = await self._models.get(self._own(asked))
        name = str(self._models.shown(version, asked.namespace))
        model = name.partition("@")[0]
        if body.plan:
            standing = [each.version for each in await self._models.list(version.name) if body.alias in each.aliases]
            was = f"; now it is {model}@{standing[0]}" if standing else ""
            return self._plan(
                asked, f"{name} would no longer be {body.alias}" if body.remove else f"{name} would be {body.alias}{was}"
            )
        if body.remove:
            number = await self._models.demote(self._own(asked), body.alias)
            view = PromotionView(body.alias, "", f"{model}@{number}")
        else:
            moved, before = await self._models.promote(str(version), body.alias)
            view = PromotionView(body.alias, f"{model}@{moved.version}", f"{model}@{before}" if before is not None else "")
        return show(asked, view, text=lambda _page: promotion_text(view), called=lambda: [view.version or view.before])

    async def tag(self, request: Request) -> Response:
        """Put tags on a version, or take some off."""
        asked = Asked(request)
        tags = (await asked.body(TagBody)).tags
        return json_answer(self._view(asked, await self._models.tag(self._own(asked), tags)))

    async def pull(self, request: Request) -> Response:
        """Copy a version's files into a new folder."""
        asked = Asked(request)
        body = await asked.body(PullBody)
        _check_absolute("folder", body.folder)
        version = await self._models.pull(self._own(asked), body.folder)
        return json_answer(self._view(asked, version))

    async def verify(self, request: Request) -> Stream:
        """Compare content with its digests: of a version, of all versions of a model, or of all models (`*`)."""
        asked = Asked(request)
        reference = "" if asked.name == ALL else self._own(asked)
        if reference:
            await self._models.get(reference)
        return verifying(asked, lambda course: self._models.verify(reference, asked.namespace, course))

    async def delete(self, request: Request) -> Response:
        """Let a version be gone, or with `keep` all but the newest so many; never what is aliased or served."""
        asked = Asked(request)
        keep = asked.optional_number("keep", least=1)
        if keep is None:
            versions = [await self._models.check_delete(self._own(asked))]
        else:
            versions = await self._models.superfluous(self._own(asked), keep)
        names = [str(self._models.shown(version, asked.namespace)) for version in versions]
        if asked.flag("plan"):
            return self._plan(asked, *(f"{name} would be deleted" for name in names))
        for version in versions:
            await self._models.delete(str(version))
        return json_answer({"deleted": names})

    async def events(self, request: Request) -> Response:
        """What happened to a model, oldest first."""
        asked = Asked(request)
        return show_events(self._application, asked, subject((await self._models.get(self._own(asked))).name))

    async def diff(self, request: Request) -> Response:
        """In what two versions differ."""
        asked = Asked(request)
        before = await self._models.get(self._own(asked))
        after = await self._models.get(self._own(asked, str(request.path_params["other"])))
        files = [await self._models.files(each) for each in (before, after)]
        view = model_diff(self._models.shown(before, asked.namespace), self._models.shown(after, asked.namespace), *files)
        return show(
            asked, view, text=lambda page: model_diff_text(view, page), called=lambda: (each.name for each in view.differences)
        )

    def _own(self, asked: Asked, name: str = "") -> str:
        """What a name of the request means: a model of the namespace that is asked, and of no other."""
        return self._models.own(name or asked.name, asked.namespace)

    def _view(self, asked: Asked, version: ModelVersion, files: Sequence[ModelFile] | None = None) -> ModelView:
        models = self._models
        return model_view(models.shown(version, asked.namespace), models.in_use(version), files, models.batching(version))

    @staticmethod
    def _plan(asked: Asked, *sentences: str) -> Response:
        view = PlanView(sentences or ("nothing would change",), ())
        return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.sentences)


def _check_absolute(field: str, path: str) -> None:
    """The daemon works in no folder of the caller's."""
    if not path.startswith("/"):
        message = f"{field}={path!r} is no absolute path"
        raise UsageError(message, fix="name it from the root of the file system")
