"""Responses: a view in the requested format, or a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fairway.api.http.parameter import RequestParameters
from fairway.views.text.output_format import OutputFormat, names, to_json, to_yaml
from fairway.views.text.table import TextPage

PLAIN = "text/plain; charset=utf-8"
LINES = "application/x-ndjson"


def show(
    asked: RequestParameters,
    view: object,
    *,
    text: Callable[[TextPage], str],
    called: Callable[[], Iterable[str]],
    status: int = 200,
) -> Response:
    """Return the view in the requested format. `text(page)` formats it for people, `called()` returns the names it contains."""
    output = asked.output
    match output:
        case None:
            return json_answer(view, status)
        case OutputFormat.JSON:
            return Response(to_json(view, pretty=True), status, media_type="application/json")
        case OutputFormat.YAML:
            return Response(to_yaml(view), status, media_type=PLAIN)
        case OutputFormat.NAME:
            return Response(names(called()), status, media_type=PLAIN)
        case _:
            return Response(text(asked.page), status, media_type=PLAIN)


def json_answer(view: object, status: int = 200) -> Response:
    """Return the view as compact JSON."""
    return Response(to_json(view), status, media_type="application/json")


NOTE = "fairway-note"
"""A header with a message for the caller."""


class StreamingBody:
    """A response that continues until its source ends or the client disconnects; in both cases the source is closed."""

    def __init__(self, pieces: AsyncIterator[bytes], media_type: str = PLAIN, *, note: str = "") -> None:
        """`note`: a message about the response that is not part of it; it is sent in a header."""
        self._pieces = pieces
        self._media_type = media_type
        self._headers = [(NOTE.encode(), note.encode("ascii", "replace"))] if note else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole response."""
        pump = asyncio.create_task(self._pump(send))
        disconnect = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({pump, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            pump.cancel()
            await asyncio.gather(pump, disconnect, return_exceptions=True)
        if not pump.cancelled():
            pump.result()

    async def _pump(self, send: Send) -> None:
        # No proxy may buffer the stream: a person is watching it.
        headers = [(b"content-type", self._media_type.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        headers += self._headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in self._pieces:
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            close = getattr(self._pieces, "aclose", None)
            if close is not None:
                await close()
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
