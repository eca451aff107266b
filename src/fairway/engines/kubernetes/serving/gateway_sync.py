"""The administrator's gateway: finds it, writes the routes of services, and checks whether it follows them.

Requests are switched to the gateway only when it has accepted the route, and away from it only when the router can take over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.objects import KubernetesService as ServiceObject
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.serving import gateway_route as routes
from fairway.engines.kubernetes.serving import gateway_status, naming
from fairway.engines.kubernetes.serving.endpoint_exposure import no_gateway
from fairway.engines.kubernetes.serving.gateway_route import ClusterGateway, Manifest
from fairway.engines.kubernetes.serving.manifest import owned
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.route import RoutePlan

GATEWAYS: ApiResource[Manifest] = ApiResource(dict, "gateway.networking.k8s.io", "v1", "gateways", "Gateway")
CLASSES: ApiResource[Manifest] = ApiResource(
    dict, "gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", namespaced=False
)
HTTP_ROUTES: ApiResource[Manifest] = ApiResource(dict, "gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
NAMESPACES: ApiResource[Manifest] = ApiResource(dict, "", "v1", "namespaces", "Namespace", namespaced=False)
SLICES: ApiResource[Manifest] = ApiResource(dict, "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
ENDPOINTS: ApiResource[Manifest] = ApiResource(dict, "", "v1", "endpoints", "Endpoints")
MANAGER = "fairway-serving"
LOOK_EVERY = 10.0
"""Seconds between two checks whether the gateway exists."""
ASK_EVERY = 30.0
"""Seconds between two checks whether the gateway still follows a route."""
SOON = 1.0
"""Seconds until a route that the gateway has not judged is checked again."""
SETTLE = 3.0
"""Seconds after a change in which a rejection is ignored."""
PATIENCE = 15.0
"""Seconds that a gateway gets to judge a route; after that the router serves meanwhile."""


@dataclass(frozen=True, slots=True)
class RequestPath:
    """The path that requests to a service take."""

    gateway: ClusterGateway | None = None
    """The gateway that can take the service's routes, whether or not requests go through it."""
    leads: bool = False
    """Whether requests go through the gateway; otherwise through Fairway's router."""
    own: bool = False
    """Whether the service needs Fairway's router whatever the gateway supports."""
    waits: bool = False
    """Whether the gateway may take over soon, so that the router need not be started for that time."""
    unheard: bool = False
    """Whether requests go through the gateway and it has not taken up the newest route yet."""
    word: str = ""
    """The reason, for users."""
    again: float | None = None
    """Seconds until the next check."""


class GatewaySync:
    """Finds the gateway, and writes the objects that route services through it."""

    def __init__(self, client: ApiClient, installation: InstallationSettings, now: Callable[[], float]) -> None:
        self._client = client
        self._installation = installation
        self._now = now
        self._found: tuple[Manifest, frozenset[str] | None] | None = None
        self._looked = float("-inf")
        self._routes: dict[ServiceKey, Manifest] = {}
        self._slices: dict[ServiceKey, Manifest] = {}
        """The object that was written last, by service."""
        self._hosts: dict[ServiceKey, tuple[tuple[str, ...], ClusterGateway]] = {}
        """The host names of documents, and the gateway that takes them."""
        self._tls_routes: dict[ServiceKey, Manifest | None] = {}
        """The TLS route that was written last; None: there is none."""
        self._left: set[ServiceKey] = set()
        """Services that have no route any more."""
        self._wrote: dict[ServiceKey, float] = {}
        """When the route was written."""
        self._asked: dict[ServiceKey, float] = {}
        """When the gateway was first asked to route, by service."""
        self.ways: dict[ServiceKey, RequestPath] = {}
        """The path of each service, as of the last check."""
        self.changed: Callable[[ServiceKey], None] = lambda _key: None
        """Called when a service's path or its reason changes."""

    def leads(self, key: ServiceKey) -> bool:
        """Return whether requests to the service go through the gateway."""
        return self.ways.get(key, RequestPath()).leads

    def forget(self, key: ServiceKey) -> None:
        """Forget a removed service; its route is removed with its owner."""
        for table in (self._routes, self._slices, self._wrote, self._asked, self.ways, self._hosts, self._tls_routes):
            table.pop(key, None)
        self._left.discard(key)

    async def way(self, service: ServiceState, plan: RoutePlan, front: ServiceObject, owner: Manifest) -> RequestPath:
        """Return the service's path from now on. The Services of revisions that have a replica must exist."""
        before, new_way = self.ways.get(service.key), await self._way(service, plan, front, owner)
        self.ways[service.key] = new_way
        if new_way != before:
            self.changed(service.key)
        return new_way

    async def _way(self, service: ServiceState, plan: RoutePlan, front: ServiceObject, owner: Manifest) -> RequestPath:
        if not self._installation.gateway:
            return RequestPath()
        refusal = no_gateway(service.spec)
        if refusal:
            return RequestPath(word=refusal, again=LOOK_EVERY)
        key, name = service.key, front.metadata.name
        hosts = tuple(host for host in service.spec.endpoint.hosts if host != "*")
        gateway = await self._usable(key, name, hosts)
        if isinstance(gateway, str):
            return RequestPath(word=gateway, again=LOOK_EVERY)
        self._hosts[key] = (hosts, gateway)
        needs_router = routes.needs_own(service.spec) or routes.lacks(service.spec, plan, gateway)
        led = not front.spec.selector
        if needs_router:
            self._asked.pop(key, None)
            unheard = False
            if led or self._splits(key, name):
                # Until the router has taken over, requests keep their route, if without copies.
                verdict = await self._judged(service, replace(plan, mirror=None), name, gateway, owner)
                unheard = verdict is None and self._is_new(key)
            return RequestPath(
                gateway,
                own=True,
                unheard=unheard,
                word=needs_router + _unsecured(gateway, hosts),
                again=SOON if unheard else LOOK_EVERY,
            )
        verdict = await self._judged(service, plan, name, gateway, owner)
        if verdict == "":
            return RequestPath(gateway, leads=True, word=f"by gateway {gateway}{_unsecured(gateway, hosts)}", again=ASK_EVERY)
        if verdict is None:
            since = self._asked.setdefault(key, self._now())
            word = f"gateway {gateway} has not reported yet whether it follows the route"
            waits = self._now() < since + PATIENCE
            return RequestPath(gateway, led, waits=waits, unheard=led and self._is_new(key), word=word, again=SOON)
        return RequestPath(gateway, word=f"gateway {gateway} does not follow the route: {verdict}", again=LOOK_EVERY)

    def _splits(self, key: ServiceKey, front: str) -> bool:
        """Return whether the route written last points to revisions instead of the router."""
        return key in self._routes and not gateway_status.leads_to(self._routes[key], front)

    def _is_new(self, key: ServiceKey) -> bool:
        """Return whether the route was written so recently that the gateway may not have seen it."""
        return self._now() < self._wrote.get(key, float("-inf")) + PATIENCE

    async def _usable(self, key: ServiceKey, front: str, hosts: tuple[str, ...]) -> ClusterGateway | str:
        """Return the gateway for this service; or a message why there is none."""
        name = self._installation.gateway
        if self._now() >= self._looked + LOOK_EVERY:
            self._found = await self._look(*name.split("/", 1))
            self._looked = self._now()
        if self._found is None:
            return f"there is no gateway {name}"
        namespace: Manifest = {"metadata": {"name": key.namespace}}
        if gateway_status.asks_for_labels(self._found[0]):
            namespace = await self._client.get(NAMESPACES, key.namespace)
        host = naming.host(key, front, self._installation.cluster_domain)
        gateway = gateway_status.gateway(*self._found, namespace, host)
        if isinstance(gateway, str) or not hosts:
            return gateway
        return replace(gateway, secured=gateway_status.secured(self._found[0], namespace, hosts))

    async def _look(self, namespace: str, name: str) -> tuple[Manifest, frozenset[str] | None] | None:
        try:
            body = await self._client.get(GATEWAYS, name, namespace)
        except errors.NotFound:
            # Neither the gateway nor, perhaps, the Gateway API is installed.
            return None
        try:
            of_class = await self._client.get(CLASSES, body["spec"]["gatewayClassName"])
        except errors.NotFound:
            of_class = None
        return body, gateway_status.features(of_class)

    async def _judged(
        self, service: ServiceState, plan: RoutePlan, front: str, gateway: ClusterGateway, owner: Manifest
    ) -> str | None:
        """Write the route if it has changed, and return the gateway's verdict.

        With no replica ready, the route stays as it was.
        """
        key, domain = service.key, self._installation.cluster_domain
        route = routes.http_route(key, plan, front, gateway, domain)
        try:
            answer = await self._route(key, owned(route, owner) if route is not None else None)
        except errors.NotFound:
            route = routes.http_route(key, plan, front, gateway, domain, newest=service.revisions[-1].number)
            assert route is not None
            self._routes.pop(key, None)
            answer = await self._route(key, owned(route, owner))
        if route is None and gateway_status.leads_to(answer, front):
            return None
        if route is not None and not gateway_status.kept_whole(route, answer):
            return "a fraction of the requests is mirrored, and the Gateway API of this cluster is too old for fractions"
        verdict = gateway_status.verdict(answer, gateway)
        # It may see a route before it sees the Services that the route names.
        early = self._now() < self._wrote.get(key, float("-inf")) + SETTLE
        return None if verdict and early else verdict

    async def _route(self, key: ServiceKey, body: Manifest | None) -> Manifest:
        """Write the route if it has changed, and return its observed state."""
        if body is None or self._routes.get(key) == body:
            if body is not None:
                await self._secure(key, body)
            return await self._client.get(HTTP_ROUTES, key.name, key.namespace)
        answer = await self._client.apply(HTTP_ROUTES, body, manager=MANAGER)
        self._routes[key], self._wrote[key] = body, self._now()
        self._left.discard(key)
        await self._secure(key, body)
        return answer

    async def _secure(self, key: ServiceKey, route: Manifest) -> None:
        """Write the TLS route beside the other, where the document names hosts and the gateway has a certificate for them."""
        hosts, gateway = self._hosts.get(key, ((), None))
        tls_route = routes.tls_route(route, hosts, gateway) if gateway is not None and hosts and gateway.secured else None
        if tls_route == self._tls_routes.get(key):
            return
        if tls_route is not None:
            await self._client.apply(HTTP_ROUTES, tls_route, manager=MANAGER)
        else:
            await self._remove_route_named(key, routes.tls_route_name(key.name))
        self._tls_routes[key] = tls_route

    async def lead(self, key: ServiceKey, front: str, gateway: ClusterGateway, owner: Manifest) -> None:
        """Point the front's Service to the gateway, in addition to its present endpoints."""
        body = owned(routes.front_slice(key, front, gateway), owner)
        if self._slices.get(key) != body:
            await self._client.apply(SLICES, body, manager=MANAGER)
            self._slices[key] = body

    async def alone(self, key: ServiceKey, front: str) -> None:
        """Remove the Service's other endpoints: those of a former selector stay when the selector is removed."""
        _, others = await self._leading(key, front)
        if others:
            # Delete the Endpoints first: its contents would be copied into slices again.
            await self._client.delete(ENDPOINTS, front, key.namespace)
        for endpoint_slice in others:
            await self._client.delete(
                SLICES, endpoint_slice["metadata"]["name"], key.namespace, uid=endpoint_slice["metadata"]["uid"]
            )

    async def leave(self, key: ServiceKey, front: ServiceObject, way: RequestPath, owner: Manifest) -> float | None:
        """Remove the front's endpoint at the gateway once the selected router is ready.

        Return the wait until the next look, or None.
        """
        name = front.metadata.name
        own_slice, others = await self._leading(key, name)
        if own_slice is not None:
            if not any(
                end.get("conditions", {}).get("ready")
                for endpoint_slice in others
                for end in endpoint_slice.get("endpoints") or ()
            ):
                return SOON
            await self._client.delete(SLICES, own_slice["metadata"]["name"], key.namespace, uid=own_slice["metadata"]["uid"])
            self._slices.pop(key, None)
            # The gateway must not point to the front while the front still points to the gateway.
            return SOON
        if way.gateway is not None and way.own:
            port, domain = front.spec.ports[0].port, self._installation.cluster_domain
            await self._route(key, owned(routes.route_to_router(key, name, port, way.gateway, domain), owner))
        elif way.gateway is None and key not in self._left:
            await self._remove_route(key)
        return None

    async def _remove_route(self, key: ServiceKey) -> None:
        """Delete the route, also when a former operator has written it: no gateway takes it."""
        self._routes.pop(key, None)
        await self._remove_route_named(key, key.name)
        if self._tls_routes.pop(key, None) is not None:
            await self._remove_route_named(key, routes.tls_route_name(key.name))
        # Only now: a deletion that failed is retried.
        self._left.add(key)

    async def _remove_route_named(self, key: ServiceKey, name: str) -> None:
        try:
            metadata = (await self._client.get(HTTP_ROUTES, name, key.namespace))["metadata"]
        except errors.NotFound:
            return
        if metadata.get("labels", {}).get(annotation.SERVICE) == key.name:
            await self._client.delete(HTTP_ROUTES, name, key.namespace, uid=metadata["uid"])

    async def _leading(self, key: ServiceKey, front: str) -> tuple[Manifest | None, list[Manifest]]:
        """Return Fairway's slice of the front's Service, and the other slices."""
        slices = await self._client.list(SLICES, key.namespace, labels=f"kubernetes.io/service-name={front}")
        own_slices = [
            endpoint_slice for endpoint_slice in slices.items if endpoint_slice["metadata"]["name"] == routes.slice_name(front)
        ]
        return (own_slices[0] if own_slices else None), [
            endpoint_slice for endpoint_slice in slices.items if endpoint_slice not in own_slices
        ]


def _unsecured(gateway: ClusterGateway, hosts: tuple[str, ...]) -> str:
    """Return a note when the gateway has no certificate for the host names of the document."""
    if not hosts or gateway.secured:
        return ""
    return (
        f"; the gateway has no listener with a certificate (HTTPS, certificateRefs) for {', '.join(hosts)}, "
        "so these hosts are not routed"
    )
