"""What the parts of a service are called on a cluster. Pure."""

from __future__ import annotations

import hashlib

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.objects import Pod
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey

BY_SERVICE = "service"
"""The index of pods by `NAMESPACE/SERVICE`."""
REPLICA = "replica"
ROUTER = "router"
SAMPLES = "samples"
"""The container beside a replica that brings its samples to the operator."""
REPLICA_PORT = 20000
"""Where a replica listens; every pod has a network of its own."""
ROUTER_PORT = 8080
CONTROL_PORT = 8081
USUAL_PORT = 80
"""Where a service is asked when its document names no port."""


def by_service(pod: Pod) -> tuple[str, ...]:
    """Under which service a pod is found; none when it is of no service."""
    service = pod.metadata.labels.get(marks.SERVICE)
    return (f"{pod.metadata.namespace}/{service}",) if service is not None else ()


def is_replica_run(run: JobKey) -> bool:
    """Whether a run is a replica of a service."""
    return run.namespace.endswith(OWN_NAMESPACE)


def namespace_of(run: JobKey) -> str:
    """The cluster's namespace in which a replica's pod lies."""
    return run.namespace.removesuffix(OWN_NAMESPACE)


def service_of(run: JobKey) -> str:
    """The service of a replica, as `BY_SERVICE` knows it: `default.services/mnist-r3-7` gives `default/mnist`."""
    return f"{namespace_of(run)}/{run.name.rpartition('-r')[0]}"


def revision_name(service: ServiceKey, revision: int) -> str:
    """The Deployment and the Service of a revision: `mnist-r3`."""
    return f"{service.name}-r{revision}"


def router_name(service: ServiceKey) -> str:
    """The Deployment of the router, and the ConfigMap with its plan."""
    return f"{service.name}-router"


def secret_name(service: ServiceKey, owner: str, token: str) -> str:
    """The Secret with the keys of a service's pods: another one for every owner (by uid), with which it goes, and other keys."""
    return f"{service.name}-{hashlib.sha256(f'{owner} {token}'.encode()).hexdigest()[:8]}"


def labels(service: ServiceKey, part: str = "") -> dict[str, str]:
    """By these everything of a service, or of one of its parts, is found."""
    found = {marks.MANAGED_BY: marks.MANAGER, marks.SERVICE: service.name}
    return {**found, marks.PART: part} if part else found


def replica_labels(service: ServiceKey, revision: int) -> dict[str, str]:
    """By these the pods of a revision are found."""
    return {**labels(service, REPLICA), marks.REVISION: str(revision)}


def host(service: ServiceKey, name: str, cluster_domain: str) -> str:
    """The name by which a Service is asked from anywhere in the cluster."""
    return f"{name}.{service.namespace}.svc.{cluster_domain}"


def url(service: ServiceKey, name: str, port: int, cluster_domain: str) -> str:
    """Where a service is asked; empty until it listens."""
    if not port:
        return ""
    return f"http://{host(service, name, cluster_domain)}" + (f":{port}" if port != USUAL_PORT else "")
