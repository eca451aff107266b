"""What is asked of nodes, in whole numbers: one task (`Shape`), and tasks that start together (`Gang`).

Equal shapes are interchangeable, so that what was found out for one holds for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairway.state.node import Device

WHOLE = 1000
"""Thousandths of a GPU."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which nodes and devices will do at all; empty means any."""

    nodes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """UUIDs, or indexes as text."""
    labels: tuple[tuple[str, str], ...] = ()
    """All of them must be on the node; sorted."""
    tolerates: tuple[str, ...] = ()
    """Taints that do not keep it away; `*` means all."""


ANYWHERE = Where()


@dataclass(frozen=True, slots=True)
class Shape:
    """What one task takes from a node."""

    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    """MiB."""
    gpus: int = 0
    """Devices."""
    gpu_milli: int = WHOLE
    """Compute of each device, in thousandths; less than `WHOLE` shares it."""
    gpu_memory: int = 0
    """MiB of each device. With a share it is taken from the device; of a whole device it is the least that will do."""
    gpu_types: tuple[str, ...] = ()
    """Any of these; empty means any type."""
    other: tuple[tuple[str, int], ...] = ()
    """Any countable resource, by name; sorted."""
    where: Where = ANYWHERE

    @property
    def shares(self) -> bool:
        """Whether it leaves part of its devices to others."""
        return self.gpus > 0 and self.gpu_milli < WHOLE


def milli_on(shape: Shape, memory: int) -> int:
    """Thousandths that the task takes of a device with this much memory (MiB); over `WHOLE` when it does not fit there.

    A share takes the larger of its compute and its memory fraction: neither is ever handed out twice.
    """
    if not shape.gpu_memory or not memory:
        return shape.gpu_milli
    of_memory = -(-shape.gpu_memory * WHOLE // memory)
    if shape.gpu_milli == WHOLE:
        return WHOLE if of_memory <= WHOLE else of_memory
    return max(shape.gpu_milli, of_memory)


def device_memory(device: Device) -> int:
    """MiB of a device."""
    return device.memory >> 20


@dataclass(frozen=True, slots=True)
class Part:
    """The tasks of one role."""

    role: str
    shape: Shape
    least: int = 1
    most: int = 1
    together: bool = False
    """All on one node."""
    apart: bool = False
    """No two on one node."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Tasks that start together: all of `least`, or none; up to `most` where there is room."""

    parts: tuple[Part, ...]
    same_rack: bool = False
    """Only within one rack. Otherwise as few racks as can be, as a wish."""

    @property
    def size(self) -> int:
        """Tasks, at the least."""
        return sum(part.least for part in self.parts)

    @property
    def gpus(self) -> int:
        """Thousandths of GPUs, at the least, whatever share memory makes of them."""
        return sum(part.least * part.shape.gpus * part.shape.gpu_milli for part in self.parts)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a task sits, and what it takes there."""

    role: str
    index: int
    shape: Shape
    node: str
    devices: tuple[str, ...] = ()
    milli: int = WHOLE
    """Of each of its devices."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What keeps a gang from its places, as numbers: the words are made elsewhere."""

    what: str
    """`gpu`, `cpu`, `memory`, `tasks` (a node's limit), the name of another resource, `placement`, `rack`, `nodes`."""
    role: str = ""
    asked: int = 0
    """Of it for one task, in the units of `Shape` (for `gpu`: thousandths, devices x share)."""
    most_on_a_node: int = 0
    """What is free of it on the node that has most, among the nodes that will do at all."""
    free: int = 0
    """What is free of it on all nodes that will do at all."""
    placed: int = 0
    """Tasks of the gang that found a place before this one did not."""
    total: int = 0
    """What there would be on those nodes if nothing ran."""


def sizes_beside(gang: Gang, beside: Sequence[Seat]) -> dict[str, int] | None:
    """How far indexes go, so that as many are free as tasks want a place."""
    if not beside:
        return None
    sizes: dict[str, int] = {}
    for part in gang.parts:
        there = {seat.index for seat in beside if seat.role == part.role}
        size, missing = 0, part.least
        while missing:
            missing -= size not in there
            size += 1
        sizes[part.role] = size
    return sizes


def with_sizes(gang: Gang, sizes: dict[str, int]) -> Gang:
    """The gang with no more than these replicas a role."""
    parts = tuple(replace(part, most=max(part.least, min(part.most, sizes.get(part.role, part.most)))) for part in gang.parts)
    return replace(gang, parts=parts)
