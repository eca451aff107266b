"""The administrator's settings for the cluster: images, volumes, what documents may request. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class FrameworkRuntime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The runtime of documents of one framework that name no image."""

    image: str
    python: str = "python3"
    """The interpreter in the image that starts the task's processes; 3.9 or newer."""
    env: dict[str, str] = {}
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()


class DocumentPermissions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What documents may request beyond the means of their own namespace. By default nothing."""

    host_paths: tuple[str, ...] = ()
    """Folders of nodes, each with everything below it."""
    host_network: bool = False
    service_accounts: tuple[str, ...] = ("default",)
    capabilities: tuple[str, ...] = ()
    """For example IPC_LOCK, for RDMA."""
    volumes: tuple[str, ...] = ()
    """Types of volumes beyond those of the namespace itself, such as nfs, csi, ephemeral."""
    priority_classes: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()


class ContainerConfinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Security settings for the containers of runs. By default as strict as images that run as root allow."""

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
"""Default resources of our own processes."""


class InstallationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of an installation; a ConfigMap holds them as JSON."""

    image: str
    """Fairway's own image: operator, scheduler, agent, and the init container that brings code into pods."""
    namespace: str = "fairway-system"
    cluster_domain: str = "cluster.local"
    scheduler: str = "fairway"
    """The scheduler of pods; empty: the cluster's own, or that of the queueing system in `queueing`."""
    queueing: str = ""
    """The queueing system to use where the cluster places pods: kueue, volcano, kai; empty: none."""
    runtimes: dict[str, FrameworkRuntime] = {}
    """Runtimes by framework; `default` serves all others."""
    run_volume: dict[str, Any] = msgspec.field(default_factory=lambda: {"emptyDir": {}})
    """A volume source that all pods of a run share (checkpoints, outputs), such as a claim that many nodes may write to."""
    record: dict[str, Any] = {}
    """A volume source for the operator's record (history, models); empty: a claim of `record_size` of the default class."""
    record_size: str = "10Gi"
    replicas: int = 2
    """Number of schedulers, of which one acts. There is one operator only: its record has one writer."""
    resources: dict[str, dict[str, dict[str, str]]] = msgspec.field(default_factory=lambda: dict(PROCESS_RESOURCES))
    """Resources of our own processes, by process."""
    monitoring: bool = False
    """Whether a PodMonitor makes Prometheus scrape our processes."""
    agent: bool = True
    """Whether an agent on every node reports its GPUs."""
    cache_volume: dict[str, Any] = {}
    """A volume source for environments that are built from requirements; without one each pod builds its own."""
    gpu_resource: str = "nvidia.com/gpu"
    """The device plug-in's resource name for whole GPUs."""
    gpus: Literal["plugin", "fairway"] = "plugin"
    """What allocates the GPUs of new nodes: the cluster's device plug-in, or our scheduler where no plug-in runs."""
    gpu_runtime_class: str = ""
    """The RuntimeClass that brings NVIDIA's driver into containers; empty: nodes do so by default."""
    gpu_nodes: dict[str, str] = {}
    """Labels of the nodes that have GPUs: our agent runs on these only. Empty: on all nodes."""
    gateway: str = ""
    """`NAMESPACE/NAME` of the Gateway through which services are reached; empty: through our own router."""
    confinement: ContainerConfinement = ContainerConfinement()
    """Security settings for the containers of runs: seccomp, privilege escalation, capabilities that they keep."""
    allowed: DocumentPermissions = DocumentPermissions()

    @property
    def shares_runs(self) -> bool:
        """Whether the pods of a run share a volume. Where they do not, pods upload to the operator what must outlive them."""
        return bool(self.run_volume) and "emptyDir" not in self.run_volume

    def runtime_for(self, framework: str) -> FrameworkRuntime | None:
        """Return the runtime for documents of this framework; None when there is none."""
        return self.runtimes.get(framework) or self.runtimes.get("default")
