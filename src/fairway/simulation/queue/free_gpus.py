"""Nodes with equal numbers of GPUs, counted and not named: enough to determine which gangs fit."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.errors import UsageError

Places = tuple[tuple[int, int], ...]
"""Indices of nodes, and the number of GPUs on each."""


@dataclass(frozen=True, slots=True)
class EqualNodes:
    """A number of nodes with an equal number of GPUs each."""

    count: int
    gpus: int

    @classmethod
    def parse(cls, text: str) -> EqualNodes:
        """Parse `14x8`: 14 nodes with 8 GPUs each."""
        count, cross, gpus = text.partition("x")
        if not cross or not count.isdecimal() or not gpus.isdecimal() or not int(count) or not int(gpus):
            raise UsageError(f'"{text}" is not nodes x GPUs', fix="write 14x8 for 14 nodes with 8 GPUs each")
        return cls(int(count), int(gpus))

    def changed(self, add: int = 0, remove: int = 0) -> EqualNodes:
        """Return nodes with a changed count."""
        if self.count + add - remove < 1:
            raise UsageError(f"{self.count} nodes plus {add} minus {remove} leaves no nodes", fix="remove fewer")
        return EqualNodes(self.count + add - remove, self.gpus)

    @property
    def total(self) -> int:
        """Total number of GPUs."""
        return self.count * self.gpus

    def whole(self, gpus: int) -> int:
        """Return the number of GPUs that a gang takes: a gang that is larger than a node takes whole nodes."""
        return gpus if gpus <= self.gpus else -(-gpus // self.gpus) * self.gpus


class FreeGpus:
    """The free GPUs.

    A gang that fits on a node gets places on one node, the fullest that has room; a larger one gets whole nodes.
    """

    def __init__(self, nodes: EqualNodes) -> None:
        self.nodes = nodes
        self.free = [nodes.gpus] * nodes.count
        self.idle = nodes.total

    def find(self, gpus: int) -> Places | None:
        """Return places for a gang without taking them; None if there are none."""
        size = self.nodes.gpus
        if gpus > self.idle:
            return None
        if gpus <= size:
            best, least_free = -1, size + 1
            for index, free in enumerate(self.free):
                if gpus <= free < least_free:
                    best, least_free = index, free
                    if least_free == gpus:
                        break
            return ((best, gpus),) if best >= 0 else None
        count = -(-gpus // size)
        empty = [index for index, free in enumerate(self.free) if free == size][:count]
        return tuple((index, size) for index in empty) if len(empty) == count else None

    def still(self, places: Places) -> bool:
        """Return whether these places are free."""
        return all(self.free[index] >= gpus for index, gpus in places)

    def take(self, places: Places) -> None:
        """Take the places."""
        for index, gpus in places:
            self.free[index] -= gpus
            self.idle -= gpus

    def give(self, places: Places) -> None:
        """Release the places."""
        for index, gpus in places:
            self.free[index] += gpus
            self.idle += gpus

    def copy(self) -> FreeGpus:
        """Return a copy with the same free places."""
        other = FreeGpus(self.nodes)
        other.free, other.idle = list(self.free), self.idle
        return other
