"""What an administrator has decided for the cluster: images, volumes, what documents may ask for. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Runtime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What documents of one framework run in when they name no image."""

    image: str
    python: str = "python3"
    """The interpreter inside that starts the task's processes; 3.9 or newer."""
    env: dict[str, str] = {}
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What documents may ask for beyond their own namespace's means. By default nothing."""

    host_paths: tuple[str, ...] = ()
    """Folders of nodes, with everything below them."""
    host_network: bool = False
    service_accounts: tuple[str, ...] = ("default",)
    capabilities: tuple[str, ...] = ()
    """Such as IPC_LOCK, for RDMA."""
    volumes: tuple[str, ...] = ()
    """Types of volumes beyond those of the namespace itself, such as nfs, csi, ephemeral."""
    priority_classes: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()


class Confinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How containers of runs are confined. By default as tightly as images that run as root allow."""

    seccomp: bool = True
    """Whether containers have the container runtime's own filter of system calls (RuntimeDefault)."""
    privilege_escalation: bool = False
    """Whether a process may get more rights than its parent has, as with sudo."""
    capabilities: tuple[str, ...] = ()
    """Capabilities that containers keep, such as SETUID; all others are dropped. ALL: the runtime's own default stays."""


PROCESS_RESOURCES: dict[str, dict[str, dict[str, str]]] = {
    "operator": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    "scheduler": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
}
"""What our own processes ask for where nobody says otherwise."""


class Installation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of it; a ConfigMap holds it as JSON."""

    image: str
    """Fairway's own image: operator, scheduler, agent, and the step that brings code into pods."""
    namespace: str = "fairway-system"
    cluster_domain: str = "cluster.local"
    scheduler: str = "fairway"
    """Who places pods; empty: the cluster's own scheduler, or the neighbour that `queueing` names."""
    queueing: str = ""
    """Whose queues are used where the cluster places: kueue, volcano, kai; empty: nobody's."""
    runtimes: dict[str, Runtime] = {}
    """By framework; `default` for all others."""
    run_volume: dict[str, Any] = msgspec.field(default_factory=lambda: {"emptyDir": {}})
    """A volume source that all pods of a run share (checkpoints, outputs), such as a claim that many nodes may write to."""
    record: dict[str, Any] = {}
    """A volume source for what the operator keeps (history, models); empty: a claim of `record_size` of the default class."""
    record_size: str = "10Gi"
    replicas: int = 2
    """Schedulers, of which one acts. The operator is one: its record has one writer."""
    resources: dict[str, dict[str, dict[str, str]]] = msgspec.field(default_factory=lambda: dict(PROCESS_RESOURCES))
    """What our own processes ask for, by process."""
    monitoring: bool = False
    """Whether a PodMonitor tells Prometheus of our processes."""
    agent: bool = True
    """Whether an agent on every node tells of its GPUs."""
    cache_volume: dict[str, Any] = {}
    """A volume source for environments that are made from requirements; without one each pod makes its own."""
    gpu_resource: str = "nvidia.com/gpu"
    """What the device plug-in calls whole GPUs."""
    gpus: Literal["plugin", "fairway"] = "plugin"
    """Who hands out the GPUs of nodes that are new: the cluster's device plug-in, or our scheduler where none runs."""
    gpu_runtime_class: str = ""
    """The RuntimeClass that brings NVIDIA's driver into containers; empty: nodes do so by default."""
    gpu_nodes: dict[str, str] = {}
    """Labels of the nodes that have GPUs: only there our agent runs. Empty: on all nodes."""
    gateway: str = ""
    """`NAMESPACE/NAME` of the Gateway by which services are asked, where there is one; empty: by our own router."""
    confinement: Confinement = Confinement()
    """How containers of runs are confined: seccomp, privilege escalation, capabilities that they keep."""
    allowed: Allowed = Allowed()

    @property
    def shares_runs(self) -> bool:
        """Whether the pods of a run share a volume; where they do not, what must outlive a pod is brought to the operator."""
        return bool(self.run_volume) and "emptyDir" not in self.run_volume

    def runtime_for(self, framework: str) -> Runtime | None:
        """What documents of this framework run in; None when nobody said."""
        return self.runtimes.get(framework) or self.runtimes.get("default")
