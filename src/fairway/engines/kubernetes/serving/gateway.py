"""Requests that come by a gateway: a plan as an HTTPRoute of the Gateway API. Pure.

A gateway splits by weights, matches headers and copies requests. It lets none wait for a replica and keeps nobody on a revision,
so a service that needs that has our own router.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes.serving import naming
from fairway.spec.service import ServiceSpec
from fairway.state.route import WHOLE, RoutePlan
from fairway.state.service import ServiceKey

Manifest = dict[str, Any]

API = "gateway.networking.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway that an administrator chose, as it is now."""

    namespace: str
    name: str
    address: str
    """An IP address or a name of its own."""
    port: int


def needs_own(spec: ServiceSpec) -> str:
    """Why a gateway cannot route to such a service, in words; empty when it can."""
    if spec.replicas.min == 0:
        return "it may have no replica, and a gateway lets no request wait for one"
    if spec.traffic.sticky:
        return f"the header {spec.traffic.sticky} keeps its sender on one version, which a gateway does not do"
    if spec.rollout.guard.metric is not None:
        return f"its guard reads the metric {spec.rollout.guard.metric.name}, which a gateway does not count"
    return ""


def found(body: Manifest) -> Gateway | None:
    """The gateway, when it has an address and a listener for plain HTTP."""
    addresses = body.get("status", {}).get("addresses", ())
    listeners = [one for one in body.get("spec", {}).get("listeners", ()) if one.get("protocol") == "HTTP"]
    if not addresses or not listeners:
        return None
    metadata = body["metadata"]
    return Gateway(metadata["namespace"], metadata["name"], addresses[0]["value"], listeners[0]["port"])


def http_route(service: ServiceKey, plan: RoutePlan, front: str, gateway: Gateway, cluster_domain: str) -> Manifest:
    """The route of a service: header matches first, then the parts of the traffic."""
    weights = [(number, weight) for number, weight in plan.weights if weight]
    copies = _copies(service, plan)
    rules: list[Manifest] = [
        {
            "matches": [{"headers": [{"type": "Exact", "name": match.header, "value": match.value}]}],
            "backendRefs": [_backend(service, match.revision, 1)],
            **({"filters": copies} if copies else {}),
        }
        for match in plan.matches
        if any(backend.revision == match.revision for backend in plan.backends)
    ]
    usual: Manifest = {"backendRefs": [_backend(service, number, weight) for number, weight in weights]}
    rules.append({**usual, **({"filters": copies} if copies else {})})
    whole = naming.host(service, front, cluster_domain)
    hosts = [f"{front}.{service.namespace}", f"{front}.{service.namespace}.svc", whole]
    parent = {"name": gateway.name, "namespace": gateway.namespace}
    return {
        "apiVersion": API,
        "kind": "HTTPRoute",
        "metadata": {"name": service.name, "namespace": service.namespace, "labels": naming.labels(service)},
        "spec": {"parentRefs": [parent], "hostnames": hosts, "rules": rules},
    }


def front_service(service: ServiceKey, name: str, port: int, gateway: Gateway) -> list[Manifest]:
    """The Service that people ask, and where it leads: to the gateway."""
    head: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": service.namespace, "labels": naming.labels(service, naming.ROUTER)},
    }
    if not _is_ip(gateway.address):
        return [
            {**head, "spec": {"type": "ExternalName", "externalName": gateway.address, "ports": [{"name": "http", "port": port}]}}
        ]
    ports = [{"name": "http", "port": port, "targetPort": gateway.port}]
    labels = {**naming.labels(service), "kubernetes.io/service-name": name}
    slice_: Manifest = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": slice_name(name), "namespace": service.namespace, "labels": labels},
        "addressType": "IPv6" if ":" in gateway.address else "IPv4",
        "endpoints": [{"addresses": [gateway.address]}],
        "ports": [{"name": "http", "port": gateway.port}],
    }
    return [{**head, "spec": {"ports": ports}}, slice_]


def slice_name(front: str) -> str:
    """The EndpointSlice that leads from a Service to the gateway."""
    return f"{front}-gateway"


def _backend(service: ServiceKey, revision: int, weight: int) -> Manifest:
    return {"name": naming.revision_name(service, revision), "port": naming.USUAL_PORT, "weight": weight}


def _copies(service: ServiceKey, plan: RoutePlan) -> list[Manifest]:
    if plan.mirror is None or not plan.mirror.share:
        return []
    target = {"name": naming.revision_name(service, plan.mirror.revision), "port": naming.USUAL_PORT}
    part = {"numerator": plan.mirror.share, "denominator": WHOLE}
    return [{"type": "RequestMirror", "requestMirror": {"backendRef": target, "fraction": part}}]


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True
