"""What goes on in a router process: the routes in force, who waits, what was counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from fairway.app.system import SystemClock
from fairway.serving.router.access.admission import Admission, Admitted, admit_without_rules, make_admission
from fairway.serving.router.access.refusal import Refusal
from fairway.serving.router.comparison.pairs import Comparer, comparer_for
from fairway.serving.router.counting import BackendCount, RevisionCount
from fairway.serving.router.head import RequestHead, request_id_of
from fairway.serving.router.observation import AccessLog, Observer, RequestTracer, refused_record
from fairway.serving.router.outcome import MOST_OUTCOMES, is_allowed, read_outcome
from fairway.serving.router.place import PROBE_SECONDS, Place
from fairway.serving.router.replay import Budget
from fairway.serving.router.routes import Routes
from fairway.state.load import BackendLoad, RouteLoad
from fairway.state.route import Backend, RoutePlan

_WIDTH = 64
"""Requests under way at a backend up to which those who waited are sent to it."""
_LONG = 2.0
"""Seconds after which one who waits is sent on also to a backend that has more than that under way..."""
_FEW = 16
"""...so many of them at each look: what is under way may never be answered, and must not keep others waiting for ever."""
_FORGET_SECONDS = 600.0
"""How long the counts of a backend that is gone are still told."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long what may take, in seconds, and how much is kept."""

    head: float = 30.0
    """From the first byte of a request's head to its end."""
    idle: float = 120.0
    """A client's connection between two requests."""
    body: float = 60.0
    """Between two pieces of a body, from or to a client."""
    answer: float = 900.0
    """From the request to the answer, and between two pieces of it: some models think long."""
    drain: float = 600.0
    """How long a router that was replaced finishes what it has."""
    drain_idle: float = 30.0
    """How long it keeps connections on which nothing happens, so that no request meets their end."""
    replay: int = 1024 * 1024
    """Bytes of a request that are kept so that it can be sent again, held or mirrored."""
    kept: int = 64 * 1024 * 1024
    """Bytes of all requests together that are kept so."""
    clients: int = 8192
    """Connections from outside; one more is answered 503 and closed."""
    leave: float = 5.0
    """A client that sends no more may have left. After so many seconds without an answer it gets a `100 Continue`: if it has
    left, its kernel refuses that, and the request is given up."""


class Guest(Protocol):
    """A connection from outside, as far as the desk minds it."""

    deadline: float
    received: int
    """Bytes that came."""
    sent: int
    """Bytes that were handed over to go."""
    probe_at: float
    """When to find out whether the client, which sends no more, has left."""

    def probe(self) -> None:
        """Find out."""
        ...

    def expire(self) -> None:
        """Its deadline has passed."""
        ...

    def drain(self) -> None:
        """The router is replaced: an idle connection gets its last while."""
        ...

    def close_idle(self) -> None:
        """Close at once when nothing is under way."""
        ...

    def review(self, admits: Callable[[Admitted], bool]) -> None:
        """End what is under way with a key that is no longer valid."""
        ...


class Held(Protocol):
    """A request that waits for a backend."""

    head: RequestHead
    arrived: float

    def go(self, place: Place) -> None:
        """There is one."""
        ...

    def refuse(self, status: int, reason: str) -> None:
        """There will be none."""
        ...


class Desk:
    """Everything that the connections of one router share."""

    def __init__(self, epoch: str, limits: Limits, wake: Callable[[], None]) -> None:
        self.epoch = epoch
        self.limits = limits
        self.wake = wake
        """Something urgent was seen: a request waits, or a backend refused one."""
        self.now = time.monotonic
        """Seconds on a clock that only this process knows; the loop's own counts in milliseconds, too coarse to measure with."""
        self.routes = Routes()
        self.arrived = 0
        self.expired = 0
        self.draining = False
        self.guests: set[Guest] = set()
        self.budget = Budget(limits.kept)
        self.at_loopback = False
        """Whether only this machine can connect, so that requests of other sites' pages must be refused."""
        self.observer: Observer | None = None
        """Answers what is asked of the router itself."""
        self.access: AccessLog | None = None
        self.tracer: RequestTracer | None = None
        self.probes = 0
        """Health probes and scrapes."""
        self.own_codes: dict[int, int] = {}
        """Answers in the router's own words, by status."""
        self._bytes_before = [0, 0]
        """Bytes from and to clients whose connections are closed."""
        self.admission: Admission | None = None
        """Who may ask; None: everybody. Heads of requests are shown to it by `admit`."""
        self.followed: Callable[[RoutePlan], None] = lambda _plan: None
        """Called with every plan that comes in force, after the rules of access."""
        self.wall = SystemClock().now
        """Seconds since the epoch, by which keys expire."""
        self.outcome_token: Callable[[], str] = lambda: ""
        """What a report of an outcome must show; empty: none is taken."""
        self.comparer: Comparer | None = None
        """Compares answers to copies with those that clients got; None: nothing is compared, and no answer is kept for it."""
        self.mirrors = 0
        """Copies under way."""
        self.deleted = False
        """The service is gone: no request waits for a backend any more."""
        self.waiting: dict[Held, None] = {}
        """Who waits for a backend, the longest first."""
        self._revisions: dict[int, RevisionCount] = {}
        self._backends: dict[str, BackendCount] = {}
        self._left: dict[str, float] = {}
        self._releases = False
        self._made = 0
        self._prefix = epoch.encode()[:16] + b"-"
        self._loop = asyncio.get_running_loop()

    def next_id(self) -> bytes:
        """An id for a request."""
        self._made += 1
        return b"%b%x" % (self._prefix, self._made)

    def put(self, plan: RoutePlan) -> None:
        """Follow this plan from now on, and send on who waited for it."""
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

    def revision_counts(self) -> dict[int, RevisionCount]:
        """What was counted of each revision, in order."""
        return dict(sorted(self._revisions.items()))

    def bytes_passed(self) -> tuple[int, int]:
        """Bytes that came from clients, and that went to them."""
        taken, given = self._bytes_before
        return taken + sum(guest.received for guest in self.guests), given + sum(guest.sent for guest in self.guests)

    def closed(self, guest: Guest) -> None:
        """A connection from outside is gone."""
        if guest in self.guests:
            self.guests.discard(guest)
            self._bytes_before[0] += guest.received
            self._bytes_before[1] += guest.sent

    def note_own(self, status: int) -> None:
        """Count an answer in the router's own words."""
        self.own_codes[status] = self.own_codes.get(status, 0) + 1

    def note_refused(self, status: int, reason: str, peer: bytes, head: RequestHead | None = None) -> bytes:
        """Count and log a request that is refused before it is looked at; gives its id."""
        self.note_own(status)
        request_id = (request_id_of(head) if head is not None else None) or self.next_id()
        if self.access is not None and self.access.wants(status):
            self.access.note(refused_record(self.access.time_of(0.0), request_id, status, reason, peer, head))
        return request_id

    def admit(self, head: RequestHead, peer: bytes, raw: bytes | None = None, *, secure: bool = False) -> Refusal | Admitted:
        """Let a request in, or say how it is answered instead. Every protocol calls this once for each request, first of all.

        `peer`: the address of the client; `raw`: the head as it came, for HTTP/1.1; `secure`: the connection speaks TLS.
        The key is taken out of `head`. The answer must carry `Admitted.headers` and no header of the replica that
        `Admitted.replaces` names.
        """
        admission = self.admission
        if admission is None:
            return admit_without_rules(head)
        return admission.admit(head, peer, raw, secure=secure)

    def choose(self, head: RequestHead, without: Collection[Place] = ()) -> Place | None:
        """The backend for a request; None when none can take one now."""
        return self.routes.choose(head, self.now(), without)

    def note_outcome(self, head: RequestHead) -> tuple[int, str]:
        """Count what an earlier answer was worth, as its asker reports; the status of the answer, and what is wrong."""
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

    def hold(self, held: Held) -> bool:
        """Let a request wait for a backend; False when too many do."""
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

    def let_go(self, held: Held) -> None:
        """It no longer waits."""
        self.waiting.pop(held, None)

    def release(self, late: int = 0) -> None:
        """Send on those who wait, as far as there are backends. A few at a time: replicas refuse what would overload them.

        `late`: so many of those who have waited long go wherever there is a backend.
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
        """The same, when the loop comes to it: a backend has just shown that it is there, or has room."""
        if not self._releases:
            self._releases = True
            self._loop.call_soon(self.release)

    def refuse_all(self, reason: str) -> None:
        """No backend will come any more: answer those who wait, and let no other request wait."""
        self.deleted = True
        while self.waiting:
            held = next(iter(self.waiting))
            del self.waiting[held]
            self.expired += 1
            held.refuse(503, reason)

    def drain(self) -> None:
        """Let connections end: those with a request after its answer, the others after a while."""
        for guest in list(self.guests):
            guest.drain()

    def close_idle(self) -> None:
        """Close the connections on which nothing is under way."""
        for guest in list(self.guests):
            guest.close_idle()

    def _review(self) -> None:
        """End what is under way with keys that were revoked or have expired: WebSockets and streams may last for days."""
        if self.admission is not None and self.admission.ring is not None:
            for guest in list(self.guests):
                guest.review(self.admission.still_admits)

    def sweep(self) -> None:
        """Close what has waited too long."""
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
        for name in [name for name, left in self._left.items() if now - left > _FORGET_SECONDS]:
            if not self._backends[name].in_flight:
                del self._backends[name], self._left[name]

    def load(self, asked: float) -> RouteLoad:
        """What was counted. `asked` is the time by the caller's clock."""
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

    def _place(self, backend: Backend) -> Place:
        count = self._backends.setdefault(backend.name, BackendCount())
        return Place(backend, count, self._revisions.setdefault(backend.revision, RevisionCount()))

    def _look_again(self) -> None:
        """While somebody waits: has a backend come back, has anybody waited too long?"""
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
