"""A router without sockets that follows route plans like the real one: for fast tests of the layers above it.

State that outlives an adapter (services, ports, counts) is in `FakeNetwork`, so that a new router over the same network
simulates a restart of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairway.app.port.port import Clock
from fairway.serving.router.counter import BackendCounters, RevisionCounters
from fairway.serving.router.message_head import RequestHead
from fairway.serving.router.routing.backend import RoutedBackend
from fairway.serving.router.routing.route_table import RouteTable
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RouteBackend, RoutePlan, RouterFault


@dataclass(frozen=True, slots=True)
class FakeReply:
    """The result of a request."""

    status: int
    backend: str = ""
    revision: int | None = None


@dataclass(slots=True)
class FakeService:
    """One service's port and counters."""

    port: int
    routes: RouteTable = field(default_factory=RouteTable)
    arrived: int = 0
    expired: int = 0
    held: dict[asyncio.Future[None], float] = field(default_factory=dict)
    revisions: dict[int, RevisionCounters] = field(default_factory=dict)
    backends: dict[str, BackendCounters] = field(default_factory=dict)

    def place(self, backend: RouteBackend) -> RoutedBackend:
        """Return the place of a backend, with its counters."""
        count = self.backends.setdefault(backend.name, BackendCounters())
        return RoutedBackend(backend, count, self.revisions.setdefault(backend.revision, RevisionCounters()))


@dataclass(slots=True)
class FakeNetwork:
    """State that outlives a router: the ports, and the prepared answers of replicas."""

    services: dict[str, FakeService] = field(default_factory=dict)
    answers: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Status and seconds of a backend's answers, by name; the default is 200 at once. Status 0 refuses connections."""
    mirrored: list[str] = field(default_factory=list)
    """Backends that received a copy, one entry for each."""
    wakes: list[Callable[[], None]] = field(default_factory=list)
    next_port: int = 30_000

    async def ask(self, clock: Clock, port: int, headers: Mapping[str, str] | None = None) -> FakeReply:
        """Send a request; raise `ConnectionRefusedError` when no service has this port."""
        target = next((service for service in self.services.values() if service.port == port), None)
        if target is None:
            raise ConnectionRefusedError
        lines = [f"{name}: {value}".encode() for name, value in (headers or {}).items()]
        head = RequestHead(b"POST", b"/", b"here", lines)
        target.arrived += 1
        while (place := self._choose(target, head, clock.now())) is None:
            if len(target.held) >= target.routes.plan.hold_limit:
                target.expired += 1
                self._wake()
                return FakeReply(503)
            if not await self._held(target, clock):
                target.expired += 1
                return FakeReply(503)
        return self._answer(target, place, clock.now())

    def _choose(self, service: FakeService, head: RequestHead, now: float) -> RoutedBackend | None:
        """Return a backend that accepts connections; None if there is none."""
        refused: list[RoutedBackend] = []
        while (place := service.routes.choose(head, now, refused)) is not None:
            if self.answers.get(place.backend.name, (200, 0.0))[0]:
                return place
            place.count.refused += 1
            refused.append(place)
            self._wake()
        return None

    async def _held(self, service: FakeService, clock: Clock) -> bool:
        """Wait for a new plan; return False if none arrives in time."""
        plan_change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        service.held[plan_change] = clock.now()
        self._wake()
        try:
            async with asyncio.timeout(service.routes.plan.hold_seconds):
                await plan_change
        except (TimeoutError, asyncio.CancelledError):
            return False
        finally:
            service.held.pop(plan_change, None)
        return True

    def _answer(self, service: FakeService, place: RoutedBackend, now: float) -> FakeReply:
        status, seconds = self.answers.get(place.backend.name, (200, 0.0))
        place.revision.arrived += 1
        place.count.begin(now)
        place.count.end(now + seconds)
        place.count.failed += status >= 500
        place.count.answered += status < 500
        place.revision.ended(status, seconds)
        self._mirror(service, place, now)
        return FakeReply(status, place.backend.name, place.backend.revision)

    def _mirror(self, service: FakeService, place: RoutedBackend, now: float) -> None:
        shadow = service.routes.shadow(place.backend.revision, now)
        if shadow is not None:
            status, seconds = self.answers.get(shadow.backend.name, (200, 0.0))
            self.mirrored.append(shadow.backend.name)
            shadow.revision.mirrored += 1
            shadow.revision.copy_ended(status or 502, seconds)

    def _wake(self) -> None:
        for wake in self.wakes:
            wake()


class FakeRouter:
    """The `Router` port over a `FakeNetwork`."""

    def __init__(self, network: FakeNetwork, clock: Clock) -> None:
        self._network = network
        self._clock = clock
        self._wake: Callable[[], None] | None = None

    async def start(self, wake: Callable[[], None]) -> None:
        """Register the wake callback."""
        self._wake = wake
        self._network.wakes.append(wake)

    async def close(self) -> None:
        """Unregister the wake callback."""
        if self._wake is not None:
            self._network.wakes.remove(self._wake)
            self._wake = None

    async def put(self, plan: RoutePlan) -> int:
        """Apply a route plan; return the service's port."""
        services = self._network.services
        service = services.get(plan.service)
        if service is None:
            self._network.next_port += 1
            service = services[plan.service] = FakeService(plan.port or self._network.next_port)
        service.port = plan.port or service.port
        service.routes.put(plan, service.place)
        for plan_change in list(service.held):
            if not plan_change.done():
                plan_change.set_result(None)
        return service.port

    async def drop(self, service: str) -> None:
        """Remove a service; held requests fail."""
        removed = self._network.services.pop(service, None)
        if removed is not None:
            for plan_change in list(removed.held):
                plan_change.cancel()

    async def look(self) -> dict[str, RouteLoad]:
        """Return the counters by service."""
        now = self._clock.now()
        return {
            name: RouteLoad(
                time=now,
                epoch="fake",
                held=len(service.held),
                held_since=min(service.held.values(), default=None),
                arrived=service.arrived,
                expired=service.expired,
                revisions={number: count.load() for number, count in service.revisions.items()},
                backends={backend: count.load(now) for backend, count in service.backends.items()},
            )
            for name, service in self._network.services.items()
        }

    async def troubles(self) -> dict[str, RouterFault]:
        """Return an empty mapping: there are no processes that could fail."""
        return {}

    async def kept(self) -> list[str]:
        """Return the services that have a port."""
        return sorted(self._network.services)
