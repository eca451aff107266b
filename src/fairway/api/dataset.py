"""Routes of datasets: versioned content that jobs use as inputs."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from fairway.api.event import show_events
from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import StreamingBody, json_answer, show
from fairway.api.verification import ALL, verifying
from fairway.app.application import Application
from fairway.app.dataset import DatasetAddition, subject
from fairway.state.dataset import DatasetVersion
from fairway.views.dataset import DatasetList, dataset_diff, dataset_diff_text, dataset_text, dataset_view, datasets_text
from fairway.views.plan import PlanView, plan_text


class DatasetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset to store, with its name."""

    name: str
    path: str
    """Absolute path; for a dataset by reference, any URI."""
    reference: bool = False
    manifest: str = ""
    """The digest of the content uploaded before, if the path is one of another machine."""
    is_file: bool = False


class DatasetRoutes:
    """The routes of datasets."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
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
        """List every version of every dataset."""
        params = RequestParameters(request)
        versions = await self._application.dataset_commands.list(params.namespace)
        view = DatasetList(tuple(dataset_view(self._shown(params, item)) for item in versions))
        return show(
            params,
            view,
            text=lambda page: datasets_text(view.datasets, self._application.clock.now(), page),
            called=lambda: (f"{item.name}@{item.version}" for item in view.datasets),
        )

    async def add(self, request: Request) -> Response:
        """Store a folder or a file as the next version; the same content again returns the existing version."""
        params = RequestParameters(request)
        body = await params.body(DatasetBody)
        addition = DatasetAddition(body.name, body.path, body.reference, body.manifest, body.is_file, params.namespace)
        version = await self._application.dataset_commands.add(addition)
        return json_answer(dataset_view(self._shown(params, version)), 201)

    async def get(self, request: Request) -> Response:
        """Return one version, with its files."""
        params = RequestParameters(request)
        version = await self._application.dataset_commands.get(self._own(params))
        view = dataset_view(self._shown(params, version), await asyncio.to_thread(self._application.datasets.files, version))
        return show(
            params,
            view,
            text=lambda page: dataset_text(view, self._application.clock.now(), page),
            called=lambda: [str(view)],
        )

    async def content(self, request: Request) -> Response:
        """Return the files of a version as a tar archive."""
        version = await self._application.dataset_commands.get(self._own(RequestParameters(request)))
        pieces = await asyncio.to_thread(self._application.datasets.packed, version)
        return StreamingResponse(pieces, media_type="application/x-tar")

    async def verify(self, request: Request) -> StreamingBody:
        """Compare content with its digests: of one version, of all versions of a dataset, or of all datasets (`*`)."""
        params, commands = RequestParameters(request), self._application.dataset_commands
        reference = "" if params.name == ALL else self._own(params)
        if reference:
            await commands.get(reference)
        return verifying(params, lambda course: commands.verify(reference, params.namespace, course))

    async def delete(self, request: Request) -> Response:
        """Delete a version; refused if a run uses it."""
        params, commands = RequestParameters(request), self._application.dataset_commands
        if params.flag("plan"):
            name = str(self._shown(params, await commands.check_delete(self._own(params))))
            view = PlanView((f"{name} would be deleted",), (name,))
            return show(params, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)
        return json_answer({"deleted": [str(self._shown(params, await commands.delete(self._own(params))))]})

    async def events(self, request: Request) -> Response:
        """Return the events of a dataset, oldest first."""
        params = RequestParameters(request)
        version = await self._application.dataset_commands.get(self._own(params))
        return show_events(self._application, params, subject(version.name))

    async def diff(self, request: Request) -> Response:
        """Return the files that differ between two versions."""
        params, commands = RequestParameters(request), self._application.dataset_commands
        other = self._own(params, str(request.path_params["other"]))
        before, after = await commands.get(self._own(params)), await commands.get(other)
        files = [await asyncio.to_thread(self._application.datasets.files, version) for version in (before, after)]
        view = dataset_diff(self._shown(params, before), self._shown(params, after), *files)
        return show(
            params, view, text=lambda page: dataset_diff_text(view, page), called=lambda: (file.path for file in view.changes)
        )

    def _own(self, asked: RequestParameters, name: str = "") -> str:
        """Resolve a name in the request's namespace only."""
        return self._application.dataset_commands.own(name or asked.name, asked.namespace)

    def _shown(self, asked: RequestParameters, version: DatasetVersion) -> DatasetVersion:
        return self._application.dataset_commands.shown(version, asked.namespace)
