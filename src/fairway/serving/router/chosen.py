"""Which router a service has: Envoy, where it is asked for and can do what the service needs; else our own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.app.service_ports import Router
from fairway.errors import FairwayError
from fairway.spec.endpoint import Endpoint
from fairway.spec.service import ServiceProtocol, ServiceSpec
from fairway.state.load import RouteLoad
from fairway.state.route import RoutePlan, RouteTrouble

log = logging.getLogger("fairway.router")


def needs_own(spec: ServiceSpec) -> str:
    """Why Envoy cannot route to such a service, in words; empty when it can."""
    if spec.replicas.min == 0:
        return "it may have no replica, and Envoy lets no request wait for one"
    if spec.endpoint != Endpoint():
        return "its `endpoint` has rules (address, keys, TLS, names or origins), which Fairway's own router enforces"
    if spec.rollout.guard.metric is not None:
        return f"its guard reads the metric {spec.rollout.guard.metric.name}, which Envoy does not count"
    if spec.rollout.guard.outputs is not None:
        return "its guard compares outputs, which Envoy does not do"
    if spec.protocol is not ServiceProtocol.HTTP:
        return f"its server speaks {spec.protocol}, and Envoy is set up for HTTP/1.1 to replicas"
    return ""


class ChosenRouter:
    """Implements `Router` with two of them; a service has one, and keeps it unless it must change.

    A change of router closes the service's socket and opens it again at the same port: connections in between are refused.
    """

    def __init__(
        self,
        own: Router,
        envoy: Router,
        *,
        wanted: bool,
        tokens: Callable[[str], str] = lambda _service: "",
        logs: Callable[[str], Path | None] = lambda _service: None,
    ) -> None:
        self._own = own
        self._tokens = tokens
        self._logs = logs
        self._envoy = envoy
        self._wanted = wanted
        self._with_envoy: set[str] = set()
        self._with_own: set[str] = set()
        self.reason: Callable[[str], str] = lambda _service: ""
        """Why a service cannot be Envoy's; whoever knows the services sets it."""

    async def start(self, wake: Callable[[], None]) -> None:
        """Begin; routers from before are found again."""
        await self._own.start(wake)
        await self._envoy.start(wake)
        self._with_own = set(await self._own.kept())
        self._with_envoy = set(await self._envoy.kept()) - self._with_own

    async def close(self) -> None:
        """Let go. Routers go on."""
        await self._own.close()
        await self._envoy.close()

    async def put(self, plan: RoutePlan) -> int:
        """Make it so; the port it listens on."""
        service = plan.service
        fits = self._wanted and not self.reason(service)
        if service in self._with_envoy and not fits:
            await self._envoy.drop(service)
            self._with_envoy.discard(service)
        if service in self._with_envoy:
            with _told_as_unreachable():
                return await self._envoy.put(plan)
        if fits and service not in self._with_own:
            try:
                port = await self._envoy.put(plan)
            except (FairwayError, OSError) as problem:
                log.warning("%s: Envoy does not start, so it gets fairway's own router: %s", service, problem)
            else:
                self._with_envoy.add(service)
                return port
        port = await self._own.put(plan)
        self._with_own.add(service)
        return port

    async def drop(self, service: str) -> None:
        """End the router of a service, whichever it is."""
        await (self._envoy if service in self._with_envoy else self._own).drop(service)
        self._with_envoy.discard(service)
        self._with_own.discard(service)

    async def look(self) -> dict[str, RouteLoad]:
        """What was measured, by service."""
        found = await self._own.look()
        if self._with_envoy:
            try:
                found |= await self._envoy.look()
            except (FairwayError, OSError) as problem:
                # What is not measured changes nothing; the others must be looked at.
                log.warning("Envoy could not be asked: %s", problem)
        return found

    async def troubles(self) -> dict[str, RouteTrouble]:
        """What is wrong with either's routers."""
        return {**await self._own.troubles(), **await self._envoy.troubles()}

    async def kept(self) -> list[str]:
        """The services that have a router, also from before a restart."""
        return sorted({*await self._own.kept(), *await self._envoy.kept()})

    def outcome_token(self, service: str) -> str:
        """What reports of outcomes to a service must show; empty where Envoy routes, which counts none."""
        return "" if service in self._with_envoy else self._tokens(service)

    def access_folder(self, service: str) -> Path | None:
        """Where the access log of a service lies; None where Envoy routes, which writes none."""
        return None if service in self._with_envoy else self._logs(service)

    def told(self, service: str) -> str:
        """Which router a service has, for people; empty where there is nothing to choose."""
        if service in self._with_envoy:
            return "Envoy"
        if not self._wanted or service not in self._with_own:
            return ""
        reason = self.reason(service)
        return f"fairway's own: {reason}" if reason else "fairway's own: it had it first; Envoy comes when it is made anew"


@contextmanager
def _told_as_unreachable() -> Iterator[None]:
    """A router that does not do as told is tried again, and holds up nobody else."""
    try:
        yield
    except FairwayError as problem:
        raise ConnectionError(str(problem)) from problem
