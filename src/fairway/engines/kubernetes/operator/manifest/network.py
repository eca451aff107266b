"""How pods of a run reach each other: the node's network or their own, the interface, memory that RDMA may lock. Pure."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.operator.installation import DocumentPermissions
from fairway.engines.kubernetes.operator.pod import policy
from fairway.engines.kubernetes.operator.pod import port as pod_port
from fairway.spec.job import JobSpec
from fairway.state.job import JobState

Manifest = dict[str, Any]

LOCKS_MEMORY = "IPC_LOCK"
INTERFACES = (
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "PRTE_MCA_prte_if_include",
)
"""Variables with the network interface to use: of collectives with and without GPUs, and of both families of Open MPI."""


def of_pod(spec: JobSpec) -> Manifest:
    """Return the network fields of the pod's spec.

    A pod on the node's network must still resolve names through the cluster's DNS.
    """
    return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if spec.kubernetes.network.host else {}


def of_container(spec: JobSpec, taken: tuple[int, ...]) -> Manifest:
    """Return the network fields of the task's container: its ports of the node, and the right to lock memory."""
    settings = spec.kubernetes.network
    fields: Manifest = {}
    if settings.host:
        fields["ports"] = [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in taken]
    if settings.rdma:
        fields["securityContext"] = {"capabilities": {"add": [LOCKS_MEMORY]}}
    return fields


def variables(spec: JobSpec) -> dict[str, str]:
    """Return variables for every container; those of the document take precedence."""
    interface = spec.kubernetes.network.interface
    return dict.fromkeys(INTERFACES, interface) if interface else {}


def refusals(job: JobState, allowed: DocumentPermissions) -> list[str]:
    """Return everything that is not allowed or impossible, each with its place and the fix; empty when all is well."""
    settings = job.spec.kubernetes.network
    container = {"name": "task", **of_container(job.spec, ())}
    result = policy.refusals({**of_pod(job.spec), "containers": [container]}, allowed)
    if settings.host and not pod_port.fit(job):
        words = f"the run needs {pod_port.needed(job)} ports of a node, and there are {pod_port.LAST - pod_port.FIRST}"
        result.append(f"kubernetes.network.host: {words}; make it smaller, or leave host out")
    return result
