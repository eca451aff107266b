"""Deployments, services, and the scale subresource."""

from __future__ import annotations

import msgspec

from fairway.engines.kubernetes.objects.meta import KubernetesObject, ObjectCondition, ObjectPart
from fairway.engines.kubernetes.objects.selector import LabelSelector


class DeploymentSpec(ObjectPart, frozen=True):
    """The desired number of pods."""

    replicas: int | None = None
    selector: LabelSelector = LabelSelector()
    paused: bool = False


class DeploymentStatus(ObjectPart, frozen=True):
    """The actual number of pods."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[ObjectCondition, ...] = ()


class Deployment(KubernetesObject, frozen=True):
    """A deployment."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class KubernetesServicePort(ObjectPart, frozen=True):
    """A port of a service."""

    port: int
    name: str = ""
    node_port: int = 0
    protocol: str = "TCP"


class KubernetesServiceSpec(ObjectPart, frozen=True):
    """How pods are reached under one name."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    selector: dict[str, str] = {}
    ports: tuple[KubernetesServicePort, ...] = ()


class KubernetesService(KubernetesObject, frozen=True):
    """A service."""

    spec: KubernetesServiceSpec = KubernetesServiceSpec()


class ReplicaScaleSpec(ObjectPart, frozen=True):
    """The desired number of replicas."""

    replicas: int = 0


class ReplicaScaleStatus(ObjectPart, frozen=True):
    """The actual number of replicas."""

    replicas: int = 0
    selector: str = ""


class ReplicaScale(KubernetesObject, frozen=True):
    """The `/scale` of any resource that has one."""

    spec: ReplicaScaleSpec = ReplicaScaleSpec()
    status: ReplicaScaleStatus = ReplicaScaleStatus()
