"""How pods of a run reach each other: the node's network or their own, the interface, memory that RDMA may lock. Pure."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.operator import policy, ports
from fairway.engines.kubernetes.operator.installation import Allowed
from fairway.spec.job import JobSpec
from fairway.state.job import Job

Manifest = dict[str, Any]

LOCKS_MEMORY = "IPC_LOCK"
INTERFACES = (
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "PRTE_MCA_prte_if_include",
)
"""Who reads which interface to use: collectives on GPUs and without, and both families of Open MPI."""


def of_pod(spec: JobSpec) -> Manifest:
    """What the pod's spec says. On the node's network names must still be asked of the cluster."""
    return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if spec.kubernetes.network.host else {}


def of_container(spec: JobSpec, taken: tuple[int, ...]) -> Manifest:
    """What the task's container says: ports of the node that it takes, and that it may lock memory."""
    wish = spec.kubernetes.network
    found: Manifest = {}
    if wish.host:
        found["ports"] = [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in taken]
    if wish.rdma:
        found["securityContext"] = {"capabilities": {"add": [LOCKS_MEMORY]}}
    return found


def variables(spec: JobSpec) -> dict[str, str]:
    """Variables of every container; those of the document win over them."""
    interface = spec.kubernetes.network.interface
    return dict.fromkeys(INTERFACES, interface) if interface else {}


def refusals(job: Job, allowed: Allowed) -> list[str]:
    """Everything that is not allowed or cannot be, each with its place and the fix; none when all is well."""
    wish = job.spec.kubernetes.network
    container = {"name": "task", **of_container(job.spec, ())}
    found = policy.refusals({**of_pod(job.spec), "containers": [container]}, allowed)
    if wish.host and not ports.fit(job):
        words = f"the run needs {ports.needed(job)} ports of a node, and there are {ports.LAST - ports.FIRST}"
        found.append(f"kubernetes.network.host: {words}; make it smaller, or leave host out")
    return found
