"""The API as one ASGI application."""

from __future__ import annotations

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from fairway.api.daemon import DaemonRoutes
from fairway.api.dataset import DatasetRoutes
from fairway.api.document import DocumentRoutes
from fairway.api.http.error import ErrorMiddleware
from fairway.api.job import JobRoutes
from fairway.api.key import KeyRoutes
from fairway.api.model import ModelRoutes
from fairway.api.queue import QueueRoutes
from fairway.api.service import ServiceRoutes
from fairway.api.task import TaskRoutes
from fairway.api.view_builder import DaemonInfo, ViewBuilder
from fairway.app.application import Application

__all__ = ["DaemonInfo", "make_api"]


def make_api(application: Application, about: DaemonInfo, now: Callable[[], float] | None = None) -> ASGIApp:
    """Build all routes of one application. `now` is the clock for ages; by default the application's."""
    showing = ViewBuilder(application, about, now or application.clock.now)
    groups = (
        JobRoutes(application, showing),
        DocumentRoutes(application, showing),
        TaskRoutes(application),
        DatasetRoutes(application),
        ModelRoutes(application),
        QueueRoutes(application),
        ServiceRoutes(application, showing.now),
        KeyRoutes(application, showing.now),
        DaemonRoutes(application, showing),
    )
    routes: list[BaseRoute] = [route for group in groups for route in group.routes()]
    router = Router(routes, redirect_slashes=False, default=_nothing_here)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # Routes raise for a wrong method only if the scope contains an application.
        scope["app"] = serve
        await router(scope, receive, send)

    return ErrorMiddleware(serve, about.version)


async def _nothing_here(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise HTTPException(404)
