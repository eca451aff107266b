"""The fast path for the usual request: a POST with a known length to a path for inference.

Uvicorn creates a task, a scope and an event for every request; for a fast model that is most of the cost. On the fast path a
request goes directly from the parser to the batcher, and its answer directly to the socket. All other requests, and all unusual
ones (chunked bodies, `Expect`, pipelined requests), take uvicorn's path to the same application, with the same answers.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairway.serving.http2.frame import PREFACE
from fairway.serving.replica.http.application import ReplicaApplication
from fairway.serving.replica.http.content_encoding import COMPRESSED_FROM
from fairway.serving.replica.http.http2.http2_connection import ReplicaHttp2Connection
from fairway.serving.replica.http.inference_codec import InferenceCodec
from fairway.serving.replica.http.info_page import refusal
from fairway.serving.replica.http.turn_queue import BULK, TurnFlowControl
from fairway.serving.replica.model.served_model import ReplicaResponse
from fairway.serving.replica.request_error import RequestError

_STATUS = {
    code: b"HTTP/1.1 %d %s\r\n" % (code, phrase.encode()) for code, phrase in ((each.value, each.phrase) for each in HTTPStatus)
}
_USUAL = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

_MOST_OVERHEAD = 1 << 16
"""Maximum bytes of a request's head, or of the framing of its chunks."""
_CHUNK_OVERHEAD = 8
"""Bytes of framing for a chunk of one byte."""
_MOST_EARLY = 64
"""Maximum pipelined requests."""
_MOST_CONNECTIONS = 4096
_LINGER = 1 << 20
"""Bytes to read and drop after a refusal, so that the client reads the answer before the connection is reset."""
_LINGER_SECONDS = 5.0
_COPIED = 1 << 16

_RECEIVING: dict[FastPathConnection, float] = {}
"""Connections on which a request is arriving, with its start time; also those that drop data after a refusal."""
_UNREAD: dict[FastPathConnection, tuple[float, int]] = {}
"""Connections whose client does not read its answer: since when, and the size of the write buffer then."""


def receiving() -> bool:
    """Whether a request is arriving."""
    return bool(_RECEIVING)


def sweep(now: float, seconds: float) -> None:
    """End connections whose request takes longer than this to arrive, or whose client has read nothing for so long."""
    for lane in [lane for lane, began in _RECEIVING.items() if now - began > seconds]:
        lane.too_slow()
    for lane, (since, before) in list(_UNREAD.items()):
        buffered = lane.transport.get_write_buffer_size()
        if buffered != before:
            _UNREAD[lane] = (now, buffered)
        elif now - since > seconds:
            lane.transport.abort()


class FastPathConnection(HttpToolsProtocol):
    """One connection.

    Promises: answers are sent in the order of their requests, and each request is answered once, even if its client has closed
    its sending side. The memory for received and unread data is bounded (`memory_budget.py`).
    """

    # Attributes used by every request are slots, next to each other in the object; the others are in its dictionary. There each
    # name would be a separate place in memory, and with many connections these no longer fit the processor's cache.
    __slots__ = (
        "_asked", "_body", "_first", "_in_head", "_linger", "_overhead",
        "_running", "cycle", "expect_100_continue", "flow", "headers",
        "parser", "pipeline", "replica", "timeout_keep_alive_task", "transport", "url",
    )  # fmt: skip

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.replica: ReplicaApplication = self.config.app  # type: ignore[assignment]
        self._first: bytes | None = b""
        """The first bytes received, as long as they may be an HTTP/2 preface."""
        self._asked: FastPathRequest | None = None
        """The request that is arriving."""
        self._overhead = 0
        """Bytes of the arriving request that are not its body."""
        self._body = 0
        """Bytes of the body that is arriving."""
        self._in_head = False
        self._running: Any = None
        """The request in progress on uvicorn's path."""
        self._linger: int | None = None
        """Bytes still to be dropped after a refusal."""

    def connection_made(self, transport: Any) -> None:
        """Accept a connection; beyond the limit, close an idle one."""
        super().connection_made(transport)
        self.flow: TurnFlowControl = TurnFlowControl(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            idle = next((connection for connection in self.connections if connection is not self and _is_idle(connection)), self)
            idle.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, within limits."""
        if self._first is not None:
            first, self._first = self._first + data, None
            if PREFACE.startswith(first[: len(PREFACE)]):
                self._speak_http2(first)
                return
            data = first
        if self._linger is not None:
            self._linger -= len(data)
            if self._linger < 0:
                self.transport.abort()
            return
        self._overhead += len(data)
        super().data_received(data)
        if self._body > BULK and not self.flow.in_line:
            self.flow.pause_reading()
            self.flow.in_line = True
            self.replica.bulk.join(self)
        if self._overhead <= _MOST_OVERHEAD and not self._in_head:
            return
        if self._overhead > _MOST_OVERHEAD:
            self.transport.abort()  # without an answer, because earlier requests may still be waiting for theirs
        elif self._in_head:
            _RECEIVING.setdefault(self, time.perf_counter())

    def _speak_http2(self, first: bytes) -> None:
        """Switch to HTTP/2 when the client has sent its preface; wait while the preface is incomplete."""
        if len(first) < len(PREFACE):
            self._first = first
            _RECEIVING.setdefault(self, time.perf_counter())
            return
        _RECEIVING.pop(self, None)
        self.connections.discard(self)
        connection = ReplicaHttp2Connection(self.replica, self.server_state)
        self.transport.set_protocol(connection)
        connection.connection_made(self.transport)
        connection.data_received(first)

    def read_on(self) -> None:
        """Read from this connection, which has a large body, when its turn comes."""
        self.flow.in_line = False
        if not self.pipeline and not self.flow.write_paused and not self.transport.is_closing():
            self.flow.resume_reading()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's return type; uvicorn returns nothing
        """Handle the end of the client's data: complete requests are answered, then the connection is closed."""
        is_between_requests = self._linger is None and self._asked is None and not self._in_head
        cycle: Any = self.cycle
        if not is_between_requests or cycle is None or cycle.response_complete or getattr(cycle, "more_body", False):
            return False
        cycle.keep_alive = False
        return True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record a header."""
        name = name.lower()
        self.headers.append((name, value))
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True

    def on_message_begin(self) -> None:
        """Start a request; most of uvicorn's preparation is deferred to requests that need it."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Choose between the fast path and uvicorn's path."""
        if self.transport.is_closing():
            return
        self._in_head = False
        _RECEIVING.pop(self, None)
        cycle: object = self.cycle
        if cycle is None or (self.cycle.response_complete and not self.pipeline):
            form = self.replica.lane.get(self.url)
            if form is not None and not self.expect_100_continue and self.parser.get_method() == b"POST":
                request = FastPathRequest(self, form, self.parser.should_keep_alive())
                if request.admitted(self.headers):
                    self._asked = self.cycle = request  # type: ignore[assignment]  # shows uvicorn that a request is in progress
                    _RECEIVING[self] = request.began
                    if request.refused is not None:
                        request.refuse(request.refused)
                    return
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)
        self.url, self.expect_100_continue = url, expected
        super().on_headers_complete()
        if len(self.pipeline) > _MOST_EARLY:
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        """Take part of the body."""
        self._overhead -= (1 + _CHUNK_OVERHEAD) * len(body)
        self._body += len(body)
        if self.transport.is_closing():
            return
        if self._asked is None:
            super().on_body(body)
        elif not self._asked.response_complete:
            self._asked.parts.append(body)
            self.replica.bodies.held.take(self._asked, len(body))

    def on_message_complete(self) -> None:
        """Handle the end of the request."""
        self._overhead = self._body = 0
        request = self._asked
        if self.transport.is_closing():
            return
        if request is None:
            super().on_message_complete()
            return
        self._asked = None
        _RECEIVING.pop(self, None)
        if not request.response_complete:
            parts, request.parts = request.parts, []
            self.replica.bodies.held.keep(request)
            self.replica.quick(request.form, parts[0] if len(parts) == 1 else b"".join(parts), request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the requests of a closed connection."""
        _RECEIVING.pop(self, None)
        _UNREAD.pop(self, None)
        for cycle in (self._running, *(queued for queued, _ in self.pipeline)):
            # Uvicorn notifies only the newest; the others would write to a closed connection.
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        held = self.replica.bodies.held
        held.free(self)
        if self._asked is not None:
            held.free(self._asked)
        super().connection_lost(exc)
        self._forget()

    def _forget(self) -> None:
        """Drop references back to this connection, so that it is freed now and not by the garbage collector.

        Uvicorn keeps the keep-alive timer of a connection that was reset; the timer would keep the connection for minutes.
        """
        self._unset_keepalive_if_required()
        self._asked = self._running = None
        self.cycle = None  # type: ignore[assignment]
        self.pipeline.clear()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def too_slow(self) -> None:
        """Refuse a request that does not arrive in time, and close the connection."""
        if self._asked is not None and not self._asked.response_complete:
            self._asked.refuse(refusal(self.replica.bodies.too_slow()))
        else:
            self.transport.abort()

    def linger(self) -> None:
        """Drop data received after the answer for a while, so that the client can read the answer."""
        self._linger = _LINGER
        _RECEIVING.pop(self, None)
        if not self.transport.is_closing():
            self.transport.write_eof()
            self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def let_go(self) -> None:
        """Abort the connection: the client does not read its answer, and the memory is needed for others."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its answer."""
        super().pause_writing()
        self.flow.pause_reading()
        buffered = self.transport.get_write_buffer_size()
        _UNREAD[self] = (time.perf_counter(), buffered)
        self.replica.bodies.held.take(self, buffered)

    def resume_writing(self) -> None:
        """Resume reading after the client has read most of the answer."""
        super().resume_writing()
        _UNREAD.pop(self, None)
        self.replica.bodies.held.free(self)
        if not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Continue; a pipelined request takes turns with those of other connections."""
        if self.pipeline and not self.transport.is_closing():
            self.replica.early.join(_PipelinedRequest(self))
        else:
            self.go_on()

    def go_on(self) -> None:
        """Start the next pipelined request; do not read while the client does not read."""
        super().on_response_complete()
        if self.flow.write_paused and not self.transport.is_closing():
            self.flow.pause_reading()

    def answered(self) -> None:
        """Start the next pipelined request, if any."""
        if self.pipeline:
            self.on_response_complete()


class FastPathRequest:
    """One request on the fast path. It has the interface of uvicorn's requests, so that uvicorn keeps their order."""

    __slots__ = (
        "_lane",
        "began",
        "disconnected",
        "form",
        "head_length",
        "headers",
        "keep_alive",
        "message_event",
        "parts",
        "phases",
        "refused",
        "response_complete",
    )

    def __init__(self, lane: FastPathConnection, form: InferenceCodec, keep_alive: bool) -> None:
        self._lane = lane
        self.form = form
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False
        self.parts: list[bytes] = []
        self.began = time.perf_counter()
        self.phases = (self.began, self.began)
        self.head_length: bytes | None = None
        self.refused: ReplicaResponse | None = None
        self.message_event = _NullEvent
        self.headers = lane.headers

    def admitted(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the request can take the fast path.

        An unacceptable request is refused here, before its body is read.
        """
        try:
            self._lane.replica.check(headers)
            self.head_length, length_known = self._lane.replica.bodies.admit(headers)
        except RequestError as error:
            self.refused = refusal(error)
            return True
        return length_known

    def refuse(self, answer: ReplicaResponse) -> None:
        """Answer before the body was read; the rest of the body is dropped."""
        self.keep_alive = False
        self.parts = []
        self.answer(answer, early=True)

    def hold(self, count: int) -> None:
        """Count the bytes of the decoded body until the request is answered."""
        self._lane.replica.bodies.held.take(self, count)

    def let_go(self) -> None:
        """Refuse the request to free the memory of its body."""
        self.refuse(refusal(self._lane.replica.bodies.no_room()))

    def answer(self, answer: ReplicaResponse, *, early: bool = False) -> None:
        """Send the answer, once."""
        if self.response_complete:
            return
        if len(answer.body) >= COMPRESSED_FROM and not early:
            self._lane.replica.compressor.start(answer, self.headers, self._put)
        else:
            self._put(answer, early=early)

    def _put(self, answer: ReplicaResponse, *, early: bool = False) -> None:
        if self.response_complete:
            return
        self.response_complete = True
        self._lane.replica.bodies.held.free(self)
        lane, body = self._lane, answer.body
        transport = lane.transport
        if self.disconnected or transport.is_closing():
            return
        closes = not self.keep_alive or lane.replica.draining
        if answer.status == 200 and not answer.headers and not closes:
            _write(transport, _USUAL % len(body), body)
        else:
            head = b"%scontent-type: %s\r\ncontent-length: %d\r\n" % (_STATUS[answer.status], answer.content_type, len(body))
            closed = False
            for name, value in answer.headers:
                head += b"%s: %s\r\n" % (name, value)
                closed = closed or name == b"connection"
            _write(transport, head + (b"connection: close\r\n\r\n" if closes and not closed else b"\r\n"), body)
        if early:
            lane.linger()
        elif closes:
            transport.close()
        else:
            lane.answered()


def _write(transport: Any, head: bytes, body: bytes) -> None:
    """Write an answer: a small one in one piece, a large one without copying."""
    if len(body) < _COPIED:
        transport.write(head + body)
    else:
        transport.writelines((head, body))


def _is_idle(protocol: Any) -> bool:
    """Whether a connection has no request in progress."""
    return protocol.cycle is None or protocol.cycle.response_complete


class _PipelinedRequest:
    """A connection with a pipelined request, waiting for its turn."""

    __slots__ = ("_lane",)

    def __init__(self, lane: FastPathConnection) -> None:
        self._lane = lane

    def read_on(self) -> None:
        """Start the pipelined request."""
        self._lane.go_on()


class _NullEvent:
    """An event without waiters, for requests on the fast path."""

    @staticmethod
    def set() -> None:
        """Do nothing."""
