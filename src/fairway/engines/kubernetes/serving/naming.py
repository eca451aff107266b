"""Names, labels, ports and addresses of a service's Kubernetes objects. Pure."""

from __future__ import annotations

import hashlib

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.identity.pod_authenticator import pod_name
from fairway.engines.kubernetes.objects import Pod
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey

BY_SERVICE = "service"
"""The index of pods by `NAMESPACE/SERVICE`."""
REPLICA = "replica"
ROUTER = "router"
SAMPLES = "samples"
"""The sidecar that uploads a replica's request samples to the operator."""
REPLICA_PORT = 20000
"""The port of a replica; every pod has a network of its own."""
ROUTER_PORT = 8080
CONTROL_PORT = 8081
LOAD_PORT = 20010
"""The port at which the load sidecar reports how busy the replica is, over TLS."""
CONTROL_TLS, LOAD_TLS = "control-tls", "load-tls"
"""Names of pod ports that use TLS. Kubernetes does not allow the ports of a pod to change."""
LOAD = "load"
"""The sidecar that reports the replica's load."""
USUAL_PORT = 80
"""The port of a service whose document names none."""
GRPC_PORT = 8001
"""The second port of a model revision's Service: the same replicas over HTTP/2."""
H2C = "kubernetes.io/h2c"
"""The `appProtocol` of a port with HTTP/2 without TLS."""
USUAL_TLS_PORT = 443
"""The same for a service whose router uses TLS."""


def by_service(pod: Pod) -> tuple[str, ...]:
    """Return the index keys of a pod: its service, if it has one."""
    service = pod.metadata.labels.get(annotation.SERVICE)
    return (f"{pod.metadata.namespace}/{service}",) if service is not None else ()


def router_peer(pod: Pod) -> PodPeer:
    """Return the control endpoint of a router. The pod's spec decides whether it uses TLS, not what the pod answers."""
    port = _port(pod, CONTROL_TLS)
    return PodPeer(f"{pod.status.pod_ip}:{port or CONTROL_PORT}", pod_name(pod.metadata.uid) if port else "")


def load_peer(pod: Pod) -> PodPeer:
    """Return the endpoint with a replica's load. The pod's spec decides whether it uses TLS."""
    port = _port(pod, LOAD_TLS)
    return PodPeer(f"{pod.status.pod_ip}:{port or REPLICA_PORT}", pod_name(pod.metadata.uid) if port else "")


def _port(pod: Pod, name: str) -> int:
    """Return the number of the named port; 0 when the pod has none."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return next((port.container_port for container in containers for port in container.ports if port.name == name), 0)


def is_replica_run(run: JobKey) -> bool:
    """Return whether a run is a replica of a service."""
    return run.namespace.endswith(OWN_NAMESPACE)


def namespace_of(run: JobKey) -> str:
    """Return the cluster namespace of a replica's pod."""
    return run.namespace.removesuffix(OWN_NAMESPACE)


def service_of(run: JobKey) -> str:
    """Return the service of a replica, as a key of `BY_SERVICE`: `default.services/mnist-r3-7` gives `default/mnist`."""
    return f"{namespace_of(run)}/{run.name.rpartition('-r')[0]}"


def revision_name(service: ServiceKey, revision: int) -> str:
    """Return the name of a revision's Deployment and Service: `mnist-r3`."""
    return f"{service.name}-r{revision}"


def router_name(service: ServiceKey) -> str:
    """Return the name of the router's Deployment, and of the ConfigMap with its plan."""
    return f"{service.name}-router"


def secret_name(service: ServiceKey, owner: str, token: str) -> str:
    """Return the name of the Secret with the tokens of a service's pods. It differs by owner (by uid) and by token."""
    return f"{service.name}-{hashlib.sha256(f'{owner} {token}'.encode()).hexdigest()[:8]}"


def labels(service: ServiceKey, part: str = "") -> dict[str, str]:
    """Return the labels that select all objects of a service, or of one part of it."""
    common = {annotation.MANAGED_BY: annotation.MANAGER, annotation.SERVICE: service.name}
    return {**common, annotation.PART: part} if part else common


def replica_labels(service: ServiceKey, revision: int) -> dict[str, str]:
    """Return the labels that select the pods of a revision."""
    return {**labels(service, REPLICA), annotation.REVISION: str(revision)}


def host(service: ServiceKey, name: str, cluster_domain: str) -> str:
    """Return the host name of a Service within the cluster."""
    return f"{name}.{service.namespace}.svc.{cluster_domain}"


def usual_port(*, tls: bool) -> int:
    """Return the port of a service whose document names none."""
    return USUAL_TLS_PORT if tls else USUAL_PORT


def url(service: ServiceKey, name: str, port: int, cluster_domain: str, *, tls: bool = False) -> str:
    """Return the URL of a service; empty until it listens."""
    if not port:
        return ""
    scheme = "https" if tls else "http"
    return f"{scheme}://{host(service, name, cluster_domain)}" + (f":{port}" if port != usual_port(tls=tls) else "")
