"""Deployments, services, and the scale subresource."""

from __future__ import annotations

import msgspec

from fairway.engines.kubernetes.objects.meta import Condition, Part, Thing
from fairway.engines.kubernetes.objects.selecting import LabelSelector


class DeploymentSpec(Part, frozen=True):
    """The desired number of pods."""

    replicas: int | None = None
    selector: LabelSelector = LabelSelector()
    paused: bool = False


class DeploymentStatus(Part, frozen=True):
    """The actual number of pods."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(Thing, frozen=True):
    """A deployment."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ServicePort(Part, frozen=True):
    """A port of a service."""

    port: int
    name: str = ""
    node_port: int = 0
    protocol: str = "TCP"


class ServiceSpec(Part, frozen=True):
    """How pods are reached under one name."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()


class Service(Thing, frozen=True):
    """A service."""

    spec: ServiceSpec = ServiceSpec()


class ScaleSpec(Part, frozen=True):
    """The desired number of replicas."""

    replicas: int = 0


class ScaleStatus(Part, frozen=True):
    """The actual number of replicas."""

    replicas: int = 0
    selector: str = ""


class Scale(Thing, frozen=True):
    """The `/scale` of any resource that has one."""

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()
