"""The short way for the usual request: a POST with a known length to a path that asks the model.

Uvicorn makes a task, a scope and an event for every request; for a fast model that is most of the cost. Here such a request
goes from the parser to the batcher and its answer from there to the socket, without any of these. Every other request, and
everything that is out of the ordinary (chunked bodies, `Expect`, requests sent before the last answer came), takes uvicorn's
way to the same application, with the same answers.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairway.serving.http2.frames import PREFACE
from fairway.serving.replica.asgi import App
from fairway.serving.replica.encodings import COMPRESSED_FROM
from fairway.serving.replica.form import Form
from fairway.serving.replica.model import Answer
from fairway.serving.replica.pages import refusal
from fairway.serving.replica.problem import RequestError
from fairway.serving.replica.streams.connection import StreamsConnection
from fairway.serving.replica.turns import BULK, Flow

_STATUS = {
    code: b"HTTP/1.1 %d %s\r\n" % (code, phrase.encode()) for code, phrase in ((each.value, each.phrase) for each in HTTPStatus)
}
_USUAL = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

_MOST_OVERHEAD = 1 << 16
"""Bytes of a request's head, or around its chunks."""
_CHUNK_OVERHEAD = 8
"""Bytes around a chunk of one byte."""
_MOST_EARLY = 64
"""Requests that may be sent before the last answer came."""
_MOST_CONNECTIONS = 4096
_LINGER = 1 << 20
"""Bytes that are read and dropped after a refusal, so that the client reads it before the connection is reset."""
_LINGER_SECONDS = 5.0
_COPIED = 1 << 16

_RECEIVING: dict[Lane, float] = {}
"""Connections over which a request arrives, and since when; also those that drop what comes after a refusal."""
_UNREAD: dict[Lane, tuple[float, int]] = {}
"""Connections whose client does not read its answer: since when, and how many bytes were left then."""


def receiving() -> bool:
    """Whether a request is arriving."""
    return bool(_RECEIVING)


def sweep(now: float, seconds: float) -> None:
    """Stop waiting for requests that have taken longer than this to come, and for clients that read nothing for so long."""
    for lane in [lane for lane, began in _RECEIVING.items() if now - began > seconds]:
        lane.too_slow()
    for lane, (since, left) in list(_UNREAD.items()):
        now_left = lane.transport.get_write_buffer_size()
        if now_left != left:
            _UNREAD[lane] = (now, now_left)
        elif now - since > seconds:
            lane.transport.abort()


class Lane(HttpToolsProtocol):
    """One connection.

    Promises: answers leave in the order of their requests, and a request is answered once, also when its client has closed its
    own side. What a client sends, and what it does not read, is bounded (`held.py`).
    """

    # What every request reads or writes lies together in the object; the rest is in its dictionary. There each name would be a
    # place of its own in memory, and with many connections these places are no longer in the processor's cache.
    __slots__ = (
        "_asked", "_body", "_first", "_in_head", "_linger", "_overhead",
        "_running", "cycle", "expect_100_continue", "flow", "headers",
        "parser", "pipeline", "replica", "timeout_keep_alive_task", "transport", "url",
    )  # fmt: skip

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.replica: App = self.config.app  # type: ignore[assignment]
        self._first: bytes | None = b""
        """What has come first, as long as it may be HTTP/2."""
        self._asked: Asked | None = None
        """The request that is arriving."""
        self._overhead = 0
        """Bytes of the request that is arriving which are not its body."""
        self._body = 0
        """Bytes of the body that is arriving."""
        self._in_head = False
        self._running: Any = None
        """The request that is under way on uvicorn's way."""
        self._linger: int | None = None
        """How many bytes are still dropped after a refusal."""

    def connection_made(self, transport: Any) -> None:
        """A client; where there are too many, one that asks nothing goes."""
        super().connection_made(transport)
        self.flow: Flow = Flow(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            idle = next((each for each in self.connections if each is not self and _is_idle(each)), self)
            idle.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client, within bounds."""
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
            self.transport.abort()  # no answer: earlier requests may still wait for theirs
        elif self._in_head:
            _RECEIVING.setdefault(self, time.perf_counter())

    def _speak_http2(self, first: bytes) -> None:
        """The client begins as HTTP/2 does, at least so far."""
        if len(first) < len(PREFACE):
            self._first = first
            _RECEIVING.setdefault(self, time.perf_counter())
            return
        _RECEIVING.pop(self, None)
        self.connections.discard(self)
        other = StreamsConnection(self.replica, self.server_state)
        self.transport.set_protocol(other)
        other.connection_made(self.transport)
        other.data_received(first)

    def read_on(self) -> None:
        """The turn of this connection, whose body is large."""
        self.flow.in_line = False
        if not self.pipeline and not self.flow.write_paused and not self.transport.is_closing():
            self.flow.resume_reading()

    def eof_received(self) -> bool:  # type: ignore[override]  # what asyncio says of it; uvicorn never answers
        """The client sends no more: whole requests are answered, then the connection is closed."""
        waits = self._linger is None and self._asked is None and not self._in_head
        cycle: Any = self.cycle
        if not waits or cycle is None or cycle.response_complete or getattr(cycle, "more_body", False):
            return False
        cycle.keep_alive = False
        return True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        self.headers.append((name, value))
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True

    def on_message_begin(self) -> None:
        """A request begins; most of what uvicorn prepares is left for those that need it."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Choose the way."""
        if self.transport.is_closing():
            return
        self._in_head = False
        _RECEIVING.pop(self, None)
        cycle: object = self.cycle
        if cycle is None or (self.cycle.response_complete and not self.pipeline):
            form = self.replica.lane.get(self.url)
            if form is not None and not self.expect_100_continue and self.parser.get_method() == b"POST":
                asked = Asked(self, form, self.parser.should_keep_alive())
                if asked.admitted(self.headers):
                    self._asked = self.cycle = asked  # type: ignore[assignment]  # uvicorn sees that a request is under way
                    _RECEIVING[self] = asked.began
                    if asked.refused is not None:
                        asked.refuse(asked.refused)
                    return
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)
        self.url, self.expect_100_continue = url, expected
        super().on_headers_complete()
        if len(self.pipeline) > _MOST_EARLY:
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        """More of the body."""
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
        """The whole request is there."""
        self._overhead = self._body = 0
        asked = self._asked
        if self.transport.is_closing():
            return
        if asked is None:
            super().on_message_complete()
            return
        self._asked = None
        _RECEIVING.pop(self, None)
        if not asked.response_complete:
            parts, asked.parts = asked.parts, []
            self.replica.bodies.held.keep(asked)
            self.replica.quick(asked.form, parts[0] if len(parts) == 1 else b"".join(parts), asked)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for the answer any more."""
        _RECEIVING.pop(self, None)
        _UNREAD.pop(self, None)
        for cycle in (self._running, *(each for each, _ in self.pipeline)):
            # Uvicorn tells the newest alone; the others would write to what is closed.
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
        """Drop what refers back to this connection, so that it is freed now and not by the garbage collector.

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
        """The request does not come: say so and close."""
        if self._asked is not None and not self._asked.response_complete:
            self._asked.refuse(refusal(self.replica.bodies.too_slow()))
        else:
            self.transport.abort()

    def linger(self) -> None:
        """The answer is written: drop what still comes, for a while, so that the client can read it."""
        self._linger = _LINGER
        _RECEIVING.pop(self, None)
        if not self.transport.is_closing():
            self.transport.write_eof()
            self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def let_go(self) -> None:
        """The client does not read its answer, and others need the room."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read: nothing more is read from it."""
        super().pause_writing()
        self.flow.pause_reading()
        left = self.transport.get_write_buffer_size()
        _UNREAD[self] = (time.perf_counter(), left)
        self.replica.bodies.held.take(self, left)

    def resume_writing(self) -> None:
        """The client has read most of it."""
        super().resume_writing()
        _UNREAD.pop(self, None)
        self.replica.bodies.held.free(self)
        if not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Go on; a request that came before the last answer waits for its turn among all such."""
        if self.pipeline and not self.transport.is_closing():
            self.replica.early.join(_Early(self))
        else:
            self.go_on()

    def go_on(self) -> None:
        """Start what came early; do not read while the client does not."""
        super().on_response_complete()
        if self.flow.write_paused and not self.transport.is_closing():
            self.flow.pause_reading()

    def answered(self) -> None:
        """Go on with the next request, if one came early."""
        if self.pipeline:
            self.on_response_complete()


class Asked:
    """One request on the short way. To uvicorn it looks like one of its own, so that its order and its end hold."""

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

    def __init__(self, lane: Lane, form: Form, keep_alive: bool) -> None:
        self._lane = lane
        self.form = form
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False
        self.parts: list[bytes] = []
        self.began = time.perf_counter()
        self.phases = (self.began, self.began)
        self.head_length: bytes | None = None
        self.refused: Answer | None = None
        self.message_event = _Nobody
        self.headers = lane.headers

    def admitted(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether it can go this way. What is not acceptable is refused here, before its body is read."""
        try:
            self._lane.replica.check(headers)
            self.head_length, known = self._lane.replica.bodies.admit(headers)
        except RequestError as error:
            self.refused = refusal(error)
            return True
        return known

    def refuse(self, answer: Answer) -> None:
        """Answer before the body was read; what still comes of it is dropped."""
        self.keep_alive = False
        self.parts = []
        self.answer(answer, early=True)

    def hold(self, count: int) -> None:
        """What its body was decoded to, until it is answered."""
        self._lane.replica.bodies.held.take(self, count)

    def let_go(self) -> None:
        """Its body takes the room of others."""
        self.refuse(refusal(self._lane.replica.bodies.no_room()))

    def answer(self, answer: Answer, *, early: bool = False) -> None:
        """Write the answer, once."""
        if self.response_complete:
            return
        if len(answer.body) >= COMPRESSED_FROM and not early:
            self._lane.replica.compressor.start(answer, self.headers, self._put)
        else:
            self._put(answer, early=early)

    def _put(self, answer: Answer, *, early: bool = False) -> None:
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
    """A small answer in one piece; a large one is not copied."""
    if len(body) < _COPIED:
        transport.write(head + body)
    else:
        transport.writelines((head, body))


def _is_idle(protocol: Any) -> bool:
    """Whether a connection asks nothing just now."""
    return protocol.cycle is None or protocol.cycle.response_complete


class _Early:
    """A connection whose next request came before the last answer, in the line."""

    __slots__ = ("_lane",)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def read_on(self) -> None:
        """Its turn."""
        self._lane.go_on()


class _Nobody:
    """Nobody waits for events of a request on the short way."""

    @staticmethod
    def set() -> None:
        """Nothing to do."""
