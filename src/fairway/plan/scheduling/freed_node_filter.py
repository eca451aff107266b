"""Filter for freed nodes: which kinds of requests they may help while the freed devices are still free."""

from __future__ import annotations

from collections.abc import Set

from fairway.plan.scheduling.queueing.waiting_room import RequestKind
from fairway.plan.scheduling.scheduler_state import SchedulerState

MANY = 64
"""With more freed nodes than this no filter is applied: they may help any kind."""


class FreedNodeFilter:
    """A few freed nodes. Only devices are compared: the result is whether a try is worthwhile, not whether a task fits."""

    def __init__(self, ledger: SchedulerState, nodes: Set[str]) -> None:
        self._ledger, self._nodes = ledger, nodes
        self._seen = -1
        self._free: list[list[tuple[str, int]]] = []
        self._known: dict[object, bool] = {}

    def help(self, kind: RequestKind) -> bool:
        """Return whether a task of this kind may fit there now."""
        if not self._nodes or len(self._nodes) > MANY:
            return bool(self._nodes)
        if self._seen != self._ledger.changes:
            self._seen = self._ledger.changes
            open_devices = (self._ledger.promises.open_devices(node) for node in self._nodes)
            self._free = [devices for devices in open_devices if devices]
            self._known.clear()
        result = self._known.get(kind.devices)
        if result is None:
            result = self._known[kind.devices] = any(self._suit(*need) for need in kind.devices)
        return result

    def _suit(self, gpus: int, milli: int, types: tuple[str, ...]) -> bool:
        if not gpus:
            return True
        return any(
            sum(free >= milli and (not types or gpu_type in types) for gpu_type, free in node) >= gpus for node in self._free
        )
