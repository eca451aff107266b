"""A router without sockets: follows plans as the real one does, for fast tests of what stands on it.

What outlives an adapter (services, ports, counts) is kept in `FakeNetwork`, so that a router thrown away and made anew over
the same network shows what a restart of the daemon would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairway.app.ports import Clock
from fairway.serving.router.counting import BackendCount, RevisionCount
from fairway.serving.router.head import RequestHead
from fairway.serving.router.place import Place
from fairway.serving.router.routes import Routes
from fairway.state.load import RouteLoad
from fairway.state.route import Backend, RoutePlan, RouteTrouble


@dataclass(frozen=True, slots=True)
class FakeReply:
    """What came of a request."""

    status: int
    backend: str = ""
    revision: int | None = None


@dataclass(slots=True)
class FakeService:
    """One service's socket and what was counted."""

    port: int
    routes: Routes = field(default_factory=Routes)
    arrived: int = 0
    expired: int = 0
    held: dict[asyncio.Future[None], float] = field(default_factory=dict)
    revisions: dict[int, RevisionCount] = field(default_factory=dict)
    backends: dict[str, BackendCount] = field(default_factory=dict)

    def place(self, backend: Backend) -> Place:
        """A backend of the plan."""
        count = self.backends.setdefault(backend.name, BackendCount())
        return Place(backend, count, self.revisions.setdefault(backend.revision, RevisionCount()))


@dataclass(slots=True)
class FakeNetwork:
    """What outlives a router: the sockets, and how replicas answer."""

    services: dict[str, FakeService] = field(default_factory=dict)
    answers: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Status and seconds of a backend's answers, by its name; 200 at once unless it stands here. Status 0 refuses."""
    mirrored: list[str] = field(default_factory=list)
    """Backends that got a copy."""
    wakes: list[Callable[[], None]] = field(default_factory=list)
    next_port: int = 30_000

    async def ask(self, clock: Clock, port: int, headers: Mapping[str, str] | None = None) -> FakeReply:
        """Send a request; `ConnectionRefusedError` when nobody listens there."""
        found = next((service for service in self.services.values() if service.port == port), None)
        if found is None:
            raise ConnectionRefusedError
        lines = [f"{name}: {value}".encode() for name, value in (headers or {}).items()]
        head = RequestHead(b"POST", b"/", b"here", lines)
        found.arrived += 1
        while (place := self._choose(found, head, clock.now())) is None:
            if len(found.held) >= found.routes.plan.hold_limit:
                found.expired += 1
                self._wake()
                return FakeReply(503)
            if not await self._held(found, clock):
                found.expired += 1
                return FakeReply(503)
        return self._answer(found, place, clock.now())

    def _choose(self, service: FakeService, head: RequestHead, now: float) -> Place | None:
        """A backend that does not refuse."""
        refused: list[Place] = []
        while (place := service.routes.choose(head, now, refused)) is not None:
            if self.answers.get(place.backend.name, (200, 0.0))[0]:
                return place
            place.count.refused += 1
            refused.append(place)
            self._wake()
        return None

    async def _held(self, service: FakeService, clock: Clock) -> bool:
        """Wait for another plan; False when none comes in time."""
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        service.held[came] = clock.now()
        self._wake()
        try:
            async with asyncio.timeout(service.routes.plan.hold_seconds):
                await came
        except (TimeoutError, asyncio.CancelledError):
            return False
        finally:
            service.held.pop(came, None)
        return True

    def _answer(self, service: FakeService, place: Place, now: float) -> FakeReply:
        status, seconds = self.answers.get(place.backend.name, (200, 0.0))
        place.revision.arrived += 1
        place.count.begin(now)
        place.count.end(now + seconds)
        place.count.failed += status >= 500
        place.count.answered += status < 500
        place.revision.ended(status, seconds)
        self._mirror(service, place, now)
        return FakeReply(status, place.backend.name, place.backend.revision)

    def _mirror(self, service: FakeService, place: Place, now: float) -> None:
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
        """Begin."""
        self._wake = wake
        self._network.wakes.append(wake)

    async def close(self) -> None:
        """Let go."""
        if self._wake is not None:
            self._network.wakes.remove(self._wake)
            self._wake = None

    async def put(self, plan: RoutePlan) -> int:
        """Follow this plan from now on."""
        services = self._network.services
        service = services.get(plan.service)
        if service is None:
            self._network.next_port += 1
            service = services[plan.service] = FakeService(plan.port or self._network.next_port)
        service.port = plan.port or service.port
        service.routes.put(plan, service.place)
        for came in list(service.held):
            if not came.done():
                came.set_result(None)
        return service.port

    async def drop(self, service: str) -> None:
        """Close the service's socket."""
        gone = self._network.services.pop(service, None)
        if gone is not None:
            for came in list(gone.held):
                came.cancel()

    async def look(self) -> dict[str, RouteLoad]:
        """What was seen, by service."""
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

    async def troubles(self) -> dict[str, RouteTrouble]:
        """None: there are no processes."""
        return {}

    async def kept(self) -> list[str]:
        """The services that have a socket."""
        return sorted(self._network.services)
