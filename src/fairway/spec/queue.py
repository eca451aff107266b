"""The queue document: who may submit to it, what is theirs, and what their runs keep to. One type a field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fairway.spec.model import Amount, Bytes, Duration, GpuType, Member, Name, SpecModel, TimeSlice

EVERYBODY = "*"

Priority = Annotated[int, Field(ge=-1000, le=1000)]


class Allotment(SpecModel):
    """Amounts of resources together; what is not named is not bounded."""

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


class UserLimits(Allotment):
    """What the runs of one user may hold together; what is not named is not bounded."""

    runs: Annotated[int, Field(ge=0)] | None = None
    """Runs that may run at the same time; more of them wait."""


class QueueLimits(SpecModel):
    """What the runs of the queue keep to."""

    per_user: UserLimits = UserLimits()
    """What the runs of one user may hold together."""
    timeout: Duration | None = None
    """The longest timeout that a run may ask for; also that of runs that say nothing, unless `defaults` says another."""
    priority: Priority | None = None
    """The highest priority that a run may ask for."""


class QueueDefaults(SpecModel):
    """For runs that say nothing."""

    priority: Priority | None = None
    """Higher goes first."""
    timeout: Duration | None = None
    """The longest that a run may take."""


class QueueSpec(SpecModel):
    """Everything that a queue is."""

    members: Annotated[tuple[Member, ...], Field(json_schema_extra={"minItems": 1})] = (EVERYBODY,)
    """Who may submit to it: `user:ann`, `group:nlp`, or `*` for all users."""
    weight: Amount = "1"
    """Its share of what is there, beside the weights of the other queues."""
    quota: Allotment = Allotment()
    """What is its own whenever it asks; more only where it may borrow. Nothing named, nothing bounded."""
    limits: QueueLimits = QueueLimits()
    """What its runs keep to."""
    borrow: bool = True
    """Whether its runs may use, beyond the quota, what others leave idle; it is given back when they ask for it."""
    time_slice: TimeSlice = "never"
    """How long a run that can resume goes on before others of the queue get a turn, so that short ones end soon; or `never`."""
    defaults: QueueDefaults = QueueDefaults()
    """For runs that say nothing."""


class QueueMetadata(SpecModel):
    """Name and labels, as Kubernetes has them. A queue belongs to no namespace."""

    name: Name
    """What jobs say as `queue`."""
    labels: dict[str, str] = {}
    """For finding it again."""
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
    """What is asked."""
