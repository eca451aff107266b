"""WebSockets: a request that becomes a tunnel between a client and the server of a command.

The request is routed like any other and counts as in flight as long as the tunnel is open, so that a release does not end the
backend before its `grace` is over. Once the server has answered 101, bytes pass both ways without being interpreted. Reading
from one side pauses while the other does not take more. A tunnel without traffic for `Limits.answer` seconds is closed.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable
from typing import Protocol, cast

from fairway.serving.router.access.admission import AdmittedRequest
from fairway.serving.router.chunked_body import LAST
from fairway.serving.router.http1_backend import READ, WRITE_LIMIT
from fairway.serving.router.http1_exchange import CLIENT_LEFT, NO_LONGER_VALID, own_answer
from fairway.serving.router.message_head import (
    CHUNKED,
    HEAD_LIMIT,
    BadHeadError,
    RequestHead,
    ResponseHead,
    read_answer,
    request_id_of,
)
from fairway.serving.router.observation_port import RequestRecord, milliseconds, shown
from fairway.serving.router.routing.backend import CONNECT_SECONDS, RoutedBackend
from fairway.serving.router.routing.router_state import RouterState

_UPGRADE = b"connection: upgrade\r\nupgrade: websocket\r\n"
_EARLY = 64 * 1024
"""Bytes that a client may send before the tunnel is open."""
_LOOK_SECONDS = 1.0
_DRAIN_SECONDS = 30.0
"""How long a tunnel stays open after its router was replaced or its service deleted."""
_LINGER = 2.0
TRIES = 3
"""Limit on the backends that are tried when one refuses the connection."""


class ByteCounts(Protocol):
    """Byte counters, as the desk reads them."""

    received: int
    sent: int


class WebSocketTunnel(asyncio.BufferedProtocol):
    """The client's side. A `Guest` of the desk, and `Held` while there is no replica."""

    def __init__(self, desk: RouterState, head: RequestHead, peer: bytes, admitted: AdmittedRequest, counted: ByteCounts) -> None:
        self.head = head
        self.arrived = desk.now()
        self.deadline = desk.now() + _LOOK_SECONDS
        self.probe_at = math.inf
        self.received, self.sent = counted.received, counted.sent
        self._before = (counted.received, counted.sent)
        self._desk = desk
        self._peer = peer
        self._admitted = admitted
        self._request_id = request_id_of(head) or desk.next_id()
        self._client: asyncio.Transport = cast(asyncio.Transport, None)
        self._side = _TunnelBackend(self)
        self._place: RoutedBackend | None = None
        self._tried: list[RoutedBackend] = []
        self._task: asyncio.Task[None] | None = None
        self._early = b""
        self._rest: int | None = None
        """Bytes still to come of a response that opens no tunnel."""
        self._open = False
        self._over = False
        self._running = False
        """Whether it counts as in flight at its backend."""
        self._since = desk.now()
        self._ends = math.inf
        self._status = 0
        """The status of the response, if that opens no tunnel."""
        self._reason = ""

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport after the head of the request."""
        self._client = cast(asyncio.Transport, transport)
        self._client.set_write_buffer_limits(WRITE_LIMIT)
        self._desk.guests.add(self)

    def begin(self, early: bytes) -> None:
        """Choose a backend or wait for one. `early`: input after the head."""
        self._early = early
        self._desk.arrived += 1
        self._seek()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the bytes that were read from the client."""
        self.received += nbytes
        self._since = self._desk.now()
        data = bytes(READ[:nbytes])
        if self._open:
            self._side.write(data)
            return
        self._early += data
        if len(self._early) > _EARLY:
            self._client.pause_reading()

    def eof_received(self) -> bool:
        """Let the connection close: a WebSocket is never half-closed."""
        return False

    def pause_writing(self) -> None:
        """Pause reading from the server: the client reads slowly."""
        self._side.hold(True)

    def resume_writing(self) -> None:
        """Resume reading from the server: the client has caught up."""
        self._side.hold(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the tunnel: the client's connection is closed."""
        self._desk.closed(self)
        self._desk.let_go(self)
        self._end(101 if self._open else 0)

    # Called by the desk.

    def go(self, place: RoutedBackend) -> None:
        """Connect to this backend."""
        now = self._desk.now()
        place.revision.arrived += 1
        self._place = place
        place.count.begin(now)
        self._running = True
        self._task = asyncio.get_running_loop().create_task(self._connect(place))

    def refuse(self, status: int, reason: str) -> None:
        """Answer with a response generated by the router, and close."""
        self._desk.note_own(status)
        self._status, self._reason = status, reason
        self.answer(own_answer(status, reason, self._request_id, keep=False, more=self._admitted.lines))

    def probe(self) -> None:
        """Do nothing: a client that leaves closes its connection."""

    def expire(self) -> None:
        """Close a tunnel that is idle or whose time is over."""
        now = self._desk.now()
        self.deadline = now + _LOOK_SECONDS
        if self in self._desk.waiting:
            return
        if now > self._ends or now - self._since > self._desk.limits.answer:
            self._client.abort()

    def drain(self) -> None:
        """Limit the remaining time: the router is being replaced."""
        self._ends = min(self._ends, self._desk.now() + (_DRAIN_SECONDS if self._open else self._desk.limits.answer))

    def close_idle(self) -> None:
        """Limit the remaining time: the service was deleted."""
        self.drain()

    def review(self, admits: Callable[[AdmittedRequest], bool]) -> None:
        """Close the tunnel if its key is no longer valid; answer 401 if it is not open yet."""
        if self._over or admits(self._admitted):
            return
        self._desk.let_go(self)
        if self._open or self._rest is not None:
            self._end(101 if self._open else 0)
            self._client.abort()
        else:
            self.refuse(401, NO_LONGER_VALID)

    # Called by the backend's side.

    def opened(self, raw: bytes) -> None:
        """Take the server's answer; `raw` is its head and what came after it."""
        end = raw.find(b"\r\n\r\n") + 4
        try:
            answer = read_answer(raw[:end])
        except BadHeadError as problem:
            self._fail(502, problem.reason)
            return
        place = self._place
        assert place is not None
        if answer.status != 101:
            self._pass_refusal(answer, raw[end:], place)
            return
        self._open = True
        lines = _UPGRADE + self._admitted.lines
        answer.drop_lines(self._admitted.replaces)
        self.send(answer.render(place.backend.revision, self._request_id, lines) + raw[end:])
        early, self._early = self._early, b""
        if early:
            self._side.write(early)
            self._client.resume_reading()

    def _pass_refusal(self, answer: ResponseHead, body: bytes, place: RoutedBackend) -> None:
        """Pass on a response that opens no WebSocket, and close the connection after it."""
        self._settle(answer.status)
        self._status = answer.status
        answer.drop_lines(self._admitted.replaces)
        frame = b"connection: close\r\n" + self._admitted.lines
        if answer.length >= 0:
            frame += b"content-length: %d\r\n" % answer.length
        elif answer.length == CHUNKED:
            frame += b"transfer-encoding: chunked\r\n"
        self._rest = 0 if answer.bodiless else answer.length
        self._write(answer.render(place.backend.revision, self._request_id, frame))
        self.send(body)

    def send(self, data: bytes) -> None:
        """Pass on bytes from the server."""
        if data:
            self._write(data)
        if self._rest is None:
            return
        if self._rest >= 0:
            self._rest = max(0, self._rest - len(data))
        if not self._rest or (self._rest == CHUNKED and data.endswith(LAST)):
            self._end(0)
            self._close_soon()

    def _write(self, data: bytes) -> None:
        self.sent += len(data)
        self._since = self._desk.now()
        self._client.write(data)

    def hold_client(self, held: bool) -> None:
        """Pause or resume reading from the client, as fast as the server takes it."""
        if self._client.is_closing():
            return
        if held:
            self._client.pause_reading()
        else:
            self._client.resume_reading()

    def lost(self, *, began: bool) -> None:
        """End the tunnel or fail the request: the server's connection is closed."""
        if self._over:
            return
        if self._open or self._rest is not None:
            self._end(101)
            self._client.close()
        else:
            self._fail(
                502, "the replica ended the connection before it answered" if not began else "the replica's answer ended early"
            )

    def answer(self, wire: bytes) -> None:
        """Write the only response, and close."""
        self._end(0)
        self._write(wire)
        self._close_soon()

    def _close_soon(self) -> None:
        """Close after a moment in which the client can read what was sent."""
        if self._client.is_closing():
            return
        if self._client.can_write_eof():
            self._client.write_eof()
        asyncio.get_running_loop().call_later(_LINGER, self._client.close)

    # Connecting to the backend.

    def _seek(self) -> None:
        place = self._desk.choose(self.head, self._tried)
        if place is not None:
            self.go(place)
        elif not self._desk.hold(self):
            self.refuse(503, "no replica is ready, and too many requests wait for one")

    async def _connect(self, place: RoutedBackend) -> None:
        backend = place.backend
        if backend.protocol != "http":
            self._settle(501)
            what = f"a server that uses {backend.protocol}" if backend.protocol else "a model"
            self.refuse(501, f"{what} does not accept WebSockets; only a command with protocol: http does")
            return
        host, _, port = backend.address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: self._side, host.strip("[]"), int(port))
        except OSError:
            place.count.refused += 1
            self._stop_counting()
            self._tried.append(place)
            self._side = _TunnelBackend(self)
            if not self._over:
                self._desk.wake()
                if len(self._tried) < TRIES:
                    self._seek()
                else:
                    self.refuse(503, "no replica accepts a connection")
            return
        if self._over:
            self._side.close()
            return
        wire = self.head.render(self._peer, self._request_id)
        self._side.write(wire[:-2] + _UPGRADE + b"\r\n")

    def _fail(self, status: int, reason: str) -> None:
        self._settle(status)
        if not self._over:
            self.refuse(status, reason)

    def _settle(self, status: int) -> None:
        """Count how the request ended; the duration of a tunnel is not a latency."""
        place = self._place
        if place is None or not self._stop_counting():
            return
        if status >= 500:
            place.count.failed += 1
        else:
            place.count.answered += 1
        place.revision.ended(status, 0.0)

    def _stop_counting(self) -> bool:
        place = self._place
        if place is None or not self._running:
            return False
        self._running = False
        place.count.end(self._desk.now())
        return True

    def _end(self, status: int) -> None:
        if self._over:
            return
        self._over = True
        self._note()
        if status:
            self._settle(status)
        else:
            self._stop_counting()
        self._side.close()

    def _note(self) -> None:
        """Write the line of the access log, if it is enabled: at the end, with the bytes of both directions."""
        access, now, head = self._desk.access, self._desk.now(), self.head
        status = self._status or (101 if self._open else CLIENT_LEFT)
        if access is None or not access.wants(status):
            return
        place = self._place
        access.note(
            RequestRecord(
                time=access.time_of(now - self.arrived),
                request_id=self._request_id.decode("latin-1"),
                method=shown(head.method),
                path=shown(head.target.partition(b"?")[0]),
                status=status,
                revision=place.backend.revision if place is not None else 0,
                replica=place.backend.name if place is not None else "",
                bytes_in=self.received - self._before[0],
                bytes_out=self.sent - self._before[1],
                total_ms=milliseconds(now - self.arrived),
                client=shown(self._peer),
                forwarded_for=shown(head.forwarded.get(b"x-forwarded-for", b"")),
                key=self._admitted.key,
                agent=shown(head.value_of(b"user-agent") or b""),
                tries=len(self._tried),
                error=self._reason,
            )
        )


class _TunnelBackend(asyncio.BufferedProtocol):
    """The server's side."""

    def __init__(self, tunnel: WebSocketTunnel) -> None:
        self._tunnel = tunnel
        self._transport: asyncio.Transport | None = None
        self._raw = b""
        self._open = False
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the opened transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_LIMIT)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the bytes that were read from the server."""
        data = bytes(READ[:nbytes])
        if self._open:
            self._tunnel.send(data)
            return
        self._raw += data
        if b"\r\n\r\n" in self._raw:
            raw, self._raw, self._open = self._raw, b"", True
            self._tunnel.opened(raw)
        elif len(self._raw) > HEAD_LIMIT:
            self._tunnel.lost(began=True)

    def pause_writing(self) -> None:
        """Pause reading from the client: the server reads slowly."""
        self._tunnel.hold_client(True)

    def resume_writing(self) -> None:
        """Resume reading from the client: the server has caught up."""
        self._tunnel.hold_client(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the tunnel: the server's connection is closed."""
        self._closed = True
        self._tunnel.lost(began=bool(self._raw))

    def write(self, data: bytes) -> None:
        """Send bytes from the client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def hold(self, held: bool) -> None:
        """Pause or resume reading."""
        if self._transport is not None and not self._transport.is_closing():
            if held:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection: the tunnel has ended."""
        if self._transport is not None and not self._closed:
            self._transport.close()


def open_tunnel(
    desk: RouterState,
    transport: asyncio.Transport,
    head: RequestHead,
    early: bytes,
    peer: bytes,
    admitted: AdmittedRequest,
    counted: ByteCounts,
) -> None:
    """Hand the connection of a WebSocket request over to a tunnel."""
    tunnel = WebSocketTunnel(desk, head, peer, admitted, counted)
    pipe = transport.get_extra_info("socket")
    if pipe is not None and pipe.family in (socket.AF_INET, socket.AF_INET6):
        # The kernel detects a peer that has vanished without closing the connection.
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    transport.set_protocol(tunnel)
    tunnel.connection_made(transport)
    tunnel.begin(early)
