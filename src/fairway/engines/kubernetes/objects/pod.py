"""Pods: the fields that a scheduler must honour, and those that an operator needs to judge their ends."""

from __future__ import annotations

from typing import Any

import msgspec

from fairway.engines.kubernetes.objects.meta import KubernetesObject, ObjectCondition, ObjectPart
from fairway.engines.kubernetes.objects.selector import LabelSelector, NodeSelector, NodeSelectorTerm, ResourceRequirements


class ContainerPort(ObjectPart, frozen=True):
    """A port of a container; on the node's address, too, when `host_port` is not 0."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"
    name: str = ""


class Container(ObjectPart, frozen=True):
    """The fields of a container that a scheduler needs."""

    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    """`Always` makes an init container a sidecar."""


class Toleration(ObjectPart, frozen=True):
    """A taint that the pod tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredSchedulingTerm(ObjectPart, frozen=True):
    """A preference, and its weight."""

    weight: int
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ObjectPart, frozen=True):
    """Nodes that a pod requires or prefers."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(ObjectPart, frozen=True):
    """A set of pods, and the topology domain in which they must (or must not) be."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class PodAffinity(ObjectPart, frozen=True):
    """Pods near which a pod must, or must not, be placed. Preferences only affect scores; they are not read."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())


class Affinity(ObjectPart, frozen=True):
    """Affinity to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ObjectPart, frozen=True):
    """How evenly pods must be spread over topology domains."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ClaimSource(ObjectPart, frozen=True):
    """A volume from a claim."""

    claim_name: str


class PodVolume(ObjectPart, frozen=True):
    """A volume of a pod; only volumes of claims restrict its placement."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None


class SchedulingGate(ObjectPart, frozen=True):
    """A scheduling gate: the pod is not scheduled until its owner removes it."""

    name: str


class PodSpec(ObjectPart, frozen=True):
    """The desired state of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    overhead: dict[str, str] = {}
    resources: ResourceRequirements | None = None
    resource_claims: tuple[dict[str, Any], ...] = ()
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    restart_policy: str = ""
    hostname: str = ""
    subdomain: str = ""


class ContainerTerminated(ObjectPart, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerRunning(ObjectPart, frozen=True):
    """Since when a container runs."""

    started_at: str | None = None


class ContainerWaiting(ObjectPart, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(ObjectPart, frozen=True):
    """One of three states."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(ObjectPart, frozen=True):
    """The actual state of a container."""

    name: str
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources: dict[str, str] = {}
    resources: ResourceRequirements | None = None


class PodStatus(ObjectPart, frozen=True):
    """The actual state of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[ObjectCondition, ...] = ()
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    host_ip: str = msgspec.field(name="hostIP", default="")
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(KubernetesObject, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def over(self) -> bool:
        """Whether the pod has ended and holds no more resources."""
        return self.status.phase in ("Succeeded", "Failed")
