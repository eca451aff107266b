"""A queue: its members, its part of the machines, and its current use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairway.spec.queue import EVERYBODY, JobQueue, ResourceQuota, UserLimits
from fairway.units import quantity

DEFAULT_QUEUE = "default"
"""The queue of runs that name no queue. It always exists."""
GPU_TYPE = "gpu:"
"""Prefix of a GPU type in resource names: `gpu:A100`."""
RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of the engine, in numbers. Queues belong to no namespace.

    Amounts are by resource: `cpu` in thousandths of a core, `memory` in MiB, `gpu` in thousandths of a device of any type,
    `gpu:A100` in thousandths of a device of that type, anything else as a count. A resource that is not named is not bounded.
    """

    name: str
    weight: float = 1.0
    """Weight of its share relative to the other queues."""
    quota: dict[str, int] = field(default_factory=dict)
    """Resources reserved for the queue, regardless of the demand of others; it gets more only if it borrows."""
    per_user: dict[str, int] = field(default_factory=dict)
    """Maximum total resources of one user's runs; `runs` is the maximum number of concurrent runs."""
    timeout: float | None = None
    """Maximum timeout that a run may request, in seconds."""
    priority: int | None = None
    """Maximum priority that a run may request."""
    borrow: bool = True
    """Whether its runs may use idle resources of other queues beyond the quota; these are returned on demand."""
    time_slice: float | None = None
    """Seconds after which a run that can resume makes room for others of the queue; None: never."""
    members: tuple[str, ...] = (EVERYBODY,)
    """`user:ann`, `group:nlp`, or `*` for all users."""
    default_timeout: float | None = None
    """Timeout of runs that set none, in seconds."""
    default_priority: int = 0
    """Priority of runs that set none."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """Current use of a queue. Amounts are by resource, as in `Queue`."""

    name: str
    running: int = 0
    """Number of runs that hold resources."""
    waiting: int = 0
    """Number of runs that wait for resources."""
    used: dict[str, int] = field(default_factory=dict)
    dominant: str = ""
    """The resource of which it holds the largest part; empty if it holds nothing."""
    share: float = 0.0
    """That part of the total, 0 to 1."""
    usage: float = 0.0
    """Recent use, with older use weighted less; comparable between queues."""
    borrowed: dict[str, int] = field(default_factory=dict)
    """Resources held beyond its quota."""


def queue_of(document: JobQueue) -> Queue:
    """Return the queue that a document describes."""
    spec, limits, defaults = document.spec, document.spec.limits, document.spec.defaults
    longest = _seconds(limits.timeout)
    default_timeout = _seconds(defaults.timeout)
    default_priority = defaults.priority
    if default_priority is None:
        default_priority = 0 if limits.priority is None else min(0, limits.priority)
    return Queue(
        name=document.metadata.name,
        weight=quantity.number(spec.weight),
        quota=_amounts(spec.quota),
        per_user=_amounts(limits.per_user),
        timeout=longest,
        priority=limits.priority,
        borrow=spec.borrow,
        time_slice=None if spec.time_slice == "never" else quantity.seconds(spec.time_slice),
        members=spec.members,
        default_timeout=longest if default_timeout is None else default_timeout,
        default_priority=default_priority,
        labels=dict(document.metadata.labels),
        annotations=dict(document.metadata.annotations),
    )


def by_name(kept: Iterable[Queue]) -> dict[str, Queue]:
    """Return all queues in order of name. `default` is always included."""
    queues = {DEFAULT_QUEUE: Queue(DEFAULT_QUEUE), **{queue.name: queue for queue in kept}}
    return {name: queues[name] for name in sorted(queues)}


def admits(queue: Queue, user: str, groups: Iterable[str]) -> bool:
    """Return whether a user of these groups may submit to the queue."""
    identities = {f"group:{group}" for group in groups} | ({f"user:{user}"} if user else set())
    return EVERYBODY in queue.members or not identities.isdisjoint(queue.members)


def _amounts(given: ResourceQuota) -> dict[str, int]:
    amounts: dict[str, int] = {}
    if given.cpu is not None:
        amounts["cpu"] = round(quantity.number(given.cpu) * 1000)
    if given.memory is not None:
        amounts["memory"] = quantity.byte_count(given.memory) >> 20
    if given.gpu is not None:
        amounts["gpu"] = round(quantity.number(given.gpu) * 1000)
    amounts.update((f"{GPU_TYPE}{kind}", round(quantity.number(count) * 1000)) for kind, count in given.gpu_types.items())
    amounts.update(given.other)
    if isinstance(given, UserLimits) and given.runs is not None:
        amounts[RUNS] = given.runs
    return amounts


def _seconds(text: str | None) -> float | None:
    return None if text is None else quantity.seconds(text)
