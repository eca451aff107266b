"""Types and helpers of route handlers: the caller is authenticated before a handler runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from fairway.app.tracking.run import TokenCaller

Handler = Callable[[Request], Awaitable[Response]]


def speaker(request: Request) -> TokenCaller:
    """Return the caller; the gate has verified the token."""
    caller: TokenCaller = request.scope["fairway.speaker"]
    return caller
