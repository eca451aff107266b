"""Cluster-wide and auxiliary objects: namespaces, leases, events, priorities, small data."""

from __future__ import annotations

from fairway.engines.kubernetes.objects.meta import KubernetesObject, ObjectPart, ObjectReference


class LeaseSpec(ObjectPart, frozen=True):
    """The holder of a lease, since when it holds it, and how long the lease is valid without a renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class KubernetesLease(KubernetesObject, frozen=True):
    """A lease."""

    spec: LeaseSpec = LeaseSpec()


class EventSeries(ObjectPart, frozen=True):
    """How often the same event occurred."""

    count: int = 1
    last_observed_time: str | None = None


class KubernetesEvent(KubernetesObject, frozen=True):
    """An event about an object, written for users (`events.k8s.io/v1`)."""

    regarding: ObjectReference = ObjectReference()
    type: str = "Normal"
    reason: str = ""
    action: str = ""
    note: str = ""
    event_time: str | None = None
    reporting_controller: str = ""
    series: EventSeries | None = None


class NamespaceStatus(ObjectPart, frozen=True):
    """Whether the namespace is active or being deleted."""

    phase: str = ""


class Namespace(KubernetesObject, frozen=True):
    """A namespace."""

    status: NamespaceStatus = NamespaceStatus()


class PriorityClass(KubernetesObject, frozen=True):
    """A priority by name."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class ConfigMap(KubernetesObject, frozen=True):
    """Small texts by name."""

    data: dict[str, str] = {}


class KubernetesSecret(KubernetesObject, frozen=True):
    """Small secrets by name; the values are base64."""

    type: str = "Opaque"
    data: dict[str, str] = {}
