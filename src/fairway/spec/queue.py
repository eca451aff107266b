"""The queue document: its members, its quota, and the limits of its runs. One type per field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fairway.spec.spec_model import Amount, Bytes, Duration, GpuType, Member, Name, SpecModel, TimeSlice

EVERYBODY = "*"

Priority = Annotated[int, Field(ge=-1000, le=1000)]


class ResourceQuota(SpecModel):
    """Total amounts of resources; a resource that is not named is not bounded."""

    cpu: Amount | None = None
    """Cores."""
    memory: Bytes | None = None
    """Main memory."""
    gpu: Amount | None = None
    """GPUs of any type."""
    gpu_types: dict[GpuType, Amount] = {}
    """GPUs of one type, by type: `{A100: 8}`."""
    other: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Any countable resource by name, such as `rdma/hca`."""


class UserLimits(ResourceQuota):
    """Limits on the total resources of one user's runs; a resource that is not named is not bounded."""

    runs: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of concurrent runs; further runs wait."""


class QueueLimits(SpecModel):
    """Limits of the queue's runs."""

    per_user: UserLimits = UserLimits()
    """Limits on the total resources of one user's runs."""
    timeout: Duration | None = None
    """Maximum timeout that a run may request. It is also the timeout of runs that set none, unless `defaults` sets one."""
    priority: Priority | None = None
    """Maximum priority that a run may request."""


class QueueDefaults(SpecModel):
    """Defaults for runs that set no value."""

    priority: Priority | None = None
    """Priority; runs with a higher priority start first."""
    timeout: Duration | None = None
    """Maximum run time."""


class QueueSpec(SpecModel):
    """Specification of a queue."""

    members: Annotated[tuple[Member, ...], Field(json_schema_extra={"minItems": 1})] = (EVERYBODY,)
    """Users and groups that may submit to the queue: `user:ann`, `group:nlp`, or `*` for all users."""
    weight: Amount = "1"
    """Weight of the queue; resources are shared between queues in proportion to their weights."""
    quota: ResourceQuota = ResourceQuota()
    """Resources reserved for the queue, available whenever its runs need them. Runs get more only if `borrow` is set. A resource
    that is not named is not bounded."""
    limits: QueueLimits = QueueLimits()
    """Limits of the queue's runs."""
    borrow: bool = True
    """Whether runs may use idle resources of other queues beyond the quota. Borrowed resources are returned when those queues
    need them."""
    time_slice: TimeSlice = "never"
    """How long a run that can resume keeps its resources before other runs of the queue get a turn, so that short runs finish
    soon; or `never`."""
    defaults: QueueDefaults = QueueDefaults()
    """Defaults for runs that set no value."""


class QueueMetadata(SpecModel):
    """Name and labels, as in Kubernetes. A queue belongs to no namespace."""

    name: Name
    """The name to which the `queue` field of jobs refers."""
    labels: dict[str, str] = {}
    """Labels for selecting the queue."""
    annotations: dict[str, str] = {}
    """Notes of any kind, for people and tools."""


class JobQueue(SpecModel):
    """A queue document in the Kubernetes spelling."""

    api_version: Literal["fairway.dev/v1alpha1"] = "fairway.dev/v1alpha1"
    """The version of this schema."""
    kind: Literal["JobQueue"] = "JobQueue"
    """What the document describes."""
    metadata: QueueMetadata
    """Name and labels."""
    spec: QueueSpec = QueueSpec()
    """Specification of the queue."""
