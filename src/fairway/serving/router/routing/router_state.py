"""The shared state of a router process: the routes in force, the waiting requests, and the counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from fairway.app.system.clock import SystemClock
from fairway.serving.router.access.admission import AdmittedRequest, RequestAdmission, admit_without_rules, make_admission
from fairway.serving.router.access.refusal import RequestRefusal
from fairway.serving.router.comparison.response_comparer import ResponseComparer, comparer_for
from fairway.serving.router.counter import BackendCounters, RevisionCounters
from fairway.serving.router.message_head import RequestHead, request_id_of
from fairway.serving.router.observation_port import AccessLog, RequestTracer, RouterObserver, refused_record
from fairway.serving.router.outcome_report import MOST_OUTCOMES, is_allowed, read_outcome
from fairway.serving.router.routing.backend import PROBE_SECONDS, RoutedBackend
from fairway.serving.router.routing.replay_buffer import ReplayBudget
from fairway.serving.router.routing.route_table import RouteTable
from fairway.state.serving.load import BackendLoad, RouteLoad
from fairway.state.serving.route import RouteBackend, RoutePlan

_WIDTH = 64
"""Waiting requests are released while some backend has fewer requests in flight than this."""
_LONG = 2.0
"""Seconds after which a waiting request is released even if every backend has more in flight..."""
_FEW = 16
"""...at most this many of them per check: requests in flight may never be answered and must not block the others for ever."""
_FORGET_SECONDS = 600.0
"""Seconds for which the counters of a removed backend are still reported."""


@dataclass(frozen=True, slots=True)
class RouterLimits:
    """Timeouts, in seconds, and limits on what is kept."""

    head: float = 30.0
    """From the first byte of a request's head to its end."""
    idle: float = 120.0
    """An idle client connection, between two requests."""
    body: float = 60.0
    """Between two pieces of a body, from or to a client."""
    answer: float = 900.0
    """From the request to the response, and between two pieces of the response: some models take long."""
    drain: float = 600.0
    """How long a replaced router may take to finish its requests."""
    drain_idle: float = 30.0
    """How long a replaced router keeps idle connections, so that no request runs into their closing."""
    replay: int = 1024 * 1024
    """Bytes of one request that are kept so that it can be retried, held or mirrored."""
    kept: int = 64 * 1024 * 1024
    """Bytes kept for this purpose by all requests together."""
    clients: int = 8192
    """Client connections; one more is answered 503 and closed."""
    leave: float = 5.0
    """Seconds without a response after which a client that sends no more is probed.

    It may have left, so it gets a `100 Continue`: if it has left, its kernel rejects that, and the request is cancelled.
    """


class TrackedConnection(Protocol):
    """A client connection, as far as the desk uses it."""

    deadline: float
    received: int
    """Bytes received."""
    sent: int
    """Bytes handed over for sending."""
    probe_at: float
    """When to find out whether a client that sends no more has left."""

    def probe(self) -> None:
        """Find out whether the client has left."""
        ...

    def expire(self) -> None:
        """Handle a passed deadline."""
        ...

    def drain(self) -> None:
        """Shorten an idle connection's deadline: the router is being replaced."""
        ...

    def close_idle(self) -> None:
        """Close now if no request is in flight."""
        ...

    def review(self, admits: Callable[[AdmittedRequest], bool]) -> None:
        """End requests in flight whose key is no longer valid."""
        ...


class WaitingRequest(Protocol):
    """A request that waits for a backend."""

    head: RequestHead
    arrived: float

    def go(self, place: RoutedBackend) -> None:
        """Send the request to this backend."""
        ...

    def refuse(self, status: int, reason: str) -> None:
        """Answer with an error: the request gets no backend."""
        ...


class RouterState:
    """The state that all connections of one router process share."""

    def __init__(self, epoch: str, limits: RouterLimits, wake: Callable[[], None]) -> None:
        self.epoch = epoch
        self.limits = limits
        self.wake = wake
        """Called on urgent events: a request waits, or a backend refused one."""
        self.now = time.monotonic
        """Monotonic clock of this process, in seconds. The event loop's clock counts milliseconds, too coarse to measure with."""
        self.routes = RouteTable()
        self.arrived = 0
        self.expired = 0
        self.draining = False
        self.guests: set[TrackedConnection] = set()
        self.budget = ReplayBudget(limits.kept)
        self.at_loopback = False
        """Whether only this machine can connect, so that requests from other sites' pages must be refused."""
        self.observer: RouterObserver | None = None
        """Answers requests for the router itself."""
        self.access: AccessLog | None = None
        self.tracer: RequestTracer | None = None
        self.probes = 0
        """Number of health probes and scrapes."""
        self.own_codes: dict[int, int] = {}
        """Responses generated by the router itself, by status."""
        self._bytes_before = [0, 0]
        """Bytes from and to clients whose connections are closed."""
        self.admission: RequestAdmission | None = None
        """The access rules, which `admit` applies to request heads; None admits every request."""
        self.followed: Callable[[RoutePlan], None] = lambda _plan: None
        """Called with every plan that comes into force, after its access rules apply."""
        self.wall = SystemClock().now
        """Seconds since the epoch, by which keys expire."""
        self.outcome_token: Callable[[], str] = lambda: ""
        """Returns the token that reports of outcomes must carry; empty: no report is accepted."""
        self.comparer: ResponseComparer | None = None
        """Compares responses to copies with those to clients; None: nothing is compared, and no response is kept for it."""
        self.mirrors = 0
        """Copies in flight."""
        self.deleted = False
        """Whether the service was deleted: no request waits for a backend any more."""
        self.waiting: dict[WaitingRequest, None] = {}
        """Requests that wait for a backend, the longest first."""
        self._revisions: dict[int, RevisionCounters] = {}
        self._backends: dict[str, BackendCounters] = {}
        self._left: dict[str, float] = {}
        self._releases = False
        self._made = 0
        self._prefix = epoch.encode()[:16] + b"-"
        self._loop = asyncio.get_running_loop()

    def next_id(self) -> bytes:
        """Return a new request id."""
        self._made += 1
        return b"%b%x" % (self._prefix, self._made)

    def put(self, plan: RoutePlan) -> None:
        """Put a plan in force and release the requests that waited for it."""
        self.routes.put(plan, self._place)
        self.admission = make_admission(plan, self.now, self.wall, exposed=not self.at_loopback, before=self.admission)
        self._review()
        self.followed(plan)
        self.comparer = comparer_for(plan.mirror, self.comparer, self.now)
        served = {backend.name for backend in plan.backends}
        now = self.now()
        for name in self._backends:
            if name in served:
                self._left.pop(name, None)
            else:
                self._left.setdefault(name, now)
        self.release()
        if self.observer is not None:
            self.observer.put(plan)

    def revision_counts(self) -> dict[int, RevisionCounters]:
        """Return the counters of each revision, ordered by number."""
        return dict(sorted(self._revisions.items()))

    def bytes_passed(self) -> tuple[int, int]:
        """Return the bytes received from clients and the bytes sent to them."""
        received, sent = self._bytes_before
        return received + sum(guest.received for guest in self.guests), sent + sum(guest.sent for guest in self.guests)

    def closed(self, guest: TrackedConnection) -> None:
        """Forget a closed client connection, but keep its byte counts."""
        if guest in self.guests:
            self.guests.discard(guest)
            self._bytes_before[0] += guest.received
            self._bytes_before[1] += guest.sent

    def note_own(self, status: int) -> None:
        """Count a response generated by the router itself."""
        self.own_codes[status] = self.own_codes.get(status, 0) + 1

    def note_refused(self, status: int, reason: str, peer: bytes, head: RequestHead | None = None) -> bytes:
        """Count and log a request that is refused before it is processed; return its id."""
        self.note_own(status)
        request_id = (request_id_of(head) if head is not None else None) or self.next_id()
        if self.access is not None and self.access.wants(status):
            self.access.note(refused_record(self.access.time_of(0.0), request_id, status, reason, peer, head))
        return request_id

    def admit(
        self, head: RequestHead, peer: bytes, raw: bytes | None = None, *, secure: bool = False
    ) -> RequestRefusal | AdmittedRequest:
        """Admit a request or return its refusal. Every protocol calls this exactly once per request, before anything else.

        `peer` is the client's address, `raw` the head as received (HTTP/1.1 only), `secure` whether the connection uses TLS.
        The key is removed from `head`. The response must carry `AdmittedRequest.headers` and none of the replica's headers named
        in `AdmittedRequest.replaces`.
        """
        admission = self.admission
        if admission is None:
            return admit_without_rules(head)
        return admission.admit(head, peer, raw, secure=secure)

    def choose(self, head: RequestHead, without: Collection[RoutedBackend] = ()) -> RoutedBackend | None:
        """Return the backend for a request; None if none can take one now."""
        return self.routes.choose(head, self.now(), without)

    def note_outcome(self, head: RequestHead) -> tuple[int, str]:
        """Count the outcome of an earlier response, as reported by its client; return the status to answer and what is wrong."""
        if not is_allowed(head, self.outcome_token()):
            return 401, "reports of outcomes need the service's token: `fairway get service/NAME` shows it"
        try:
            revision, name, value = read_outcome(head)
        except ValueError as problem:
            return 400, str(problem)
        count = self._revisions.get(revision)
        if count is None:
            return 400, f"no answer came from revision {revision}"
        if name not in count.outcomes and len(count.outcomes) >= MOST_OUTCOMES:
            return 400, f"there are {MOST_OUTCOMES} kinds of outcome already"
        if not count.came_to(name, value):
            return 400, f"the sum of the outcomes {name} would be too large to be compared"
        return 200, ""

    def hold(self, held: WaitingRequest) -> bool:
        """Let a request wait for a backend; return False if too many already wait."""
        plan = self.routes.plan
        if self.deleted or len(self.waiting) >= plan.hold_limit or plan.hold_seconds <= 0:
            self.expired += 1
            self.wake()
            return False
        self.waiting[held] = None
        if len(self.waiting) == 1:
            self._loop.call_later(PROBE_SECONDS, self._look_again)
        self.wake()
        return True

    def let_go(self, held: WaitingRequest) -> None:
        """Remove a request from those that wait."""
        self.waiting.pop(held, None)

    def release(self, late: int = 0) -> None:
        """Send waiting requests to backends, as far as there are any. A few at a time: replicas refuse what would overload them.

        `late`: how many of the requests that have waited long may go to a busy backend.
        """
        self._releases = False
        now = self.now()
        for held in list(self.waiting):
            if all(place.count.in_flight >= _WIDTH for place in self.routes.places.values()):
                late -= 1
                if late < 0 or now - held.arrived < _LONG:
                    return
            place = self.routes.choose(held.head, now)
            if place is not None:
                self.waiting.pop(held, None)
                held.go(place)

    def release_soon(self) -> None:
        """Schedule `release` on the event loop: a backend has just become available or has room."""
        if not self._releases:
            self._releases = True
            self._loop.call_soon(self.release)

    def refuse_all(self, reason: str) -> None:
        """Refuse the waiting requests and let no other request wait: no backend will become available any more."""
        self.deleted = True
        while self.waiting:
            held = next(iter(self.waiting))
            del self.waiting[held]
            self.expired += 1
            held.refuse(503, reason)

    def drain(self) -> None:
        """Let connections end: those with a request after its response, idle ones after a while."""
        for guest in list(self.guests):
            guest.drain()

    def close_idle(self) -> None:
        """Close the connections that have no request in flight."""
        for guest in list(self.guests):
            guest.close_idle()

    def _review(self) -> None:
        """End requests whose keys were revoked or have expired: WebSockets and streams may last for days."""
        if self.admission is not None and self.admission.ring is not None:
            for guest in list(self.guests):
                guest.review(self.admission.still_admits)

    def sweep(self) -> None:
        """Run the periodic work: expire and probe client connections, close idle backend connections, drop old counters."""
        if self.admission is not None and self.admission.ends_by_itself:
            self._review()
        now = self.now()
        for guest in [guest for guest in self.guests if guest.deadline <= now]:
            guest.expire()
        for guest in [guest for guest in self.guests if guest.probe_at <= now]:
            guest.probe()
        for place in self.routes.places.values():
            place.sweep(now)
        if self.observer is not None:
            self.observer.sweep()
        if self.access is not None:
            self.access.sweep()
        for name in [name for name, removed_at in self._left.items() if now - removed_at > _FORGET_SECONDS]:
            if not self._backends[name].in_flight:
                del self._backends[name], self._left[name]

    def load(self, asked: float) -> RouteLoad:
        """Return the counters. `asked` is the current time on the caller's clock."""
        now = self.now()
        oldest = next(iter(self.waiting), None)
        backends: dict[str, BackendLoad] = {name: count.load(now) for name, count in self._backends.items()}
        return RouteLoad(
            time=asked,
            epoch=self.epoch,
            held=len(self.waiting),
            held_since=None if oldest is None else asked - (now - oldest.arrived),
            arrived=self.arrived,
            expired=self.expired,
            revisions={number: count.load() for number, count in sorted(self._revisions.items())},
            backends=backends,
            key_uses=self._key_uses(asked - now),
        )

    def _key_uses(self, shift: float) -> dict[str, float]:
        ring = self.admission.ring if self.admission is not None else None
        return {name: shift + used for name, used in ring.last_used().items()} if ring is not None else {}

    def _place(self, backend: RouteBackend) -> RoutedBackend:
        count = self._backends.setdefault(backend.name, BackendCounters())
        return RoutedBackend(backend, count, self._revisions.setdefault(backend.revision, RevisionCounters()))

    def _look_again(self) -> None:
        """Check again while requests wait: a backend may be back, and requests that have waited too long are refused."""
        if not self.waiting:
            return
        patience = self.now() - self.routes.plan.hold_seconds
        for held in list(self.waiting):
            if held.arrived > patience:
                break
            del self.waiting[held]
            self.expired += 1
            held.refuse(503, "no replica became ready in time")
        self.release(_FEW)
        if self.waiting:
            self._loop.call_later(PROBE_SECONDS, self._look_again)
