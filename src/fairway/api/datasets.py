"""Routes about datasets: versioned content that jobs name as inputs."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from fairway.api.answer import Stream, json_answer, show
from fairway.api.asking import Asked
from fairway.api.happened import show_events
from fairway.api.verifying import ALL, verifying
from fairway.app.application import Application
from fairway.app.datasets import Addition, subject
from fairway.state.dataset import DatasetVersion
from fairway.views.dataset import DatasetList, dataset_diff, dataset_diff_text, dataset_text, dataset_view, datasets_text
from fairway.views.plan import PlanView, plan_text


class DatasetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to keep, and under which name."""

    name: str
    path: str
    """Absolute; by reference any URI too."""
    reference: bool = False
    manifest: str = ""
    """The digest of what was sent ahead, where the path is one of another machine."""
    is_file: bool = False


class Datasets:
    """The routes about datasets."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def routes(self) -> list[BaseRoute]:
        """Where each is found."""
        return [
            Route("/v1/datasets", self.list, methods=["GET"]),
            Route("/v1/datasets", self.add, methods=["POST"]),
            Route("/v1/datasets/{name}", self.get, methods=["GET"]),
            Route("/v1/datasets/{name}", self.delete, methods=["DELETE"]),
            Route("/v1/datasets/{name}/content", self.content, methods=["GET"]),
            Route("/v1/datasets/{name}/verify", self.verify, methods=["GET"]),
            Route("/v1/datasets/{name}/events", self.events, methods=["GET"]),
            Route("/v1/datasets/{name}/diff/{other}", self.diff, methods=["GET"]),
        ]

    async def list(self, request: Request) -> Response:
        """Every version of every dataset."""
        asked = Asked(request)
        found = await self._application.dataset_commands.list(asked.namespace)
        view = DatasetList(tuple(dataset_view(self._shown(asked, each)) for each in found))
        return show(
            asked,
            view,
            text=lambda page: datasets_text(view.datasets, self._application.clock.now(), page),
            called=lambda: (f"{each.name}@{each.version}" for each in view.datasets),
        )

    async def add(self, request: Request) -> Response:
        """Keep a folder or a file as the next version; the same content again gives the version it has."""
        asked = Asked(request)
        body = await asked.body(DatasetBody)
        wanted = Addition(body.name, body.path, body.reference, body.manifest, body.is_file, asked.namespace)
        made = await self._application.dataset_commands.add(wanted)
        return json_answer(dataset_view(self._shown(asked, made)), 201)

    async def get(self, request: Request) -> Response:
        """One version, with its files."""
        asked = Asked(request)
        version = await self._application.dataset_commands.get(self._own(asked))
        view = dataset_view(self._shown(asked, version), await asyncio.to_thread(self._application.datasets.files, version))
        return show(
            asked,
            view,
            text=lambda page: dataset_text(view, self._application.clock.now(), page),
            called=lambda: [str(view)],
        )

    async def content(self, request: Request) -> Response:
        """The files of a version, as a tar archive."""
        version = await self._application.dataset_commands.get(self._own(Asked(request)))
        pieces = await asyncio.to_thread(self._application.datasets.packed, version)
        return StreamingResponse(pieces, media_type="application/x-tar")

    async def verify(self, request: Request) -> Stream:
        """Compare content with its digests: of a version, of all versions of a dataset, or of all datasets (`*`)."""
        asked, commands = Asked(request), self._application.dataset_commands
        reference = "" if asked.name == ALL else self._own(asked)
        if reference:
            await commands.get(reference)
        return verifying(asked, lambda course: commands.verify(reference, asked.namespace, course))

    async def delete(self, request: Request) -> Response:
        """Let a version be gone; never one that a run uses."""
        asked, commands = Asked(request), self._application.dataset_commands
        if asked.flag("plan"):
            name = str(self._shown(asked, await commands.check_delete(self._own(asked))))
            view = PlanView((f"{name} would be deleted",), (name,))
            return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        return json_answer({"deleted": [str(self._shown(asked, await commands.delete(self._own(asked))))]})

    async def events(self, request: Request) -> Response:
        """What happened to a dataset, oldest first."""
        asked = Asked(request)
        version = await self._application.dataset_commands.get(self._own(asked))
        return show_events(self._application, asked, subject(version.name))

    async def diff(self, request: Request) -> Response:
        """Which files of two versions differ."""
        asked, known = Asked(request), self._application.dataset_commands
        other = self._own(asked, str(request.path_params["other"]))
        before, after = await known.get(self._own(asked)), await known.get(other)
        files = [await asyncio.to_thread(self._application.datasets.files, version) for version in (before, after)]
        view = dataset_diff(self._shown(asked, before), self._shown(asked, after), *files)
        return show(
            asked, view, text=lambda page: dataset_diff_text(view, page), called=lambda: (each.path for each in view.changes)
        )

    def _own(self, asked: Asked, name: str = "") -> str:
        """What a name of the request means: a dataset of the namespace that is asked, and of no other."""
        return self._application.dataset_commands.own(name or asked.name, asked.namespace)

    def _shown(self, asked: Asked, version: DatasetVersion) -> DatasetVersion:
        return self._application.dataset_commands.shown(version, asked.namespace)
