"""Translates a route plan into an HTTPRoute of the Gateway API. Pure.

A gateway splits by weights, matches headers and, if it can, mirrors requests. It does not queue requests for a replica and has no
sticky sessions, so that a service that needs those gets Fairway's router.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes.serving import endpoint_exposure, naming
from fairway.spec.service import RolloutStrategy, ServiceSpec
from fairway.state.service import ServiceKey
from fairway.state.serving.route import WHOLE, RoutePlan

Manifest = dict[str, Any]

_CALL = {"type": "Exact", "name": "content-type", "value": "application/grpc"}
API = "gateway.networking.k8s.io/v1"
COPIES = ("HTTPRouteRequestMirror", "HTTPRouteRequestPercentageMirror")
"""The features of a gateway that can mirror a fraction of the requests."""


@dataclass(frozen=True, slots=True)
class ClusterGateway:
    """The gateway that the administrator chose, in its present state."""

    namespace: str
    name: str
    address: str
    """Its IP address or host name."""
    port: int
    listener: str = ""
    """The listener that takes the routes; empty: any."""
    features: frozenset[str] | None = None
    """The optional features that its class lists; None: it lists none."""
    secured: tuple[str, ...] = ()
    """Its TLS listeners that accept host names of the service's document."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def needs_own(spec: ServiceSpec) -> str:
    """Return why no gateway can route to such a service; empty when one can."""
    if spec.replicas.min == 0:
        return "it may have no replica, and a gateway lets no request wait for one"
    exposed = endpoint_exposure.needs_own(spec)
    if exposed:
        return exposed
    if spec.traffic.sticky:
        return f"the header {spec.traffic.sticky} keeps its sender on one version, which a gateway does not do"
    if spec.rollout.guard.metric is not None:
        return f"its guard reads the metric {spec.rollout.guard.metric.name}, which a gateway does not count"
    if spec.rollout.guard.outputs is not None:
        return "its guard compares outputs, which a gateway does not do"
    return ""


def lacks(spec: ServiceSpec, plan: RoutePlan, gateway: ClusterGateway) -> str:
    """Return what this gateway lacks for the service; empty when nothing. A class that lists no features is tried."""
    copies = spec.rollout.strategy is RolloutStrategy.SHADOW or plan.mirror is not None
    missing = [name for name in COPIES if gateway.features is not None and name not in gateway.features]
    if copies and missing:
        return f"requests are mirrored, and the class of gateway {gateway} does not list {' and '.join(missing)}"
    return ""


def hosts(service: ServiceKey, front: str, cluster_domain: str) -> list[str]:
    """Return the host names of the service for the gateway.

    The bare name is not among them: services of two namespaces may share it.
    """
    return [
        f"{front}.{service.namespace}",
        f"{front}.{service.namespace}.svc",
        naming.host(service, front, cluster_domain),
    ]


def http_route(
    service: ServiceKey, plan: RoutePlan, front: str, gateway: ClusterGateway, cluster_domain: str, newest: int = 0
) -> Manifest | None:
    """Return the route of a service: header matches first, then the weights; None while no replica is ready.

    `newest` is the revision that gets all requests as long as no replica is ready, where no route exists yet.
    """
    ready = {backend.revision for backend in plan.backends}
    weights = [(number, weight) for number, weight in plan.weights if weight and number in ready]
    if not weights and newest:
        weights = [(newest, WHOLE)]
    if not weights:
        return None
    copies = _copies(service, plan)
    rules: list[Manifest] = [
        {
            "matches": [{"headers": [{"type": "Exact", "name": match.header, "value": match.value}]}],
            "backendRefs": [_backend(service, match.revision, 1)],
            **({"filters": copies} if copies else {}),
        }
        for match in plan.matches
        if match.revision in ready
    ]
    usual: Manifest = {"backendRefs": [_backend(service, number, weight) for number, weight in weights]}
    rules.append({**usual, **({"filters": copies} if copies else {})})
    if plan.observed.model:
        rules = [*map(_for_calls, rules), *rules]
    return _route(service, hosts(service, front, cluster_domain), gateway, rules)


def _for_calls(rule: Manifest) -> Manifest:
    """Return the rule for gRPC calls: to the port of the same replicas to which the gateway speaks HTTP/2."""
    grpc_rule = dict(rule)
    grpc_rule["matches"] = [{**entry, "headers": [*entry.get("headers", []), _CALL]} for entry in rule.get("matches") or [{}]]
    grpc_rule["backendRefs"] = [{**entry, "port": naming.GRPC_PORT} for entry in rule["backendRefs"]]
    if "filters" in rule:
        grpc_rule["filters"] = [
            {**entry, "requestMirror": {**entry["requestMirror"], "backendRef": _with_grpc_port(entry)}}
            for entry in rule["filters"]
        ]
    return grpc_rule


def _with_grpc_port(copy: Manifest) -> Manifest:
    return {**copy["requestMirror"]["backendRef"], "port": naming.GRPC_PORT}


def tls_route(route: Manifest, hosts: tuple[str, ...], gateway: ClusterGateway) -> Manifest:
    """Return the route for the host names of the document, attached to TLS listeners only: never plain HTTP."""
    parents = [{"name": gateway.name, "namespace": gateway.namespace, "sectionName": name} for name in gateway.secured]
    metadata = {**route["metadata"], "name": tls_route_name(route["metadata"]["name"])}
    return {**route, "metadata": metadata, "spec": {**route["spec"], "parentRefs": parents, "hostnames": list(hosts)}}


def tls_route_name(service: str) -> str:
    """Return the name of the TLS route. It has a dot, so that no service can have it."""
    return f"{service}.tls"


def route_to_router(service: ServiceKey, front: str, port: int, gateway: ClusterGateway, cluster_domain: str) -> Manifest:
    """Return a route to Fairway's router, for clients that still use the gateway or come from outside the cluster."""
    rules = [{"backendRefs": [{"name": front, "port": port, "weight": 1}]}]
    return _route(service, hosts(service, front, cluster_domain), gateway, rules)


def front_service(service: ServiceKey, name: str, port: int) -> Manifest:
    """Return the Service for clients while the gateway leads. It has no selector; `front_slice` points it to the gateway."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": service.namespace, "labels": naming.labels(service, naming.ROUTER)},
        "spec": {"ports": [{"name": "http", "port": port, "targetPort": port}]},
    }


def slice_name(front: str) -> str:
    """Return the name of the EndpointSlice that points the Service to the gateway."""
    return f"{front}-gateway"


def front_slice(service: ServiceKey, front: str, gateway: ClusterGateway) -> Manifest:
    """Return the EndpointSlice that points the Service to the gateway."""
    labels = {**naming.labels(service), "kubernetes.io/service-name": front}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": slice_name(front), "namespace": service.namespace, "labels": labels},
        "addressType": "IPv6" if ":" in gateway.address else "IPv4",
        "endpoints": [{"addresses": [gateway.address], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": gateway.port}],
    }


def is_ip(address: str) -> bool:
    """Return whether the text is an IP address instead of a host name."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _route(service: ServiceKey, names: list[str], gateway: ClusterGateway, rules: list[Manifest]) -> Manifest:
    section = {"sectionName": gateway.listener} if gateway.listener else {}
    parent = {"name": gateway.name, "namespace": gateway.namespace, **section}
    return {
        "apiVersion": API,
        "kind": "HTTPRoute",
        "metadata": {"name": service.name, "namespace": service.namespace, "labels": naming.labels(service)},
        "spec": {"parentRefs": [parent], "hostnames": names, "rules": rules},
    }


def _backend(service: ServiceKey, revision: int, weight: int) -> Manifest:
    return {"name": naming.revision_name(service, revision), "port": naming.USUAL_PORT, "weight": weight}


def _copies(service: ServiceKey, plan: RoutePlan) -> list[Manifest]:
    if plan.mirror is None or not plan.mirror.share:
        return []
    target = {"name": naming.revision_name(service, plan.mirror.revision), "port": naming.USUAL_PORT}
    part = {"numerator": plan.mirror.share, "denominator": WHOLE}
    return [{"type": "RequestMirror", "requestMirror": {"backendRef": target, "fraction": part}}]
