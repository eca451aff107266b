"""Computes what a pod takes from its node, by the API server's own rule. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairway.engines.kubernetes import quantity
from fairway.engines.kubernetes.objects import Container, Pod

CPU, MEMORY, PODS = "cpu", "memory", "pods"
_POD_LEVEL = (CPU, MEMORY)
_IGNORED = frozenset({"ephemeral-storage"})
"""Counted by kubelets, not by Fairway: requests for it are rare, and nodes report it in many ways."""

Amounts = dict[str, int]
"""By resource: `cpu` in thousandths of a core, others in units (memory in bytes)."""


@dataclass(frozen=True, slots=True)
class PodResources:
    """What a pod takes from its node."""

    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    """Bytes."""
    other: dict[str, int] = field(default_factory=dict)


def need_of(pod: Pod) -> PodResources:
    """Return the peak need of the pod: all its containers at once, or an init container beside the sidecars started so far."""
    total = _sum(_requests(container) for container in pod.spec.containers)
    sidecars: Amounts = {}
    beginning: Amounts = {}
    for container in pod.spec.init_containers:
        requests = _requests(container)
        if container.restart_policy == "Always":
            sidecars = _plus(sidecars, requests)
            beginning = _most(beginning, sidecars)
        else:
            beginning = _most(beginning, _plus(requests, sidecars))
    total = _most(_plus(total, sidecars), beginning)
    if pod.spec.resources is not None:
        pod_level = _parsed(pod.spec.resources.requests or pod.spec.resources.limits)
        total |= {name: amount for name, amount in pod_level.items() if name in _POD_LEVEL or name.startswith("hugepages-")}
    total = _plus(total, _parsed(pod.spec.overhead))
    if pod.spec.node_name:
        total = _most(total, _resized(pod))
    others = {name: amount for name, amount in total.items() if name not in (CPU, MEMORY) and name not in _IGNORED and amount}
    return PodResources(total.get(CPU, 0), total.get(MEMORY, 0), others)


def host_ports(pod: Pod) -> tuple[str, ...]:
    """Return the node's ports that the pod takes, as countable resources: `host-port/TCP/80`."""
    if pod.spec.host_network:
        ports = [
            (port.protocol, port.host_port or port.container_port)
            for container in pod.spec.containers
            for port in container.ports
        ]
    else:
        ports = [
            (port.protocol, port.host_port) for container in pod.spec.containers for port in container.ports if port.host_port
        ]
    return tuple(sorted({f"host-port/{protocol}/{number}" for protocol, number in ports if number}))


def _requests(container: Container) -> Amounts:
    """Return the container's requests. A limit without a request counts as the request."""
    needs = container.resources
    return {**_parsed(needs.limits), **_parsed(needs.requests)}


def _resized(pod: Pod) -> Amounts:
    """Return what the containers of a running pod were granted: it may exceed the spec after an in-place resize."""
    granted = [
        _most(_parsed(status.allocated_resources), _parsed(status.resources.requests) if status.resources else {})
        for status in pod.status.container_statuses
    ]
    return _sum(granted)


def _parsed(written: Mapping[str, str]) -> Amounts:
    return {name: quantity.milli(text) if name == CPU else quantity.whole(text) for name, text in written.items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        total = _plus(total, part)
    return total


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
