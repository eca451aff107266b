"""What the parts of a service are called on a cluster. Pure."""

from __future__ import annotations

import hashlib

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.proof import pod_name
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.runtime.secured.peer import Peer
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
LOAD_PORT = 20010
"""Where a container beside a replica says how busy the replica is, over TLS."""
CONTROL_TLS, LOAD_TLS = "control-tls", "load-tls"
"""Names of the ports of pods that speak TLS there. Kubernetes refuses changes to the ports of a pod."""
LOAD = "load"
"""The container beside a replica that says how busy it is."""
USUAL_PORT = 80
GRPC_PORT = 8001
"""Of the Service of a model's revision: the same replicas, asked over HTTP/2."""
H2C = "kubernetes.io/h2c"
"""The `appProtocol` of a port that speaks HTTP/2 without TLS."""
"""Where a service is asked when its document names no port."""
USUAL_TLS_PORT = 443
"""The same for one whose router speaks TLS."""


def by_service(pod: Pod) -> tuple[str, ...]:
    """Under which service a pod is found; none when it is of no service."""
    service = pod.metadata.labels.get(marks.SERVICE)
    return (f"{pod.metadata.namespace}/{service}",) if service is not None else ()


def router_peer(pod: Pod) -> Peer:
    """The control port of a router. The pod's spec decides whether it is TLS, not what the pod answers."""
    port = _port(pod, CONTROL_TLS)
    return Peer(f"{pod.status.pod_ip}:{port or CONTROL_PORT}", pod_name(pod.metadata.uid) if port else "")


def load_peer(pod: Pod) -> Peer:
    """The port with the load of a replica. The pod's spec decides whether it is TLS."""
    port = _port(pod, LOAD_TLS)
    return Peer(f"{pod.status.pod_ip}:{port or REPLICA_PORT}", pod_name(pod.metadata.uid) if port else "")


def _port(pod: Pod, name: str) -> int:
    """The port of that name; 0 when the pod has none."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return next((port.container_port for one in containers for port in one.ports if port.name == name), 0)


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


def usual_port(*, tls: bool) -> int:
    """Where a service is asked when its document names no port."""
    return USUAL_TLS_PORT if tls else USUAL_PORT


def url(service: ServiceKey, name: str, port: int, cluster_domain: str, *, tls: bool = False) -> str:
    """Where a service is asked; empty until it listens."""
    if not port:
        return ""
    scheme = "https" if tls else "http"
    return f"{scheme}://{host(service, name, cluster_domain)}" + (f":{port}" if port != usual_port(tls=tls) else "")
