"""The `Router` port over router pods.

The operator sends plans to them; without an operator they follow the plan in a ConfigMap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fairway.app.port.port import Clock
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import Deployment, Pod
from fairway.engines.kubernetes.serving import load_validation as loads
from fairway.engines.kubernetes.serving import naming
from fairway.engines.kubernetes.serving.endpoint_exposure import cluster_plan, with_keys
from fairway.engines.kubernetes.serving.gateway_load import GatewayLoadCounter
from fairway.errors import UnavailableError
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.state.service import ServiceKey
from fairway.state.serving.access import KeyRule
from fairway.state.serving.load import ReplicaLoad, RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault

HEARD_WITHIN = 30.0
"""Seconds in which every router must have received a change of API keys."""
AGAIN = 1.0
"""Seconds until an unreachable router is retried."""

log = logging.getLogger("fairway.operator")


class RouterControlClient(Protocol):
    """The client for a router's control port, with its token. Raises `OSError` when it does not answer or is not authentic."""

    async def put(self, peer: PodPeer, token: str, plan: RoutePlan) -> None:
        """Send a plan to a router."""
        ...

    async def look(self, peer: PodPeer, token: str) -> RouteLoad:
        """Return what a router has counted."""
        ...

    async def follow(self, peer: PodPeer, token: str, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the router reports something urgent, until it closes the connection."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...

    def together(self, loads: list[RouteLoad]) -> RouteLoad:
        """Merge the loads of several routers of a service."""
        ...


@dataclass(slots=True)
class _RouterConnection:
    """The connection to one router pod."""

    service: ServiceKey
    peer: PodPeer
    attending: asyncio.Task[None] | None = None
    up: bool = False


class ClusterRouter:
    """Router pods of all services.

    A plan is in force at every reachable router when `put` returns. The others get it when they can be reached, or read it when
    they start.
    """

    def __init__(
        self,
        pods: Informer[Pod],
        deployments: Informer[Deployment],
        talk: RouterControlClient,
        token: Callable[[ServiceKey], str],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._pods = pods
        self._deployments = deployments
        self._talk = talk
        self._token = token
        self._wake: Callable[[], None] = lambda: None
        self._lines: dict[str, _RouterConnection] = {}
        self.plans: dict[ServiceKey, RoutePlan] = {}
        """The plan that was put last, by service."""
        self._tallies: dict[ServiceKey, GatewayLoadCounter] = {}
        self.refused: dict[ServiceKey, str] = {}
        """Services of which a router reported impossible counts, with the message.

        It is ignored until its counts are possible again.
        """
        self.by_gateway: Callable[[ServiceKey], bool] = lambda _key: False
        """Whether requests to a service go through a gateway; its replicas report the load then."""
        self.loads: Callable[[ServiceKey], Mapping[str, ReplicaLoad]] = lambda _key: {}
        """The loads that the replicas of a service report, by name."""
        self.changed: Callable[[ServiceKey], None] = lambda _key: None
        """Called when a service has a new plan, or none any more."""
        self.keys: Callable[[ServiceKey], tuple[KeyRule, ...]] = lambda _key: ()
        """The API keys of a service."""
        self.cluster_domain = "cluster.local"
        self.dropped: Callable[[str], None] = lambda _service: None
        """Called when a service is removed."""

    async def start(self, wake: Callable[[], None]) -> None:
        """Start listening. The mirrors must be complete."""
        self._wake = wake
        self._pods.listen(self._pod_changed)

    async def close(self) -> None:
        """Close all connections. Routers go on."""
        for line in self._lines.values():
            self._hang_up(line)
        self._lines.clear()
        self._talk.close()

    async def put(self, plan: RoutePlan) -> int:
        """Put a plan in force; return the port of the service."""
        key = ServiceKey(*plan.service.split("/", 1))
        plan = cluster_plan(plan, self.cluster_domain)
        self.plans[key] = plan
        lines = [line for line in self._lines.values() if line.service == key and line.up]
        await asyncio.gather(*(self._tell(line, plan) for line in lines))
        self.changed(key)
        return plan.port or naming.usual_port(tls=plan.access is not None and plan.access.tls is not None)

    async def follow_keys(self, key: ServiceKey) -> None:
        """Send the present API keys to every router of a service.

        Raises `UnavailableError` when one does not take them in time.
        """
        plan = self.plans.get(key)
        if plan is None or plan.access is None or not plan.access.keys_required:
            return
        self.changed(key)
        deadline, updated = self._clock.now() + HEARD_WITHIN, set[str]()
        while True:
            # Pods come and go meanwhile: what counts are those that exist at the end.
            pending = {place: line for place, line in self._lines.items() if line.service == key and place not in updated}
            results = await asyncio.gather(*(self._tell(line, plan) for line in pending.values()))
            updated |= {place for place, succeeded in zip(pending, results, strict=True) if succeeded}
            pending = {place: line for place, line in self._lines.items() if line.service == key and place not in updated}
            if not pending:
                return
            if self._clock.now() > deadline:
                break
            await asyncio.sleep(AGAIN / 2)
        addresses = ", ".join(line.peer.address for line in pending.values())
        message = f"{key}: the router at {addresses} did not receive the change of its API keys; sending is retried"
        raise UnavailableError(message, fix="check that its pod runs, then repeat the request")

    async def drop(self, service: str) -> None:
        """Forget a removed service; its router is deleted soon."""
        key = ServiceKey(*service.split("/", 1))
        self.plans.pop(key, None)
        self._tallies.pop(key, None)
        self.refused.pop(key, None)
        self.dropped(service)
        self.changed(key)

    async def look(self) -> dict[str, RouteLoad]:
        """Return the loads by service, without services whose routers are unreachable now."""
        lines = [line for line in self._lines.values() if line.up]
        answers = await asyncio.gather(*(self._look_at(line) for line in lines))
        by_service: dict[str, list[RouteLoad]] = {}
        for line, load in zip(lines, answers, strict=True):
            if load is not None:
                by_service.setdefault(str(line.service), []).append(load)
        return {service: self._talk.together(counted) for service, counted in by_service.items()} | self._by_gateway()

    def _by_gateway(self) -> dict[str, RouteLoad]:
        now, by_service = self._clock.now(), {}
        for key, plan in self.plans.items():
            if self.by_gateway(key):
                tally = self._tallies.setdefault(key, GatewayLoadCounter(f"gateway-{now}"))
                by_service[str(key)] = tally.add(plan, self.loads(key), now)
        return by_service

    async def troubles(self) -> dict[str, RouterFault]:
        """Return nothing: kubelets restart a router's container, and its Service sends requests to ready routers only."""
        return {}

    async def kept(self) -> list[str]:
        """Return the services that have Deployments."""
        return sorted(
            {
                f"{deployment.metadata.namespace}/{deployment.metadata.labels[annotation.SERVICE]}"
                for deployment in self._deployments
            }
        )

    def _pod_changed(self, key: str, before: Pod | None, now: Pod | None) -> None:
        pod = now or before or Pod()
        if pod.metadata.labels.get(annotation.PART) != naming.ROUTER:
            return
        runs = now is not None and now.status.phase == "Running" and bool(now.status.pod_ip)
        place = f"{key}/{pod.metadata.uid}"
        if not runs and place in self._lines:
            self._hang_up(self._lines.pop(place))
        if runs and place not in self._lines:
            service = ServiceKey(pod.metadata.namespace, pod.metadata.labels[annotation.SERVICE])
            line = self._lines[place] = _RouterConnection(service, naming.router_peer(pod))
            self._attend(line)

    def _attend(self, line: _RouterConnection) -> None:
        self._hang_up(line)
        line.attending = asyncio.get_running_loop().create_task(self._keep_up(line))

    def _hang_up(self, line: _RouterConnection) -> None:
        line.up = False
        if line.attending is not None:
            line.attending.cancel()

    async def _keep_up(self, line: _RouterConnection) -> None:
        """Keep a router supplied with its plan and follow its reports as long as its pod exists."""
        token = self._token(line.service)
        while True:
            try:
                plan = self.plans.get(line.service)
                if plan is not None:
                    await self._talk.put(line.peer, token, with_keys(plan, self.keys(line.service)))
                if plan is self.plans.get(line.service):
                    line.up = True
                    await self._talk.follow(line.peer, token, self._wake)
            except (OSError, ValueError) as error:
                # ValueError: the router sends a line without an end.
                log.debug("the router of %s at %s: %s; retrying", line.service, line.peer.address, error)
            line.up = False
            await asyncio.sleep(AGAIN)

    async def _tell(self, line: _RouterConnection, plan: RoutePlan) -> bool:
        """Send the plan to one router; return whether it was received."""
        try:
            await self._talk.put(line.peer, self._token(line.service), with_keys(plan, self.keys(line.service)))
        except OSError as error:
            log.warning("the router of %s at %s did not receive its plan: %s; retrying", line.service, line.peer.address, error)
            self._attend(line)
            return False
        return True

    async def _look_at(self, line: _RouterConnection) -> RouteLoad | None:
        try:
            load = loads.checked_route(await self._talk.look(line.peer, self._token(line.service)))
        except (OSError, ValueError, RecursionError) as error:
            bad = not isinstance(error, OSError)
            if bad and self.refused.get(line.service) != str(error):
                log.warning(
                    "the router of %s at %s reports an impossible value: %s; its report is ignored",
                    line.service,
                    line.peer.address,
                    error,
                )
            if bad:
                self.refused[line.service] = str(error)
            self._attend(line)
            return None
        self.refused.pop(line.service, None)
        return load
