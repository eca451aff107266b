"""A gateway that carries traffic: Traefik as a process in the network of a real node."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cluster import network, programs
from cluster.control_plane import ControlPlane
from cluster.modules import definitions
from cluster.nodes import RealCluster
from cluster.process import wait_for

API = "/apis/gateway.networking.k8s.io/v1"
CLASS = "traefik"
PORT = 8080
"""Its ports; fixed, because a node has a network of its own."""
_CONTROLLER = "traefik.io/gateway-controller"
_KINDS = ("GatewayClass", "Gateway", "HTTPRoute", "GRPCRoute", "ReferenceGrant", "BackendTLSPolicy")
"""The Gateway API kinds that Traefik needs: if one is missing, it follows no route."""


@contextmanager
def running(cluster: RealCluster, namespace: str = "infra", name: str = "front") -> Iterator[None]:
    """Run a gateway that takes plain HTTP for services of all namespaces, on the last of the nodes.

    Raises:
        ProgramsMissingError: the program is not built.
        StartError: it did not start.
    """
    program, plane, node = programs.find("traefik"), cluster.plane, cluster.nodes[-1]
    address = cluster.network.plan.node(node.index)
    install(plane)
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, f"/api/v1/namespaces/{namespace}")
    head = {"apiVersion": "gateway.networking.k8s.io/v1"}
    of_class = {"metadata": {"name": CLASS}, "spec": {"controllerName": _CONTROLLER}}
    plane.apply({**head, "kind": "GatewayClass", **of_class}, f"{API}/gatewayclasses/{CLASS}")
    listener = {"name": "http", "protocol": "HTTP", "port": PORT, "allowedRoutes": {"namespaces": {"from": "All"}}}
    spec = {"gatewayClassName": CLASS, "listeners": [listener]}
    body = {**head, "kind": "Gateway", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    path = f"{API}/namespaces/{namespace}/gateways/{name}"
    plane.apply(body, path)
    plane.processes.start(
        "traefik",
        [
            *network.inside(node.pid, program),
            f"--entrypoints.http.address={address}:{PORT}",
            "--providers.kubernetesgateway=true",
            f"--providers.kubernetesgateway.statusaddress.ip={address}",
            "--providers.providersthrottleduration=100ms",
            "--global.checknewversion=false",
            "--global.sendanonymoususage=false",
        ],
        {"KUBECONFIG": str(plane.kubeconfig())},
    )
    try:
        addressed = lambda: plane.get(path)[1].get("status", {}).get("addresses")  # noqa: E731
        plane.processes.wait_for("traefik", "the gateway's address", addressed)
        yield
    finally:
        plane.processes.end("traefik")


def install(plane: ControlPlane) -> None:
    """Install the Gateway API from its standard channel."""
    for body in definitions("sigs.k8s.io/gateway-api", "config/crd/standard"):
        if body["spec"]["names"]["kind"] in _KINDS:
            plane.apply(body, f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{body['metadata']['name']}")
    for kind in ("gateways", "gatewayclasses", "httproutes"):
        wait_for("the Gateway API", lambda kind=kind: plane.get(f"{API}/{kind}")[0] == 200)


def free_port(address: str) -> int:
    """Return a free port of this address."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
