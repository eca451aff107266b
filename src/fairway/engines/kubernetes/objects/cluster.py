"""Cluster-wide and auxiliary objects: namespaces, leases, events, priorities, small data."""

from __future__ import annotations

from fairway.engines.kubernetes.objects.meta import ObjectReference, Part, Thing


class LeaseSpec(Part, frozen=True):
    """The holder of a lease, since when it holds it, and how long the lease is valid without a renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Thing, frozen=True):
    """A lease."""

    spec: LeaseSpec = LeaseSpec()


class EventSeries(Part, frozen=True):
    """How often the same event occurred."""

    count: int = 1
    last_observed_time: str | None = None


class Event(Thing, frozen=True):
    """An event about an object, written for users (`events.k8s.io/v1`)."""

    regarding: ObjectReference = ObjectReference()
    type: str = "Normal"
    reason: str = ""
    action: str = ""
    note: str = ""
    event_time: str | None = None
    reporting_controller: str = ""
    series: EventSeries | None = None


class NamespaceStatus(Part, frozen=True):
    """Whether the namespace is active or being deleted."""

    phase: str = ""


class Namespace(Thing, frozen=True):
    """A namespace."""

    status: NamespaceStatus = NamespaceStatus()


class PriorityClass(Thing, frozen=True):
    """A priority by name."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class ConfigMap(Thing, frozen=True):
    """Small texts by name."""

    data: dict[str, str] = {}


class Secret(Thing, frozen=True):
    """Small secrets by name; the values are base64."""

    type: str = "Opaque"
    data: dict[str, str] = {}
