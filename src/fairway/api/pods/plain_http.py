"""Plain HTTP on the port for pods: only for pods created before pods received the operator's certificate authority."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fairway.api.mlflow.token import speaker_of
from fairway.app.tracking.run import TokenCaller

Older = Callable[[TokenCaller], bool]
"""Return whether pods of the run or service may come from an earlier version."""
WORDS = "this run's pods have a certificate authority: use https\n"


class PlainHttpGate:
    """Passes on requests received over TLS, and plain requests only from runs of an earlier version."""

    def __init__(self, app: ASGIApp, secret: bytes, older: Older) -> None:
        self._app = app
        self._secret = secret
        self._older = older

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["scheme"] == "https" or self._may(scope):
            await self._app(scope, receive, send)
            return
        await PlainTextResponse(WORDS, 403)(scope, receive, send)

    def _may(self, scope: Scope) -> bool:
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        speaker = speaker_of(self._secret, token) if scheme == "Bearer" else None
        return speaker is not None and bool(speaker.run) and self._older(speaker)
