"""One request: sent to a backend, retried at another one when that is safe, and its response.

When a request is retried. Always if the backend refused the connection. If the connection ended before any byte of a response:
methods that may be repeated (GET, PUT ...) always; others (POST) only if the kernel reports that the backend never took the
whole request from the socket (a reset: it had closed its end before, or died with the request unread). An orderly end after the
request was taken is answered 502: the work may have been done. A status of `retry_statuses` is retried once at another backend:
for methods that may be repeated, and for all methods if a 503 says that the work was not begun (`Retry-After` or
`fairway-draining`). A request of more than `Limits.replay` bytes is never retried once it was sent, and neither is one whose
copy was dropped for lack of room (`replay_buffer.py`): it is answered 502.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from json import dumps
from typing import Protocol

from fairway.serving.router.access.admission import ADMITTED, AdmittedRequest
from fairway.serving.router.chunked_body import LAST, encode
from fairway.serving.router.comparison.response_comparer import KeptResponse
from fairway.serving.router.http1_backend import BackendChannel
from fairway.serving.router.message_head import BadHeadError, RequestHead, ResponseHead, request_id_of
from fairway.serving.router.observation_port import RequestRecord, milliseconds, shown
from fairway.serving.router.outcome_report import OWN, TARGET, is_own
from fairway.serving.router.routing.backend import RoutedBackend
from fairway.serving.router.routing.mirror import keep_answer, send_copy
from fairway.serving.router.routing.replay_buffer import ReplayBuffer
from fairway.serving.router.routing.router_state import RouterState
from fairway.serving.trace_context import parse

_LOOKS = frozenset({b"GET", b"HEAD"})
"""Methods of probes and of the router's own pages."""
CLIENT_LEFT = 499
"""The logged status of a request whose client did not wait for the response."""
NO_LONGER_VALID = "the API key was revoked or has expired"
_STALE_LIMIT = 3
"""Limit on retries because a connection had ended."""


class RequestClient(Protocol):
    """The client connection that the request came on."""

    peer: bytes

    def write(self, wire: bytes) -> None:
        """Send part of the response."""
        ...

    def finished(self, *, keep: bool) -> None:
        """Go on after the response was sent; `keep`: another request may follow."""
        ...

    def broken(self) -> None:
        """Abort: the response cannot be completed."""
        ...

    def waits_for_answer(self) -> None:
        """Set the deadline for the response: all input so far was passed on."""
        ...

    def hold_back(self) -> None:
        """Pause reading the body."""
        ...

    def go_on(self) -> None:
        """Resume reading."""
        ...


class RequestExchange:
    """One request and its response."""

    __slots__ = (
        "_admitted", "_chunked", "_client", "_desk", "_fits", "_full", "_gone", "_in", "_keep", "_kept", "_out", "_place",
        "_reason", "_replay", "_running", "_sent", "_since", "_span", "_stale", "_status", "_tried", "_upstream", "_wire",
        "answered",
        "arrived", "body_done", "head", "is_probe", "over", "request_id",
    )  # fmt: skip

    def __init__(
        self,
        client: RequestClient,
        desk: RouterState,
        head: RequestHead,
        piece: bytes,
        body_done: bool,
        admitted: AdmittedRequest = ADMITTED,
    ) -> None:
        self.head = head
        self._admitted = admitted
        self.arrived = desk.now()
        self.request_id = request_id_of(head) or desk.next_id()
        self.body_done = body_done
        """Whether the whole body of the request has arrived."""
        self.over = False
        self.is_probe = False
        """Whether this is a health probe: it is not counted and wakes no replica."""
        self.answered = False
        """Whether part of the response was sent."""
        self._client = client
        self._desk = desk
        self._span = None if desk.tracer is None else desk.tracer.begin(head)
        self._wire = head.render(client.peer, self.request_id)
        self._replay = ReplayBuffer(desk.budget)
        # The lines of the head are kept, and also the head as it is sent to the backend.
        self._fits = self._replay.add_head(2 * len(self._wire)) and (not piece or self._replay.add(piece))
        self._place: RoutedBackend | None = None
        self._upstream: BackendChannel | None = None
        self._tried: list[RoutedBackend] = []
        self._stale = 0
        self._since = 0.0
        self._gone = 0.0
        self._in = len(piece)
        self._out = 0
        self._reason = ""
        self._running = False
        self._sent = False
        self._chunked = False
        self._keep = False
        self._kept: KeptResponse | None = None
        """The client's response, kept while responses are compared with those to copies."""
        self._full = False
        self._status = 0

    # Sending the request.

    def begin(self) -> None:
        """Begin: answer the request here, send it to a backend, or let it wait for one."""
        if self.head.method in _LOOKS and self._is_observed():
            return
        if self.head.target == TARGET:
            self.refuse(*self._desk.note_outcome(self.head))
            return
        if is_own(self.head.target):
            self.refuse(404, "paths below /fairway/ are Fairway's own; clients report to /fairway/outcome")
            return
        self._desk.arrived += not self.is_probe
        if self._fits:
            self._seek()
        else:
            self._refuse_for_room()

    def _is_observed(self) -> bool:
        """Return whether the router itself answers; if not, determine whether this is a probe."""
        observer = self._desk.observer
        if observer is None:
            return False
        if observer.takes(self):
            return True
        self.is_probe = observer.is_probe(self.head)
        self._desk.probes += self.is_probe
        return False

    def _seek(self) -> None:
        """Choose a backend or wait for one: at first, and for every retry."""
        place = self._desk.choose(self.head, self._tried)
        if place is not None:
            self.go(place)
        elif self.is_probe and self._desk.observer is not None:
            self._desk.observer.stand_in(self)
        elif not self._desk.hold(self):
            self.refuse(503, "no replica is ready, and too many requests wait for one")

    def go(self, place: RoutedBackend) -> None:
        """Send the request to this backend."""
        now = self._desk.now()
        if self._place is None or self._place.revision is not place.revision:
            place.revision.arrived += not self.is_probe
        self._place = place
        self._since = now
        self._gone = self._gone or now
        self._running = True
        place.count.begin(now)
        self._reach(place, now)

    def _reach(self, place: RoutedBackend, now: float) -> None:
        """Get a connection to the backend."""
        upstream = None if self._stale else place.take_idle(now)
        if upstream is None:
            place.connect(self)
        else:
            self.on_connected(upstream)

    def on_connected(self, upstream: BackendChannel) -> None:
        """Send what has arrived of the request over this connection."""
        place = self._place
        if place is None or self.over:
            upstream.close()
            return
        if not self._replay.whole:
            # After a head without its body, the backend would take the next request for the body.
            upstream.close()
            self._stop_counting()
            self.refuse(502, "the replica ended the connection, and the request is too large to be sent again")
            return
        self._upstream = upstream
        head, body = self.head, self._replay.pieces
        if head.expects and not self.body_done and not body and not self._sent:
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._full:
            self.on_room()
        self._sent = True
        self._client.waits_for_answer()
        self._replay.may_drop(True)
        upstream.ask(self, self._wire, body, length=head.length, bodiless=head.method == b"HEAD", whole=self.body_done)
        if self._desk.waiting:
            self._desk.release_soon()

    def on_refused(self, problem: Exception) -> None:
        """Choose another backend or wait: this one refused the connection."""
        if self.over:
            return
        self._stop_counting()
        self._desk.wake()
        self._seek()

    # The request's body.

    def on_body(self, wire: bytes, done: bool) -> None:
        """Pass on more of the body, as encoded for the wire."""
        self.body_done = done
        self._in += len(wire)
        # A replica is timed from the moment when it could have the whole request, however slow the client was.
        self._since = self._desk.now()
        upstream = self._upstream
        if upstream is None:
            self._keep_body(wire)
            return
        replay = self._replay
        if wire and replay.whole:
            if replay.size + len(wire) > self._desk.limits.replay or not replay.add(wire):
                # Too much to keep. The backend has all of it, so the request goes on, but it cannot be retried.
                replay.drop()
            elif not self._full:
                replay.may_drop(True)
        upstream.send(wire, last=done)

    def _keep_body(self, wire: bytes) -> None:
        """Keep the body while there is no backend, up to a limit; beyond it, stop reading from the client."""
        if not wire:
            return
        if not self._replay.add(wire):
            self._refuse_for_room()
        elif self._replay.size > self._desk.limits.replay:
            self.on_full()

    def _refuse_for_room(self) -> None:
        self._desk.let_go(self)
        self._drop_upstream()
        self._desk.expired += 1
        self.refuse(503, f"waiting requests fill the router's buffer of {self._desk.budget.limit} bytes")

    def on_full(self) -> None:
        """Pause reading from the client: the backend reads slowly."""
        self._full = True
        # Data that is not written yet is in memory in any case.
        self._replay.may_drop(False)
        self._client.hold_back()

    def on_room(self) -> None:
        """Resume reading: the backend has caught up."""
        self._full = False
        if self._upstream is not None:
            self._replay.may_drop(True)
        self._client.go_on()

    # The response.

    def on_answer(self, head: ResponseHead, piece: bytes, ended: bool) -> None:
        """Pass on the head of the response and what came with it, or retry at another backend."""
        if head.status in self._desk.routes.plan.retry_statuses and self._repeat_elsewhere(head, ended):
            return
        place, upstream = self._place, self._upstream
        assert place is not None
        assert upstream is not None
        self.answered = True
        self._status = head.status
        if self._desk.comparer is not None:
            self._kept = keep_answer(self._desk.comparer, self.head, head)
            if self._kept is not None:
                self._kept.add(piece)
        frame = self._frame(head)
        if self._admitted.headers or self._admitted.replaces:
            head.drop_lines(self._admitted.replaces)
            frame += self._admitted.lines
        wire = head.render(place.backend.revision, self.request_id, frame)
        if ended:
            self._settle(place, upstream)
        if piece:
            wire += encode(piece) if self._chunked else piece
        if ended:
            self._finish(wire)
        else:
            self._out += len(wire)
            self._client.write(wire)

    def on_piece(self, piece: bytes, ended: bool) -> None:
        """Pass on more of the response."""
        if self._kept is not None:
            self._kept.add(piece)
        if self._chunked and piece:
            piece = encode(piece)
        if not ended:
            self._out += len(piece)
            self._client.write(piece)
            return
        assert self._place is not None
        assert self._upstream is not None
        self._settle(self._place, self._upstream)
        self._finish(piece)

    def on_lost(self, problem: Exception | None, unread: bool) -> None:
        """Retry or fail: the backend's connection ended before the response was complete."""
        place, upstream = self._place, self._upstream
        self._upstream = None
        if place is None or upstream is None or self.over:
            return
        self._stop_counting()
        self._replay.may_drop(False)
        if self.answered:
            place.count.failed += 1
            place.revision.failed += 1
            self._status, self._reason = 502, "the replica ended the connection in the middle of its answer"
            self._end()
            self._client.broken()
            return
        if self._may_repeat(upstream, unread):
            self._stale += 1
            self._desk.wake()
            self._seek()
            return
        place.count.failed += 1
        place.revision.failed += 1
        self._desk.wake()
        self.refuse(
            502, str(problem) if isinstance(problem, BadHeadError) else "the replica ended the connection before it answered"
        )

    def refuse(self, status: int, reason: str) -> None:
        """Answer with a response generated by the router."""
        if self.head.target != OWN:
            self._desk.note_own(status)
        self._status, self._reason = status, reason
        self._end()
        keep = self.body_done and self.head.keep_alive and not self._desk.draining
        bodiless, more = self.head.method == b"HEAD", self._admitted.lines
        self._client.write(own_answer(status, reason, self.request_id, keep=keep, bodiless=bodiless, more=more))
        self._client.finished(keep=keep)

    def reply(self, status: int, body: bytes, content_type: bytes, more: bytes = b"") -> None:
        """Answer in place of a replica; `more` holds additional header lines."""
        self._status, self._out = status, len(body)
        self._end()
        keep = self.body_done and self.head.keep_alive and not self._desk.draining
        head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b\r\n" % (
            status,
            HTTPStatus(status).phrase.encode(),
            content_type,
            len(body),
            self.request_id,
            self._admitted.lines + more,
            _connection(keep=keep, plain=self.head.plain),
        )
        self._client.write(head if self.head.method == b"HEAD" else head + body)
        self._client.finished(keep=keep)

    def expire(self) -> bool:
        """Answer 504: the backend did not respond in time. Return False if a response has begun, so that none can be sent."""
        place = self._drop_upstream()
        if place is not None:
            place.count.failed += 1
            place.revision.failed += 1
        if self.answered:
            self._end()
            return False
        self._desk.let_go(self)
        self.refuse(504, "the replica did not answer in time")
        return True

    def review(self, admits: Callable[[AdmittedRequest], bool]) -> None:
        """End the request if its key is no longer valid: with 401, or by breaking off its response."""
        if self.over or admits(self._admitted):
            return
        self._desk.let_go(self)
        self._drop_upstream()
        if self.answered:
            self._reason = NO_LONGER_VALID
            self._end()
            self.break_off()
        else:
            self.refuse(401, NO_LONGER_VALID)

    def break_off(self) -> None:
        """Break off a response that has begun, so that the client can see that it is incomplete."""
        self._client.broken()

    def cancel(self) -> None:
        """Cancel the request: the client is gone."""
        self._status = CLIENT_LEFT
        self._end()
        self._desk.let_go(self)
        self._drop_upstream()

    def answer_faster(self, fast: bool) -> None:
        """Resume or pause reading the response, as fast as the client takes it."""
        if self._upstream is not None:
            if fast:
                self._upstream.go_on()
            else:
                self._upstream.hold_back()

    def _end(self) -> None:
        if not self.over:
            self._note()
        self.over = True
        self._replay.close()
        if self._kept is not None:
            self._kept.close()

    def _note(self) -> None:
        """Write the line of the access log and end the span, where these are enabled."""
        access, tracer = self._desk.access, self._desk.tracer
        if self.head.target == OWN:
            # The daemon sends this request every second to check that the router answers.
            return
        if access is not None and access.wants(self._status):
            access.note(self._record(access.time_of(self._desk.now() - self.arrived)))
        if self._span is not None and tracer is not None:
            tracer.end(self._span, self._record(""))
            self._span = None

    def _record(self, time: str) -> RequestRecord:
        now, place, head = self._desk.now(), self._place, self.head
        trace = parse(head.value_of(b"traceparent"))
        return RequestRecord(
            time=time,
            request_id=self.request_id.decode("latin-1"),
            method=shown(head.method),
            path=shown(head.target.partition(b"?")[0]),
            status=self._status,
            revision=place.backend.revision if place is not None else 0,
            replica=place.backend.name if place is not None else "",
            bytes_in=self._in,
            bytes_out=self._out,
            held_ms=milliseconds(self._gone - self.arrived) if self._gone else milliseconds(now - self.arrived),
            upstream_ms=milliseconds(now - self._since) if place is not None else 0.0,
            total_ms=milliseconds(now - self.arrived),
            client=shown(self._client.peer),
            forwarded_for=shown(head.forwarded.get(b"x-forwarded-for", b"")),
            key=self._admitted.key,
            trace_id=trace.trace_id if trace is not None else "",
            agent=shown(head.value_of(b"user-agent") or b""),
            tries=self._stale + len(self._tried),
            error=self._reason,
            grpc_status=self._grpc_status(),
        )

    def _grpc_status(self) -> int | None:
        """Return the status of a gRPC call; None for any other request."""
        return None

    def _drop_upstream(self) -> RoutedBackend | None:
        self._stop_counting()
        place, upstream = self._place, self._upstream
        self._place = self._upstream = None
        if upstream is not None:
            upstream.give_up()
        return place

    def _stop_counting(self) -> None:
        """Stop counting the request as in flight at its backend."""
        if self._running and self._place is not None:
            self._running = False
            self._place.count.end(self._desk.now())

    def _frame(self, head: ResponseHead) -> bytes:
        """Return the header lines that frame the response for this client and keep or close its connection."""
        request = self.head
        self._keep = request.keep_alive and self.body_done and not self._desk.draining
        frame = b""
        if head.length >= 0:
            frame = b"content-length: %d\r\n" % head.length
        elif head.bodiless:
            pass
        elif request.plain:
            self._keep = False
        else:
            self._chunked = True
            frame = b"transfer-encoding: chunked\r\n"
        if not self._keep:
            return frame + b"connection: close\r\n"
        return frame + b"connection: keep-alive\r\n" if request.plain else frame

    def _settle(self, place: RoutedBackend, upstream: BackendChannel) -> None:
        """Count the complete response and make the connection available to the next request."""
        now = self._desk.now()
        self._running = False
        place.count.end(now)
        if self._status >= 500:
            place.count.failed += 1
        else:
            place.count.answered += 1
        if not self.is_probe:
            place.revision.ended(self._status, now - self._since)
        self._upstream = None
        place.give_back(upstream, now)
        if self._desk.waiting:
            self._desk.release_soon()

    def _finish(self, wire: bytes) -> None:
        self.over = True
        if self._chunked:
            wire += LAST
        if wire:
            self._out += len(wire)
            self._client.write(wire)
        self._complete()

    def _complete(self) -> None:
        """Log the request, copy it if the plan requires that, and go on to the next one."""
        self._note()
        place, replay = self._place, self._replay
        replay.may_drop(False)
        copied = place is not None and not self.is_probe and self.body_done and replay.whole and self._desk.routes.has_mirror()
        if not (copied and place and send_copy(self._desk, place.backend.revision, self._wire, replay, self.head, self._kept)):
            self._end()
        self._client.finished(keep=self._keep)

    def _may_repeat(self, upstream: BackendChannel, unread: bool) -> bool:
        if upstream.began or not self._replay.whole or self._stale >= _STALE_LIMIT:
            return False
        return self.head.is_idempotent or unread

    def _repeat_elsewhere(self, head: ResponseHead, ended: bool) -> bool:
        """Retry at another backend instead of passing on this response; return False if that is unsafe or there is none."""
        place, upstream = self._place, self._upstream
        if self._tried or not self._replay.whole or not (self.head.is_idempotent or head.not_begun):
            return False
        if place is None or upstream is None:
            return False
        other = self._desk.choose(self.head, (place,))
        if other is None:
            return False
        self._tried.append(place)
        self._stop_counting()
        place.count.failed += 1
        self._upstream = None
        self._replay.may_drop(False)
        if ended:
            place.give_back(upstream, self._desk.now())
        else:
            upstream.give_up()
        self.go(other)
        return True


def _connection(*, keep: bool, plain: bool) -> bytes:
    if not keep:
        return b"connection: close\r\n"
    return b"connection: keep-alive\r\n" if plain else b""


def own_answer(status: int, reason: str, request_id: bytes, *, keep: bool, bodiless: bool = False, more: bytes = b"") -> bytes:
    """Return a response generated by the router, in the format of the inference protocols."""
    body = dumps({"error": reason} if reason else {}).encode() + b"\n"
    more += {401: b"www-authenticate: Bearer\r\n", 503: b"retry-after: 1\r\n"}.get(status, b"")
    return b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b%b%b\r\n%b" % (
        status,
        HTTPStatus(status).phrase.encode(),
        len(body),
        b"x-request-id: %b\r\n" % request_id if request_id else b"",
        more,
        b"" if keep else b"connection: close\r\n",
        b"" if bodiless else body,
    )
