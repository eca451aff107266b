"""Runs any other request on a stream through the ASGI application: pages, the HTTP protocols, gRPC metadata methods."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

from fairway.serving.http2.grpc_status import is_grpc
from fairway.serving.http2.hpack import Header, encode
from fairway.serving.http2.http2_error import Http2ErrorCode
from fairway.serving.http2.request_header import RequestHeaders
from fairway.serving.replica.http.http2.grpc_call import reason_of
from fairway.serving.replica.http.http2.http2_request import Http2Request, ReplicaHttp2Session
from fairway.serving.replica.protocols.grpc.message_frame import BINARY
from fairway.serving.replica.protocols.open_inference import LENGTH_HEADER

_AHEAD = 256 * 1024
"""Bytes of a body queued for the application; beyond that, the window is not renewed."""
_UNSENT = 256 * 1024
"""Bytes of an answer queued for the client, beyond which the application must wait."""
_OF_CONNECTION = frozenset({b"connection", b"keep-alive", b"transfer-encoding"})


class AsgiStreamRequest(Http2Request):
    """A request handled by a task that calls the application."""

    __slots__ = (
        "_bodiless",
        "_call",
        "_came",
        "_head",
        "_heard",
        "_more",
        "_pieces",
        "_room",
        "_size",
        "_status",
        "_task",
        "_words",
    )

    def __init__(self, number: int, connection: ReplicaHttp2Session) -> None:
        super().__init__(number, connection)
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._more = True
        self._heard = False
        """Whether the application has received the end of the body."""
        self._came: asyncio.Event
        self._room: asyncio.Event
        self._head: list[Header] | None = []
        self._call = False
        self._bodiless = False
        """Whether the answer must have no body, because the method is HEAD (RFC 9110, 9.3.2)."""
        self._status = 0
        self._words = b""
        self._task: asyncio.Task[None] | None = None

    def begin(self, head: RequestHeaders, ended: bool) -> None:
        """Call the application."""
        self._came, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._more = not ended
        self._call = head.is_grpc
        self._bodiless = head.method == b"HEAD"
        path, _, query = head.path.partition(b"?")
        # gRPC answers are compressed by gRPC's own rules, or not at all.
        lines = [line for line in head.lines if not self._call or line[0] != b"accept-encoding"]
        headers: list[Header] = [(b"host", head.authority), *lines]
        if head.length is not None:
            headers.append((b"content-length", b"%d" % head.length))
        if self._call:
            headers.append((LENGTH_HEADER, BINARY))
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "2",
            "method": head.method.decode("latin-1"),
            "scheme": "http",
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
        }
        self._task = asyncio.get_running_loop().create_task(self._run(scope))

    def on_data(self, piece: bytes, ended: bool) -> None:
        """Queue part of the body."""
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size > _AHEAD:
                self.connection.hold(self)
        self._more = not ended
        self._came.set()

    def gone(self) -> None:
        """Record that the client has disconnected, which the application detects later."""
        self.disconnected = True
        if self._task is not None:
            self._came.set()
            self._room.set()

    def on_sent(self) -> None:
        """Resume the application when the queue has room."""
        if self.queued_size < _UNSENT:
            self._room.set()

    async def _run(self, scope: dict[str, Any]) -> None:
        try:
            await self.connection.app(scope, self._receive, self._send)
        finally:
            if not self.said_all and not self.disconnected:
                self.connection.reset(self, Http2ErrorCode.INTERNAL_ERROR)

    async def _receive(self) -> MutableMapping[str, Any]:
        while (self._heard or (self._more and not self._pieces)) and not self._is_gone():
            self._came.clear()
            await self._came.wait()
        if self._is_gone():
            return {"type": "http.disconnect"}
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self.connection.go_on(self)
        self._heard = not self._more
        return {"type": "http.request", "body": body, "more_body": self._more}

    def _is_gone(self) -> bool:
        return self.disconnected

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._head = [(name, value) for name, value in message["headers"] if name not in _OF_CONNECTION]
            return
        body, has_more = message.get("body", b""), message.get("more_body", False)
        if self._call:
            self._send_call(body, has_more)
            return
        if self._bodiless:
            body = b""
        if self._head is not None:
            lines, self._head = [(b":status", b"%d" % self._status), *self._head], None
            self.connection.headers(self, encode(lines), ended=not body and not has_more)
        if body or not has_more:
            self.connection.data(self, body, ended=not has_more)
        if self.queued_size >= _UNSENT:
            self._room.clear()
            await self._room.wait()

    def _send_call(self, body: bytes, more: bool) -> None:
        """Send the answer to a gRPC call: one message, or an error in JSON."""
        self._words += body
        if more:
            return
        headers = dict(self._head or [])
        if self._status != 200 or not is_grpc(headers.get(b"content-type", b"")):
            self.fail_call(self._status if self._status != 200 else 501, reason_of(self._words))
            return
        status = headers.pop(b"grpc-status", b"0")
        headers.pop(b"content-length", None)
        head = encode([(b":status", b"200"), *headers.items()])
        self.connection.unary(self, head, self._words, encode([(b"grpc-status", status)]))
