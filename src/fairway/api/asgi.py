"""The API as one ASGI application."""

from __future__ import annotations

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from fairway.api.datasets import Datasets
from fairway.api.documents import Documents
from fairway.api.inside import Inside
from fairway.api.jobs import Jobs
from fairway.api.keys import KeyRoutes
from fairway.api.machine import Machine
from fairway.api.models import Models
from fairway.api.problems import Guard
from fairway.api.queues import Queues
from fairway.api.services import ServiceRoutes
from fairway.api.showing import About, Showing
from fairway.app.application import Application

__all__ = ["About", "make_api"]


def make_api(application: Application, about: About, now: Callable[[], float] | None = None) -> ASGIApp:
    """Build all routes of one application. `now` is the clock for ages; by default the application's."""
    showing = Showing(application, about, now or application.clock.now)
    groups = (
        Jobs(application, showing),
        Documents(application, showing),
        Inside(application),
        Datasets(application),
        Models(application),
        Queues(application),
        ServiceRoutes(application, showing.now),
        KeyRoutes(application, showing.now),
        Machine(application, showing),
    )
    routes: list[BaseRoute] = [route for group in groups for route in group.routes()]
    router = Router(routes, redirect_slashes=False, default=_nothing_here)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # Routes raise for a wrong method only if the scope contains an application.
        scope["app"] = serve
        await router(scope, receive, send)

    return Guard(serve, about.version)


async def _nothing_here(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise HTTPException(404)
