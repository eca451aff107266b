"""How a request finds its route: who speaks is known before anything else is looked at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from fairway.app.tracking import Speaker

Handler = Callable[[Request], Awaitable[Response]]


def speaker(request: Request) -> Speaker:
    """Who asks; the gate has looked at the token."""
    found: Speaker = request.scope["fairway.speaker"]
    return found
