"""A single HTTP/2 request over a connection of its own, for readiness checks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import cast

from fairway.serving.http2.grpc_status import GRPC
from fairway.serving.http2.hpack import Header, Headers, encode
from fairway.serving.http2.http2_error import Http2ConnectionError
from fairway.serving.http2.http2_session import Http2Limits, Http2Session
from fairway.serving.http2.http2_stream import Http2Stream
from fairway.serving.http2.request_header import read_answer_headers, read_trailers

HEALTH_CHECK = b"/grpc.health.v1.Health/Check"
_LIMIT = 64 * 1024
_SERVING = b"\x00\x00\x00\x00\x02\x08\x01"
"""A length-prefixed HealthCheckResponse with the status SERVING."""
_EMPTY_MESSAGE = b"\x00\x00\x00\x00\x00"
_UNIMPLEMENTED = b"12"


@dataclass(slots=True)
class SingleResponse:
    """The answer to the request."""

    status: int = 0
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""
    """The body, truncated to `_LIMIT` bytes."""


async def ask(host: str, port: int, method: bytes, path: bytes, headers: list[Header], body: bytes = b"") -> SingleResponse:
    """Send one request and return its answer; the caller must set a timeout.

    Raises `OSError` when the connection fails, and `ValueError` when there is no valid answer.
    """
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(lambda: _SingleRequestSession(loop.create_future()), host, port)
    try:
        authority = f"{host}:{port}".encode()
        pseudo = [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", authority)]
        connection.begin(encode([*pseudo, *headers]), body)
        return await connection.done
    finally:
        transport.close()


async def is_serving(host: str, port: int) -> bool:
    """Whether a gRPC server reports that it is ready; a server without the health service is ready when it answers."""
    headers = [(b"content-type", GRPC), (b"te", b"trailers")]
    answer = await ask(host, port, b"POST", HEALTH_CHECK, headers, _EMPTY_MESSAGE)
    status = dict(answer.headers).get(b"grpc-status")
    return status == _UNIMPLEMENTED or (status == b"0" and answer.body == _SERVING)


class _SingleRequestSession(Http2Session, asyncio.Protocol):
    def __init__(self, done: asyncio.Future[SingleResponse]) -> None:
        super().__init__(Http2Limits(), self._put, server=False, now=time.monotonic)
        self.done = done
        self._answer = SingleResponse()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)

    def begin(self, block: bytes, body: bytes) -> None:
        """Send the request."""
        stream = Http2Stream(1)
        self.last = 1
        self._add(stream)
        self.headers(stream, block, ended=not body)
        if body:
            self.data(stream, body, ended=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface and SETTINGS."""
        self._transport = cast(asyncio.Transport, transport)
        self.greet()

    def data_received(self, data: bytes) -> None:
        """Process part of the answer."""
        self.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request if the answer is incomplete."""
        self._fail("the connection ended before the answer")

    def on_headers(self, stream: Http2Stream, headers: Headers, ended: bool) -> None:
        """Take the headers or the trailers."""
        if stream.has_head:
            self._answer.headers += read_trailers(headers)
        else:
            status, lines = read_answer_headers(headers)
            if status < 200:
                return
            stream.has_head = True
            self._answer.status, self._answer.headers = status, lines
        if ended:
            self._end()

    def on_data(self, stream: Http2Stream, piece: bytes, ended: bool) -> None:
        """Take part of the body."""
        self._answer.body += piece[: _LIMIT - len(self._answer.body)]
        if ended:
            self._end()

    def on_reset(self, stream: Http2Stream, code: int) -> None:
        """Fail the request, because the server reset the stream."""
        self._fail(f"the server ended the stream (code {code})")

    def on_failure(self, problem: Http2ConnectionError) -> None:
        """Fail the request, because the server does not follow the HTTP/2 protocol."""
        self._fail(f"the server does not speak HTTP/2: {problem.reason}")

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(self._answer)

    def _fail(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(ValueError(reason))

    def _put(self, wire: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(wire)
