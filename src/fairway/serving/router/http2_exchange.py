"""One HTTP/2 request: sent to a backend like an HTTP/1.1 request, with the response as frames.

A gRPC call to one of Fairway's own replicas is sent over HTTP/1.1 with its body unchanged. The response has an HTTP status, so
that retries, copies and counters work as for every request; only here it becomes a gRPC status. A user's server that uses
HTTP/2 gets the call unchanged, and its gRPC status is counted as the equivalent HTTP status.
"""

from __future__ import annotations

import asyncio
import json
from typing import Protocol

from fairway.serving.http2.grpc_status import GRPC, OK_TRAILERS, UNKNOWN, is_grpc, of_http, read_timeout, status_lines
from fairway.serving.http2.hpack import Header, encode
from fairway.serving.router.access.admission import ADMITTED, AdmittedRequest
from fairway.serving.router.http1_exchange import NO_LONGER_VALID, RequestClient, RequestExchange
from fairway.serving.router.message_head import RequestHead, ResponseHead
from fairway.serving.router.observe.health_probe import CALLS, HEALTH_CHECK
from fairway.serving.router.routing.backend import RoutedBackend
from fairway.serving.router.routing.grpc_outcome import outcome_of
from fairway.serving.router.routing.mirror import keep_answer
from fairway.serving.router.routing.router_state import RouterState

STREAMING = frozenset(
    {
        b"/inference.GRPCInferenceService/ModelStreamInfer",
        b"/grpc.health.v1.Health/Watch",
        b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
"""Methods of Fairway's own replicas that go over HTTP/2, because both sides send many messages."""
_UNAUTHENTICATED = 16
_WORDS = 4096
"""Limit on the bytes of an error that become the message of a status."""
_YES, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""Messages with the value 1 or 2 in their first field."""
_REMEMBERED = 256
_blocks: dict[tuple[int, bytes, int], tuple[bytes, bytes]] = {}
"""Cache of the encoded headers and trailers of responses, without the request id."""


class RequestStream(RequestClient, Protocol):
    """The stream that the request came on."""

    def headers(self, block: bytes, *, ended: bool) -> None:
        """Send headers, or trailers."""
        ...

    def data(self, piece: bytes, *, ended: bool) -> None:
        """Send part of the body."""
        ...

    def unary(self, head: bytes, piece: bytes, trailers: bytes) -> None:
        """Send headers, a body and trailers at once."""
        ...


class Http2RequestExchange(RequestExchange):
    """One request and its response."""

    __slots__ = ("_answer", "_call", "_stream", "_timer", "_trailers", "_words")

    def __init__(
        self,
        client: RequestStream,
        desk: RouterState,
        head: RequestHead,
        piece: bytes,
        body_done: bool,
        admitted: AdmittedRequest = ADMITTED,
        *,
        call: bool,
    ) -> None:
        super().__init__(client, desk, head, piece, body_done, admitted)
        self._stream = client
        self._call = call
        """Whether this is a gRPC call."""
        self._answer: ResponseHead | None = None
        self._trailers = b""
        self._words: bytearray | None = None
        """The beginning of a response that is not gRPC."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin, and end the call after its `grpc-timeout`."""
        timeout = self.head.value_of(b"grpc-timeout") if self._call else None
        seconds = read_timeout(timeout) if timeout is not None else None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._late)
        observer = self._desk.observer
        if observer is not None and self._call and self.head.target in CALLS:
            self.is_probe = observer.is_probe(self.head)
            self._desk.probes += self.is_probe
        super().begin()

    def on_answer(self, head: ResponseHead, piece: bytes, ended: bool) -> None:
        """Pass on the head of the response and what came with it, or retry at another backend."""
        if head.status in self._desk.routes.plan.retry_statuses and self._repeat_elsewhere(head, ended):
            return
        place = self._place
        assert place is not None
        self.answered = True
        self._answer = head
        self._status = head.status
        if self._desk.comparer is not None:
            self._kept = keep_answer(self._desk.comparer, self.head, head)
        self._keep_piece(piece)
        if self._call and not (head.status == 200 and is_grpc(head.value_of(b"content-type") or b"")):
            self._words = bytearray()
            self._pass_on(piece, ended)
            return
        ours = self._call and not place.backend.protocol and self.head.target not in STREAMING
        if self._admitted.replaces:
            head.drop_lines(self._admitted.replaces)
        block, trailers = _encoded(head, place.backend.revision, ours=ours)
        block += encode(self._more(head, ours=ours))
        self._trailers = trailers
        if not ended:
            self._stream.headers(block, ended=False)
            if piece:
                self._stream.data(piece, ended=False)
            return
        self._settle_stream(head)
        if trailers:
            self._stream.unary(block, piece, trailers)
        else:
            self._stream.headers(block, ended=not piece)
            if piece:
                self._stream.data(piece, ended=True)
        self._complete_stream()

    def on_piece(self, piece: bytes, ended: bool) -> None:
        """Pass on more of the response."""
        self._keep_piece(piece)
        self._pass_on(piece, ended)

    def _keep_piece(self, piece: bytes) -> None:
        """Count a piece, and keep it if responses are compared."""
        self._out += len(piece)
        if self._kept is not None:
            self._kept.add(piece)

    def _pass_on(self, piece: bytes, ended: bool) -> None:
        head = self._answer
        assert head is not None
        if self._words is not None:
            if len(self._words) < _WORDS:
                self._words += piece
            if ended:
                self._settle_stream(head)
                self._say_status(of_http(head.status) if head.status != 200 else UNKNOWN, _words_of(self._words))
                self._complete_stream()
            return
        if not ended:
            self._stream.data(piece, ended=False)
            return
        self._settle_stream(head)
        trailers = self._trailers
        if head.trailers:
            trailers = encode([_pair(line) for line in head.trailers])
        if trailers:
            if piece:
                self._stream.data(piece, ended=False)
            self._stream.headers(trailers, ended=True)
        else:
            self._stream.data(piece, ended=True)
        self._complete_stream()

    def refuse(self, status: int, reason: str) -> None:
        """Answer with a response generated by the router."""
        self._desk.note_own(status)
        self._status, self._reason = status, reason
        self._end()
        if self._call:
            self._say_status(of_http(status), reason)
        else:
            lines: list[Header] = [(b":status", b"%d" % status), (b"content-type", b"application/json")]
            lines += [(b"x-request-id", self.request_id), *self._admitted.headers]
            lines += {401: [(b"www-authenticate", b"Bearer")], 503: [(b"retry-after", b"1")]}.get(status, [])
            body = json.dumps({"error": reason} if reason else {}).encode() + b"\n"
            bodiless = self.head.method == b"HEAD"
            self._stream.headers(encode([*lines, (b"content-length", b"%d" % len(body))]), ended=bodiless)
            if not bodiless:
                self._stream.data(body, ended=True)
        self._client.finished(keep=True)

    def reply(self, status: int, body: bytes, content_type: bytes, more: bytes = b"") -> None:
        """Answer in place of a replica. The only calls answered here are probes, whose response is one flag or number."""
        self._status, self._out = status, len(body)
        self._end()
        lines: list[Header] = [(b":status", b"200" if self._call else b"%d" % status), (b"x-request-id", self.request_id)]
        lines += [*self._admitted.headers, *(_pair(line) for line in more.split(b"\r\n") if line)]
        if self._call:
            message = _YES if status == 200 else _NOT_SERVING if self.head.target == HEALTH_CHECK else b""
            head = encode([*lines, (b"content-type", GRPC)])
            self._stream.unary(head, b"\x00" + len(message).to_bytes(4, "big") + message, OK_TRAILERS)
        else:
            bodiless = self.head.method == b"HEAD"
            lines += [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
            self._stream.headers(encode(lines), ended=bodiless)
            if not bodiless:
                self._stream.data(body, ended=True)
        self._client.finished(keep=True)

    def break_off(self) -> None:
        """Break off the response: a call with a status, any other response by ending its stream."""
        if not self._call:
            super().break_off()
        elif self._words is not None:
            self._say_status(_UNAUTHENTICATED, NO_LONGER_VALID)
            self._client.finished(keep=True)
        else:
            self._stream.headers(encode(status_lines(_UNAUTHENTICATED, NO_LONGER_VALID)), ended=True)
            self._client.finished(keep=True)

    def _more(self, head: ResponseHead, *, ours: bool) -> list[Header]:
        """Return the headers that differ from response to response."""
        more = [(b"x-request-id", self.request_id), *self._admitted.headers]
        if head.length >= 0 and not ours:
            more.append((b"content-length", b"%d" % head.length))
        return more

    def _reach(self, place: RoutedBackend, now: float) -> None:
        if not place.backend.protocol and self.head.target in STREAMING:
            place.open_stream(self, now)
        else:
            super()._reach(place, now)

    def _grpc_status(self) -> int | None:
        if not self._call:
            return None
        status = self._answer.value_of(b"grpc-status") if self._answer is not None and self._words is None else None
        if status is not None and status.isdigit() and len(status) < 3 and not self._reason:
            return int(status)
        if self._words is not None and self._answer is not None and self._answer.status == 200:
            return UNKNOWN
        return 0 if self._status == 200 else of_http(self._status)

    def _settle_stream(self, head: ResponseHead) -> None:
        """Count the response."""
        self._status = outcome_of(head)
        if self._status == 200 and self._words is not None:
            self._status = 502
        place, upstream = self._place, self._upstream
        assert place is not None
        assert upstream is not None
        self._settle(place, upstream)

    def _complete_stream(self) -> None:
        self.over = True
        self._stop_timer()
        self._complete()

    def _say_status(self, status: int, message: str) -> None:
        """End a call with a status and without a message of the method."""
        lines: list[Header] = [(b":status", b"200"), (b"content-type", GRPC), (b"x-request-id", self.request_id)]
        lines += self._admitted.headers
        if self._place is not None:
            lines.append((b"fairway-revision", b"%d" % self._place.backend.revision))
        self._stream.headers(encode([*lines, *status_lines(status, message)]), ended=True)

    def _end(self) -> None:
        super()._end()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        """End the call: its deadline has passed."""
        self._timer = None
        if not self.over and not self.expire():
            self._stream.headers(encode(status_lines(4, "the deadline of the call has passed")), ended=True)
            self._client.finished(keep=True)


def _encoded(head: ResponseHead, revision: int, *, ours: bool) -> tuple[bytes, bytes]:
    """Return a response's headers as a block, and a second block with the gRPC status if the replica is Fairway's own."""
    key = (head.status, b"\n".join(head.lines), -revision - 1 if ours else revision)
    blocks = _blocks.get(key)
    if blocks is None:
        lines = [_pair(line) for line in head.lines]
        status = [line for line in lines if ours and line[0] == b"grpc-status"]
        about = [(b":status", b"%d" % head.status), *(line for line in lines if line not in status)]
        blocks = encode([*about, (b"fairway-revision", b"%d" % revision)]), encode(status)
        if len(_blocks) >= _REMEMBERED:
            _blocks.clear()
        _blocks[key] = blocks
    return blocks


def _pair(line: bytes) -> Header:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip(b" \t")


def _words_of(body: bytearray) -> str:
    """Return the text of an error in JSON, or the beginning of the body."""
    try:
        return str(json.loads(bytes(body))["error"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return bytes(body[:200]).decode(errors="replace")
