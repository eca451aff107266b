"""The gateway that an administrator chose: looked for, and told the routes of services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.objects import Service as ServiceObject
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.engines.kubernetes.serving import gateway as routes
from fairway.engines.kubernetes.serving.gateway import Gateway, Manifest
from fairway.engines.kubernetes.serving.manifests import owned
from fairway.spec.service import ServiceSpec
from fairway.state.route import RoutePlan
from fairway.state.service import ServiceKey

GATEWAYS: Resource[dict[str, Any]] = Resource(dict, "gateway.networking.k8s.io", "v1", "gateways", "Gateway")
HTTP_ROUTES: Resource[dict[str, Any]] = Resource(dict, "gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
SLICES: Resource[dict[str, Any]] = Resource(dict, "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
MANAGER = "fairway-serving"
LOOK_EVERY = 10.0
"""Seconds between two looks whether the gateway is there."""


class Gateways:
    """Looks for the gateway, and writes what leads to services by it."""

    def __init__(self, client: Client, installation: Installation, now: Callable[[], float]) -> None:
        self._client = client
        self._installation = installation
        self._now = now
        self._found: Gateway | None = None
        self._looked = float("-inf")
        self._written: dict[ServiceKey, list[Manifest]] = {}
        self._left: set[ServiceKey] = set()
        """Services of which nothing leads to the gateway any more."""

    async def of(self, spec: ServiceSpec) -> Gateway | None:
        """The gateway by which such a service is asked; None: by our own router."""
        if not self._installation.gateway or routes.needs_own(spec):
            return None
        if self._now() >= self._looked + LOOK_EVERY:
            namespace, _, name = self._installation.gateway.partition("/")
            try:
                self._found = routes.found(await self._client.get(GATEWAYS, name, namespace))
            except errors.NotFound:
                # Neither the gateway nor, perhaps, the whole API is there.
                self._found = None
            self._looked = self._now()
        return self._found

    def leads(self, key: ServiceKey) -> bool:
        """Whether the service has a route by the gateway."""
        return key in self._written

    async def lead(self, key: ServiceKey, plan: RoutePlan, front: ServiceObject, gateway: Gateway, owner: Manifest) -> None:
        """Have the gateway send requests as the plan says. While nobody is ready it goes on as before."""
        name = front.metadata.name
        port = front.spec.ports[0].port
        rest = routes.front_service(key, name, port, gateway)[1:]
        route = [routes.http_route(key, plan, name, gateway, self._installation.cluster_domain)] if plan.weights else []
        bodies = [owned(body, owner) for body in (*rest, *route)]
        if not bodies or self._written.get(key) == bodies:
            return
        self._left.discard(key)
        for body in bodies:
            await self._client.apply(HTTP_ROUTES if body["kind"] == "HTTPRoute" else SLICES, body, manager=MANAGER)
        self._written[key] = bodies

    async def leave(self, key: ServiceKey, front: ServiceObject, gateway: Gateway | None) -> None:
        """The service is asked by our router again: nothing leads to the gateway, also when another operator had written it."""
        if gateway is not None or not self._installation.gateway or key in self._left:
            return
        await self._remove(HTTP_ROUTES, key.name, key)
        await self._remove(SLICES, routes.slice_name(front.metadata.name), key)
        self.forget(key)
        self._left.add(key)

    async def _remove(self, resource: Resource[dict[str, Any]], name: str, key: ServiceKey) -> None:
        try:
            found = (await self._client.get(resource, name, key.namespace))["metadata"]
        except errors.NotFound:
            return
        if found.get("labels", {}).get(marks.SERVICE) == key.name:
            await self._client.delete(resource, name, key.namespace, uid=found["uid"])

    def forget(self, key: ServiceKey) -> None:
        """The service is gone; its route goes with whoever owns it."""
        self._written.pop(key, None)
        self._left.discard(key)
