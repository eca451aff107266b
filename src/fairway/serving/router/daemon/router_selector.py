"""The choice of a service's router: Envoy if it is configured and supports what the service needs, else Fairway's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.app.port.serving import ServiceRouter
from fairway.errors import FairwayError
from fairway.spec.endpoint import ServiceEndpoint
from fairway.spec.service import ServiceProtocol, ServiceSpec
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault

log = logging.getLogger("fairway.router")


def needs_own(spec: ServiceSpec) -> str:
    """Return why Envoy cannot route to such a service; empty if it can."""
    if spec.replicas.min == 0:
        return "it may scale to zero, and Envoy does not hold requests until a replica is ready"
    if spec.endpoint != ServiceEndpoint():
        return "its `endpoint` has rules (address, keys, TLS, names or origins), which Fairway's own router enforces"
    if spec.rollout.guard.metric is not None:
        return f"its guard reads the metric {spec.rollout.guard.metric.name}, which Envoy does not count"
    if spec.rollout.guard.outputs is not None:
        return "its guard compares outputs, which Envoy does not do"
    if spec.protocol is not ServiceProtocol.HTTP:
        return f"its server uses {spec.protocol}, and Envoy is configured for HTTP/1.1 to replicas"
    return ""


class RouterSelector:
    """Implements `ServiceRouter` with two routers. A service uses one of them and keeps it unless it has to change.

    A change of router closes the service's socket and reopens it at the same port: connections in between are refused.
    """

    def __init__(
        self,
        own: ServiceRouter,
        envoy: ServiceRouter,
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
        """Returns why a service cannot use Envoy; set by the code that has the services' documents."""

    async def start(self, wake: Callable[[], None]) -> None:
        """Start both routers and find the services that they serve from before a restart."""
        await self._own.start(wake)
        await self._envoy.start(wake)
        self._with_own = set(await self._own.kept())
        self._with_envoy = set(await self._envoy.kept()) - self._with_own

    async def close(self) -> None:
        """Close both; the router processes keep running."""
        await self._own.close()
        await self._envoy.close()

    async def put(self, plan: RoutePlan) -> int:
        """Put the plan in force and return the port."""
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
                log.warning("%s: Envoy did not start, so the service uses fairway's own router: %s", service, problem)
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
        """Return the load by service."""
        loads = await self._own.look()
        if self._with_envoy:
            try:
                loads |= await self._envoy.look()
            except (FairwayError, OSError) as problem:
                # A service without measurements stays as it is, and the others must still be measured.
                log.warning("the load could not be read from Envoy: %s", problem)
        return loads

    async def troubles(self) -> dict[str, RouterFault]:
        """Return the troubles of both routers, by service."""
        return {**await self._own.troubles(), **await self._envoy.troubles()}

    async def kept(self) -> list[str]:
        """Return the services that have a router, including those from before a restart."""
        return sorted({*await self._own.kept(), *await self._envoy.kept()})

    def outcome_token(self, service: str) -> str:
        """Return the token that reports of outcomes must carry; empty where Envoy routes, which counts none."""
        return "" if service in self._with_envoy else self._tokens(service)

    def access_folder(self, service: str) -> Path | None:
        """Return the folder of a service's access log; None where Envoy routes, which writes none."""
        return None if service in self._with_envoy else self._logs(service)

    def told(self, service: str) -> str:
        """Return which router a service has, for display; empty if there is no choice."""
        if service in self._with_envoy:
            return "Envoy"
        if not self._wanted or service not in self._with_own:
            return ""
        reason = self.reason(service)
        return (
            f"fairway's own: {reason}"
            if reason
            else "fairway's own: the service already uses it; recreate the service to use Envoy"
        )


@contextmanager
def _told_as_unreachable() -> Iterator[None]:
    """Turn an error into `ConnectionError`: the caller retries this router and goes on with the other services."""
    try:
        yield
    except FairwayError as problem:
        raise ConnectionError(str(problem)) from problem
