"""Nodes that were freed: whom they may help, as long as nobody else has taken what was freed."""

from __future__ import annotations

from collections.abc import Set

from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.waiting import Kind

MANY = 64
"""Of more nodes than this one does not keep track: they may help anybody."""


class Gains:
    """A few freed nodes. Only devices are looked at: it says who is worth a try, not who fits."""

    def __init__(self, ledger: Ledger, nodes: Set[str]) -> None:
        self._ledger, self._nodes = ledger, nodes
        self._seen = -1
        self._free: list[list[tuple[str, int]]] = []
        self._known: dict[object, bool] = {}

    def help(self, kind: Kind) -> bool:
        """Whether a task of this kind may find room there now."""
        if not self._nodes or len(self._nodes) > MANY:
            return bool(self._nodes)
        if self._seen != self._ledger.changes:
            self._seen = self._ledger.changes
            found = (self._ledger.promises.open_devices(node) for node in self._nodes)
            self._free = [devices for devices in found if devices]
            self._known.clear()
        known = self._known.get(kind.devices)
        if known is None:
            known = self._known[kind.devices] = any(self._suit(*asked) for asked in kind.devices)
        return known

    def _suit(self, gpus: int, milli: int, types: tuple[str, ...]) -> bool:
        if not gpus:
            return True
        return any(sum(free >= milli and (not types or kind in types) for kind, free in node) >= gpus for node in self._free)
