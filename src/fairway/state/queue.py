"""A queue: who may use it, how much of the machines is theirs, and how it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairway.spec.queue import EVERYBODY, Allotment, JobQueue, UserLimits
from fairway.units import quantity

DEFAULT_QUEUE = "default"
"""The queue of runs that name none. It always exists."""
GPU_TYPE = "gpu:"
"""Before the type, in names of resources: `gpu:A100`."""
RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of the engine, in numbers. Queues belong to no namespace.

    Amounts are by resource: `cpu` in thousandths of a core, `memory` in MiB, `gpu` in thousandths of a device of any type,
    `gpu:A100` in thousandths of a device of that type, anything else as a count. What is not named is not bounded.
    """

    name: str
    weight: float = 1.0
    """Its share beside the other queues."""
    quota: dict[str, int] = field(default_factory=dict)
    """What is its own, whoever else wants it; more only where it borrows."""
    per_user: dict[str, int] = field(default_factory=dict)
    """What the runs of one user may hold together; `runs` is how many may run."""
    timeout: float | None = None
    """The longest that a run may ask for, in seconds."""
    priority: int | None = None
    """The highest priority that a run may ask for."""
    borrow: bool = True
    """Whether its runs may use, beyond the quota, what others leave idle; it is given back on demand."""
    time_slice: float | None = None
    """Seconds after which a run that can resume makes room for others of the queue; None: never."""
    members: tuple[str, ...] = (EVERYBODY,)
    """`user:ann`, `group:nlp`, or `*` for everybody."""
    default_timeout: float | None = None
    """For runs that say nothing, in seconds."""
    default_priority: int = 0
    """For runs that say nothing."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """How a queue stands now. Amounts are by resource, as in `Queue`."""

    name: str
    running: int = 0
    """Runs that hold room."""
    waiting: int = 0
    """Runs that wait for room."""
    used: dict[str, int] = field(default_factory=dict)
    dominant: str = ""
    """The resource of which it holds the largest part; empty when it holds nothing."""
    share: float = 0.0
    """That part, 0 to 1, of what there is of it."""
    usage: float = 0.0
    """What it has used lately, older use counting less; comparable between queues."""
    borrowed: dict[str, int] = field(default_factory=dict)
    """What it holds beyond its quota."""


def queue_of(document: JobQueue) -> Queue:
    """The queue that a document describes."""
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
    """All queues in order of name; `default` is among them, whatever was kept."""
    found = {DEFAULT_QUEUE: Queue(DEFAULT_QUEUE), **{queue.name: queue for queue in kept}}
    return {name: found[name] for name in sorted(found)}


def admits(queue: Queue, user: str, groups: Iterable[str]) -> bool:
    """Whether a user of these groups may submit to the queue."""
    who = {f"group:{group}" for group in groups} | ({f"user:{user}"} if user else set())
    return EVERYBODY in queue.members or not who.isdisjoint(queue.members)


def _amounts(given: Allotment) -> dict[str, int]:
    found: dict[str, int] = {}
    if given.cpu is not None:
        found["cpu"] = round(quantity.number(given.cpu) * 1000)
    if given.memory is not None:
        found["memory"] = quantity.byte_count(given.memory) >> 20
    if given.gpu is not None:
        found["gpu"] = round(quantity.number(given.gpu) * 1000)
    found.update((f"{GPU_TYPE}{kind}", round(quantity.number(count) * 1000)) for kind, count in given.gpu_types.items())
    found.update(given.other)
    if isinstance(given, UserLimits) and given.runs is not None:
        found[RUNS] = given.runs
    return found


def _seconds(text: str | None) -> float | None:
    return None if text is None else quantity.seconds(text)
