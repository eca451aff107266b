"""The gateway that an administrator chose: looked for, told the routes of services, and asked whether it follows them.

Nobody is led to it before it said so, and nobody is led away before our router can take over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.objects import Service as ServiceObject
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.engines.kubernetes.serving import gateway as routes
from fairway.engines.kubernetes.serving import gateway_found, naming
from fairway.engines.kubernetes.serving.exposure import no_gateway
from fairway.engines.kubernetes.serving.gateway import Gateway, Manifest
from fairway.engines.kubernetes.serving.manifests import owned
from fairway.state.route import RoutePlan
from fairway.state.service import Service, ServiceKey

GATEWAYS: Resource[Manifest] = Resource(dict, "gateway.networking.k8s.io", "v1", "gateways", "Gateway")
CLASSES: Resource[Manifest] = Resource(
    dict, "gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", namespaced=False
)
HTTP_ROUTES: Resource[Manifest] = Resource(dict, "gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
NAMESPACES: Resource[Manifest] = Resource(dict, "", "v1", "namespaces", "Namespace", namespaced=False)
SLICES: Resource[Manifest] = Resource(dict, "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
ENDPOINTS: Resource[Manifest] = Resource(dict, "", "v1", "endpoints", "Endpoints")
MANAGER = "fairway-serving"
LOOK_EVERY = 10.0
"""Seconds between two looks whether the gateway is there."""
ASK_EVERY = 30.0
"""Seconds between two looks whether a gateway still follows a route."""
SOON = 1.0
"""Seconds until a route is looked at again that the gateway has not judged."""
SETTLE = 3.0
"""Seconds after a change in which a refusal does not count."""
PATIENCE = 15.0
"""Seconds in which a gateway should judge a route: after that our router serves meanwhile."""


@dataclass(frozen=True, slots=True)
class Way:
    """By whom a service is asked."""

    gateway: Gateway | None = None
    """The one that can take routes of the service, whoever leads."""
    leads: bool = False
    """Whether requests come by the gateway; else by our router."""
    own: bool = False
    """Whether the service needs our router, whatever the gateway says."""
    waits: bool = False
    """Whether the gateway may lead soon, so that our router need not be started for it."""
    unheard: bool = False
    """Whether the gateway leads and has not taken up yet where requests go now."""
    word: str = ""
    """Why so."""
    again: float | None = None
    """Seconds until it should be looked at again."""


class Gateways:
    """Looks for the gateway, and writes what leads to services by it."""

    def __init__(self, client: Client, installation: Installation, now: Callable[[], float]) -> None:
        self._client = client
        self._installation = installation
        self._now = now
        self._found: tuple[Manifest, frozenset[str] | None] | None = None
        self._looked = float("-inf")
        self._routes: dict[ServiceKey, Manifest] = {}
        self._slices: dict[ServiceKey, Manifest] = {}
        """What was written last, by service."""
        self._hosts: dict[ServiceKey, tuple[tuple[str, ...], Gateway]] = {}
        """Names of hosts that documents name, and the gateway that takes them."""
        self._tls_routes: dict[ServiceKey, Manifest | None] = {}
        """The route by TLS that was written last; None: there is none."""
        self._left: set[ServiceKey] = set()
        """Services that have no route any more."""
        self._wrote: dict[ServiceKey, float] = {}
        """When the route was."""
        self._asked: dict[ServiceKey, float] = {}
        """When a gateway was first asked to lead, by service."""
        self.ways: dict[ServiceKey, Way] = {}
        """By whom each service is asked, as it was seen last."""
        self.changed: Callable[[ServiceKey], None] = lambda _key: None
        """Called when a service is asked by another, or for another reason."""

    def leads(self, key: ServiceKey) -> bool:
        """Whether the service is asked by the gateway."""
        return self.ways.get(key, Way()).leads

    def forget(self, key: ServiceKey) -> None:
        """The service is gone; its route goes with whoever owns it."""
        for kept in (self._routes, self._slices, self._wrote, self._asked, self.ways, self._hosts, self._tls_routes):
            kept.pop(key, None)
        self._left.discard(key)

    async def way(self, service: Service, plan: RoutePlan, front: ServiceObject, owner: Manifest) -> Way:
        """By whom the service is asked from now on; the Services of revisions that have a replica are there."""
        before, found = self.ways.get(service.key), await self._way(service, plan, front, owner)
        self.ways[service.key] = found
        if found != before:
            self.changed(service.key)
        return found

    async def _way(self, service: Service, plan: RoutePlan, front: ServiceObject, owner: Manifest) -> Way:
        if not self._installation.gateway:
            return Way()
        refusal = no_gateway(service.spec)
        if refusal:
            return Way(word=refusal, again=LOOK_EVERY)
        key, name = service.key, front.metadata.name
        hosts = tuple(host for host in service.spec.endpoint.hosts if host != "*")
        gateway = await self._usable(key, name, hosts)
        if isinstance(gateway, str):
            return Way(word=gateway, again=LOOK_EVERY)
        self._hosts[key] = (hosts, gateway)
        own = routes.needs_own(service.spec) or routes.lacks(service.spec, plan, gateway)
        led = not front.spec.selector
        if own:
            self._asked.pop(key, None)
            unheard = False
            if led or self._splits(key, name):
                # Until our router has taken over, requests go where they should, if not copied.
                said = await self._judged(service, replace(plan, mirror=None), name, gateway, owner)
                unheard = said is None and self._is_new(key)
            return Way(
                gateway, own=True, unheard=unheard, word=own + _unsecured(gateway, hosts), again=SOON if unheard else LOOK_EVERY
            )
        said = await self._judged(service, plan, name, gateway, owner)
        if said == "":
            return Way(gateway, leads=True, word=f"by gateway {gateway}{_unsecured(gateway, hosts)}", again=ASK_EVERY)
        if said is None:
            since = self._asked.setdefault(key, self._now())
            word = f"gateway {gateway} has not said yet whether it follows the route"
            waits = self._now() < since + PATIENCE
            return Way(gateway, led, waits=waits, unheard=led and self._is_new(key), word=word, again=SOON)
        return Way(gateway, word=f"gateway {gateway} does not follow the route: {said}", again=LOOK_EVERY)

    def _splits(self, key: ServiceKey, front: str) -> bool:
        """Whether the route that was written leads to revisions, not to our router."""
        return key in self._routes and not gateway_found.leads_to(self._routes[key], front)

    def _is_new(self, key: ServiceKey) -> bool:
        """Whether the route was written so lately that the gateway may not have looked at it."""
        return self._now() < self._wrote.get(key, float("-inf")) + PATIENCE

    async def _usable(self, key: ServiceKey, front: str, hosts: tuple[str, ...]) -> Gateway | str:
        """The gateway, for this service; or why there is none, in words."""
        name = self._installation.gateway
        if self._now() >= self._looked + LOOK_EVERY:
            self._found = await self._look(*name.split("/", 1))
            self._looked = self._now()
        if self._found is None:
            return f"there is no gateway {name}"
        namespace: Manifest = {"metadata": {"name": key.namespace}}
        if gateway_found.asks_for_labels(self._found[0]):
            namespace = await self._client.get(NAMESPACES, key.namespace)
        host = naming.host(key, front, self._installation.cluster_domain)
        found = gateway_found.gateway(*self._found, namespace, host)
        if isinstance(found, str) or not hosts:
            return found
        return replace(found, secured=gateway_found.secured(self._found[0], namespace, hosts))

    async def _look(self, namespace: str, name: str) -> tuple[Manifest, frozenset[str] | None] | None:
        try:
            body = await self._client.get(GATEWAYS, name, namespace)
        except errors.NotFound:
            # Neither the gateway nor, perhaps, the whole API is there.
            return None
        try:
            of_class = await self._client.get(CLASSES, body["spec"]["gatewayClassName"])
        except errors.NotFound:
            of_class = None
        return body, gateway_found.features(of_class)

    async def _judged(self, service: Service, plan: RoutePlan, front: str, gateway: Gateway, owner: Manifest) -> str | None:
        """What the gateway says of the route, written before if it is another. While nobody is ready it goes on as before."""
        key, domain = service.key, self._installation.cluster_domain
        route = routes.http_route(key, plan, front, gateway, domain)
        try:
            answer = await self._route(key, owned(route, owner) if route is not None else None)
        except errors.NotFound:
            route = routes.http_route(key, plan, front, gateway, domain, newest=service.revisions[-1].number)
            assert route is not None
            self._routes.pop(key, None)
            answer = await self._route(key, owned(route, owner))
        if route is None and gateway_found.leads_to(answer, front):
            return None
        if route is not None and not gateway_found.kept_whole(route, answer):
            return "a part of the requests is copied, and the Gateway API of this cluster is too old for parts"
        said = gateway_found.verdict(answer, gateway)
        # It may hear of a route before it hears of the Services that the route names.
        early = self._now() < self._wrote.get(key, float("-inf")) + SETTLE
        return None if said and early else said

    async def _route(self, key: ServiceKey, body: Manifest | None) -> Manifest:
        """The route as it is, written before if it is to be another."""
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
        """Write the route by TLS beside the other, where the document names hosts and the gateway has a certificate for them."""
        hosts, gateway = self._hosts.get(key, ((), None))
        wanted = routes.tls_route(route, hosts, gateway) if gateway is not None and hosts and gateway.secured else None
        if wanted == self._tls_routes.get(key):
            return
        if wanted is not None:
            await self._client.apply(HTTP_ROUTES, wanted, manager=MANAGER)
        else:
            await self._remove_route_named(key, routes.tls_route_name(key.name))
        self._tls_routes[key] = wanted

    async def lead(self, key: ServiceKey, front: str, gateway: Gateway, owner: Manifest) -> None:
        """Have the front's Service lead to the gateway, beside whatever it leads to now."""
        body = owned(routes.front_slice(key, front, gateway), owner)
        if self._slices.get(key) != body:
            await self._client.apply(SLICES, body, manager=MANAGER)
            self._slices[key] = body

    async def alone(self, key: ServiceKey, front: str) -> None:
        """Have it lead nowhere else: what a Service with a selector led to stays when the selector goes."""
        _, others = await self._leading(key, front)
        if others:
            # First what would be copied into slices again.
            await self._client.delete(ENDPOINTS, front, key.namespace)
        for one in others:
            await self._client.delete(SLICES, one["metadata"]["name"], key.namespace, uid=one["metadata"]["uid"])

    async def leave(self, key: ServiceKey, front: ServiceObject, way: Way, owner: Manifest) -> float | None:
        """The front's Service selects our router: lead nowhere else once that is ready. Seconds until it may be, else None."""
        name = front.metadata.name
        mine, others = await self._leading(key, name)
        if mine is not None:
            if not any(end.get("conditions", {}).get("ready") for one in others for end in one.get("endpoints") or ()):
                return SOON
            await self._client.delete(SLICES, mine["metadata"]["name"], key.namespace, uid=mine["metadata"]["uid"])
            self._slices.pop(key, None)
            # The gateway must not be led to the front while the front still leads to the gateway.
            return SOON
        if way.gateway is not None and way.own:
            port, domain = front.spec.ports[0].port, self._installation.cluster_domain
            await self._route(key, owned(routes.route_to_router(key, name, port, way.gateway, domain), owner))
        elif way.gateway is None and key not in self._left:
            await self._remove_route(key)
        return None

    async def _remove_route(self, key: ServiceKey) -> None:
        """No gateway takes the route: it goes, also when another operator had written it."""
        self._routes.pop(key, None)
        await self._remove_route_named(key, key.name)
        if self._tls_routes.pop(key, None) is not None:
            await self._remove_route_named(key, routes.tls_route_name(key.name))
        # Only now: a deletion that failed is tried again.
        self._left.add(key)

    async def _remove_route_named(self, key: ServiceKey, name: str) -> None:
        try:
            found = (await self._client.get(HTTP_ROUTES, name, key.namespace))["metadata"]
        except errors.NotFound:
            return
        if found.get("labels", {}).get(marks.SERVICE) == key.name:
            await self._client.delete(HTTP_ROUTES, name, key.namespace, uid=found["uid"])

    async def _leading(self, key: ServiceKey, front: str) -> tuple[Manifest | None, list[Manifest]]:
        """Our slice of the front's Service, and those of others."""
        listed = await self._client.list(SLICES, key.namespace, labels=f"kubernetes.io/service-name={front}")
        mine = [one for one in listed.items if one["metadata"]["name"] == routes.slice_name(front)]
        return (mine[0] if mine else None), [one for one in listed.items if one not in mine]


def _unsecured(gateway: Gateway, hosts: tuple[str, ...]) -> str:
    """What to say where a gateway has no certificate for the names of the document."""
    if not hosts or gateway.secured:
        return ""
    return f"; no listener of it with a certificate (HTTPS, certificateRefs) takes {', '.join(hosts)}, so they are not routed"
