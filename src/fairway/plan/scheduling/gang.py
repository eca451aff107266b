"""Resource requests in whole numbers: of one task (`TaskShape`), and of tasks that start together (`GangShape`).

Equal shapes are interchangeable, so that results for one apply to all equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairway.state.node import NodeDevice

WHOLE = 1000
"""Thousandths of a GPU."""


@dataclass(frozen=True, slots=True)
class TaskNodeSelector:
    """Which nodes and devices are allowed; empty means any."""

    nodes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """UUIDs, or indexes as strings."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that the node must have; sorted."""
    tolerates: tuple[str, ...] = ()
    """Tolerated taints; `*` means all."""


ANYWHERE = TaskNodeSelector()


@dataclass(frozen=True, slots=True)
class TaskShape:
    """The resources that one task takes from a node."""

    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    """MiB."""
    gpus: int = 0
    """Number of devices."""
    gpu_milli: int = WHOLE
    """Compute of each device, in thousandths; less than `WHOLE` shares the device."""
    gpu_memory: int = 0
    """MiB of each device. A share takes this much of the device; for a whole device it is the minimum size."""
    gpu_types: tuple[str, ...] = ()
    """Allowed types; empty means any."""
    other: tuple[tuple[str, int], ...] = ()
    """Other countable resources, by name; sorted."""
    where: TaskNodeSelector = ANYWHERE

    @property
    def shares(self) -> bool:
        """Whether it shares its devices with other tasks."""
        return self.gpus > 0 and self.gpu_milli < WHOLE


def milli_on(shape: TaskShape, memory: int) -> int:
    """Return the thousandths that the task takes of a device with this much memory (MiB); over `WHOLE` when it does not fit.

    A share takes the larger of its compute and its memory fraction, so that neither is ever over-committed.
    """
    if not shape.gpu_memory or not memory:
        return shape.gpu_milli
    of_memory = -(-shape.gpu_memory * WHOLE // memory)
    if shape.gpu_milli == WHOLE:
        return WHOLE if of_memory <= WHOLE else of_memory
    return max(shape.gpu_milli, of_memory)


def device_memory(device: NodeDevice) -> int:
    """Return the memory of a device in MiB."""
    return device.memory >> 20


@dataclass(frozen=True, slots=True)
class GangRole:
    """The tasks of one role."""

    role: str
    shape: TaskShape
    least: int = 1
    most: int = 1
    together: bool = False
    """Whether all must be on one node."""
    apart: bool = False
    """Whether no two may be on one node."""


@dataclass(frozen=True, slots=True)
class GangShape:
    """Tasks that start together: all of `least`, or none; up to `most` where there is capacity."""

    parts: tuple[GangRole, ...]
    same_rack: bool = False
    """Whether all must be in one rack. Otherwise few racks are only preferred."""

    @property
    def size(self) -> int:
        """Minimum number of tasks."""
        return sum(part.least for part in self.parts)

    @property
    def gpus(self) -> int:
        """Minimum thousandths of GPUs by compute, without regard to shares of memory."""
        return sum(part.least * part.shape.gpus * part.shape.gpu_milli for part in self.parts)


@dataclass(frozen=True, slots=True)
class TaskSeat:
    """Where a task is placed, and what it takes there."""

    role: str
    index: int
    shape: TaskShape
    node: str
    devices: tuple[str, ...] = ()
    milli: int = WHOLE
    """Thousandths of each of its devices."""


@dataclass(frozen=True, slots=True)
class CapacityShortfall:
    """Why a gang does not fit, in numbers; `explain` turns it into text."""

    what: str
    """`gpu`, `cpu`, `memory`, `tasks` (a node's task limit), another resource's name, `placement`, `rack` or `nodes`."""
    role: str = ""
    asked: int = 0
    """Amount that one task requests, in the units of `TaskShape` (for `gpu`: thousandths, devices x share)."""
    most_on_a_node: int = 0
    """Largest free amount on one node, among the allowed nodes."""
    free: int = 0
    """Free amount on all allowed nodes together."""
    placed: int = 0
    """Number of the gang's tasks that could be placed before one could not."""
    total: int = 0
    """Total amount on those nodes if nothing ran."""


def sizes_beside(gang: GangShape, beside: Sequence[TaskSeat]) -> dict[str, int] | None:
    """Return the size of each role such that `least` indexes are free beside the placed tasks; None without placed tasks."""
    if not beside:
        return None
    sizes: dict[str, int] = {}
    for part in gang.parts:
        used_indexes = {seat.index for seat in beside if seat.role == part.role}
        size, missing = 0, part.least
        while missing:
            missing -= size not in used_indexes
            size += 1
        sizes[part.role] = size
    return sizes


def with_sizes(gang: GangShape, sizes: dict[str, int]) -> GangShape:
    """Return the gang with at most these replicas of each role."""
    parts = tuple(replace(part, most=max(part.least, min(part.most, sizes.get(part.role, part.most)))) for part in gang.parts)
    return replace(gang, parts=parts)
