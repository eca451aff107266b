"""Nodes with equal numbers of GPUs, counted and not named: enough to see who fits."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.errors import UsageError

Places = tuple[tuple[int, int], ...]
"""Which nodes, and how many GPUs on each."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """So many nodes with so many GPUs each."""

    count: int
    gpus: int

    @classmethod
    def parse(cls, text: str) -> Nodes:
        """`14x8`: 14 nodes with 8 GPUs each."""
        count, cross, gpus = text.partition("x")
        if not cross or not count.isdecimal() or not gpus.isdecimal() or not int(count) or not int(gpus):
            raise UsageError(f'"{text}" is not nodes x GPUs', fix="write 14x8 for 14 nodes with 8 GPUs each")
        return cls(int(count), int(gpus))

    def changed(self, add: int = 0, remove: int = 0) -> Nodes:
        """With some more, or fewer."""
        if self.count + add - remove < 1:
            raise UsageError(f"{self.count} nodes and {add} more, less {remove}, leave none", fix="remove fewer")
        return Nodes(self.count + add - remove, self.gpus)

    @property
    def total(self) -> int:
        """GPUs in all."""
        return self.count * self.gpus

    def whole(self, gpus: int) -> int:
        """How many GPUs a gang takes: a gang that is larger than a node takes whole nodes."""
        return gpus if gpus <= self.gpus else -(-gpus // self.gpus) * self.gpus


class Floor:
    """What is free. A gang that fits on a node gets places on one node, the fullest that will do; a larger one whole nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.free = [nodes.gpus] * nodes.count
        self.idle = nodes.total

    def find(self, gpus: int) -> Places | None:
        """Places for a gang; nothing is taken."""
        size = self.nodes.gpus
        if gpus > self.idle:
            return None
        if gpus <= size:
            best, left = -1, size + 1
            for index, free in enumerate(self.free):
                if gpus <= free < left:
                    best, left = index, free
                    if left == gpus:
                        break
            return ((best, gpus),) if best >= 0 else None
        count = -(-gpus // size)
        empty = [index for index, free in enumerate(self.free) if free == size][:count]
        return tuple((index, size) for index in empty) if len(empty) == count else None

    def still(self, places: Places) -> bool:
        """Whether these are free."""
        return all(self.free[index] >= gpus for index, gpus in places)

    def take(self, places: Places) -> None:
        """Use them."""
        for index, gpus in places:
            self.free[index] -= gpus
            self.idle -= gpus

    def give(self, places: Places) -> None:
        """Give them back."""
        for index, gpus in places:
            self.free[index] += gpus
            self.idle += gpus

    def copy(self) -> Floor:
        """Another with the same places free."""
        other = Floor(self.nodes)
        other.free, other.idle = list(self.free), self.idle
        return other
