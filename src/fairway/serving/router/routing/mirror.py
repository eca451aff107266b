"""Copies of requests, sent to another revision after the original was answered, so that the original never waits for its copy."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from fairway.serving.router.comparison.response_comparer import KeptResponse, ResponseComparer
from fairway.serving.router.http1_backend import BackendChannel
from fairway.serving.router.message_head import RequestHead, ResponseHead
from fairway.serving.router.routing.backend import RoutedBackend
from fairway.serving.router.routing.grpc_outcome import outcome_of
from fairway.serving.router.routing.replay_buffer import ReplayBuffer
from fairway.serving.router.routing.router_state import RouterState

MIRROR_LIMIT = 64
"""Limit on copies in flight; while it is reached, requests are not copied."""


def keep_answer(comparer: ResponseComparer, request: RequestHead, head: ResponseHead) -> KeptResponse | None:
    """Start to record a response for a comparison; None if it is not a model's successful answer to a POST."""
    return comparer.keep(head.lines) if request.method == b"POST" and HTTPStatus.OK <= head.status < 300 else None


def send_copy(
    desk: RouterState, revision_taken: int, wire: bytes, replay: ReplayBuffer, head: RequestHead, kept: KeptResponse | None = None
) -> bool:
    """Send a copy of a request if the plan requires it; return True if the copy now owns `replay` and `kept`.

    `kept` is the client's response, with which the copy's response is to be compared.
    """
    if desk.mirrors >= MIRROR_LIMIT:
        return False
    place = desk.routes.shadow(revision_taken, desk.now())
    if place is None:
        return False
    _MirroredRequest(desk, place, wire[:-2] + b"fairway-mirror: 1\r\n\r\n", replay, head, kept).begin()
    return True


class _MirroredRequest:
    """One copy. Its response is measured, compared if that is configured, and discarded."""

    __slots__ = (
        "_answer", "_answer_head", "_desk", "_head", "_kept", "_over", "_place", "_replay", "_since", "_status", "_timer",
        "_upstream", "_wire",
    )  # fmt: skip

    def __init__(
        self,
        desk: RouterState,
        place: RoutedBackend,
        wire: bytes,
        replay: ReplayBuffer,
        head: RequestHead,
        kept: KeptResponse | None,
    ) -> None:
        self._kept = kept
        self._answer: KeptResponse | None = None
        self._desk = desk
        self._place = place
        self._wire = wire
        self._replay = replay
        self._head = head
        self._since = 0.0
        self._status = 0
        self._answer_head: ResponseHead | None = None
        self._over = False
        self._upstream: BackendChannel | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Send the copy."""
        desk, place = self._desk, self._place
        self._since = desk.now()
        desk.mirrors += 1
        place.revision.mirrored += 1
        place.count.begin(self._since)
        self._timer = asyncio.get_running_loop().call_later(desk.limits.answer, self._expire)
        upstream = place.take_idle(self._since)
        if upstream is None:
            place.connect(self)
        else:
            self.on_connected(upstream)

    def on_connected(self, upstream: BackendChannel) -> None:
        """Send the request over the connection."""
        if self._over:
            upstream.close()
            return
        self._upstream = upstream
        head = self._head
        body = self._replay.pieces
        upstream.ask(self, self._wire, body, length=head.length, bodiless=head.method == b"HEAD", whole=True)

    def on_refused(self, problem: Exception) -> None:
        """Count a failure: no connection could be opened."""
        self._fail()

    def on_answer(self, head: ResponseHead, piece: bytes, ended: bool) -> None:
        """Start to record the response."""
        self._answer_head = head
        if self._kept is not None and self._desk.comparer is not None:
            self._answer = keep_answer(self._desk.comparer, self._head, head)
        if ended or piece:
            self.on_piece(piece, ended)

    def on_piece(self, piece: bytes, ended: bool) -> None:
        """Record more of the response; finish when it is complete."""
        if self._answer is not None:
            self._answer.add(piece)
        if ended and self._upstream is not None and self._answer_head is not None:
            self._status = outcome_of(self._answer_head)
            self._place.give_back(self._upstream, self._desk.now())
            self._end()

    def on_lost(self, problem: Exception | None, unread: bool) -> None:
        """Count a failure: the backend closed the connection."""
        self._fail()

    def on_full(self) -> None:
        """Do nothing: the whole request was already handed over."""

    def on_room(self) -> None:
        """Do nothing: the whole request was already handed over."""

    def _expire(self) -> None:
        if self._upstream is not None:
            self._upstream.give_up()
        self._fail()

    def _fail(self) -> None:
        """Finish without a complete response, which counts as a server error."""
        self._status = HTTPStatus.BAD_GATEWAY
        self._end()

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._replay.close()
        now = self._desk.now()
        self._desk.mirrors -= 1
        self._place.count.end(now)
        if self._timer is not None:
            self._timer.cancel()
        self._place.revision.copy_ended(self._status, now - self._since)
        self._compare()

    def _compare(self) -> None:
        kept, answer, comparer = self._kept, self._answer, self._desk.comparer
        if kept is None:
            return
        if comparer is not None and answer is not None and self._status < 300:
            comparer.compare(self._place.revision, kept, answer)
            return
        kept.close()
        if answer is not None:
            answer.close()
