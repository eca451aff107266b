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

from fairway.serving.replica.asgi import App, Form, refusal
from fairway.serving.replica.model import Answer
from fairway.serving.replica.problem import RequestError

_STATUS = {
    code: b"HTTP/1.1 %d %s\r\n" % (code, phrase.encode()) for code, phrase in ((each.value, each.phrase) for each in HTTPStatus)
}
_USUAL = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

_RECEIVING: dict[Lane, float] = {}
"""Connections over which a body arrives, and since when."""


def receiving() -> bool:
    """Whether a request is arriving."""
    return bool(_RECEIVING)


def sweep(now: float, seconds: float) -> None:
    """Stop waiting for bodies that have taken longer than this."""
    for lane in [lane for lane, began in _RECEIVING.items() if now - began > seconds]:
        lane.too_slow()


class Lane(HttpToolsProtocol):
    """One connection.

    Promises: answers leave in the order of their requests, and a request is answered once.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.replica: App = self.config.app  # type: ignore[assignment]
        self._asked: Asked | None = None
        """The request that is arriving."""

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

    def on_headers_complete(self) -> None:
        """Choose the way."""
        cycle: object = self.cycle
        if cycle is None or (self.cycle.response_complete and not self.pipeline):
            form = self.replica.lane.get(self.url)
            if form is not None and not self.expect_100_continue and self.parser.get_method() == b"POST":
                asked = Asked(self, form, self.parser.should_keep_alive())
                if asked.admitted(self.headers):
                    self._asked = self.cycle = asked  # type: ignore[assignment]  # uvicorn sees that a request is under way
                    _RECEIVING[self] = asked.began
                    return
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)
        self.url, self.expect_100_continue = url, expected
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """More of the body."""
        if self._asked is not None:
            self._asked.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is there."""
        asked = self._asked
        if asked is None:
            super().on_message_complete()
            return
        self._asked = None
        del _RECEIVING[self]
        if asked.refused is not None:
            asked.answer(asked.refused)
        elif not asked.response_complete:
            parts = asked.parts
            self.replica.quick(asked.form, parts[0] if len(parts) == 1 else b"".join(parts), asked)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for the answer any more."""
        _RECEIVING.pop(self, None)
        super().connection_lost(exc)

    def too_slow(self) -> None:
        """The body does not come: say so and close."""
        if self._asked is not None and not self._asked.response_complete:
            self._asked.keep_alive = False
            self._asked.answer(refusal(self.replica.bodies.too_slow()))

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
        "keep_alive",
        "message_event",
        "parts",
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
        self.head_length: bytes | None = None
        self.refused: Answer | None = None
        self.message_event = _Nobody

    def admitted(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether it can go this way. What is not acceptable is refused here: its body is dropped, then comes the answer."""
        try:
            self.head_length, known = self._lane.replica.bodies.admit(headers)
        except RequestError as error:
            self.refused = refusal(error)
            return True
        return known

    def take(self, more: bytes) -> None:
        """More of the body."""
        if self.refused is None:
            self.parts.append(more)

    def answer(self, answer: Answer) -> None:
        """Write the answer, once."""
        if self.response_complete:
            return
        self.response_complete = True
        lane, body = self._lane, answer.body
        transport = lane.transport
        if self.disconnected or transport.is_closing():
            return
        closes = not self.keep_alive or lane.replica.draining
        if answer.status == 200 and not answer.headers and not closes:
            transport.write(_USUAL % len(body) + body)
        else:
            head = b"%scontent-type: %s\r\ncontent-length: %d\r\n" % (_STATUS[answer.status], answer.content_type, len(body))
            for name, value in answer.headers:
                head += b"%s: %s\r\n" % (name, value)
            transport.write(head + (b"connection: close\r\n\r\n" if closes else b"\r\n") + body)
        if closes:
            transport.close()
        else:
            lane.answered()


class _Nobody:
    """Nobody waits for events of a request on the short way."""

    @staticmethod
    def set() -> None:
        """Nothing to do."""
