"""When devices are expected to be free, as arrays: so that nobody must play thousands of endings through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.shape import Gang, Part, Seat, Shape, device_memory, milli_on
from fairway.state.node import Node

Times = NDArray[np.float64]
NEVER = np.inf

Sitter = tuple[float, float, tuple[Seat, ...]]
"""When it is expected to end, since when it runs, and where it sits on a node."""


class Outlook:
    """Devices by node, in order of name. Made up to date where something has changed when one asks."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """`nodes` is the caller's."""
        self._nodes = nodes
        self._names: list[str] = []
        self._row: dict[str, int] = {}
        self._stale: set[str] = set()
        self._renewed = True

    def renew(self) -> None:
        """Nodes came, went or changed."""
        self._renewed = True

    def touch(self, names: Iterable[str]) -> None:
        """Something changed on these nodes."""
        self._stale.update(names)

    def stale(self) -> list[str]:
        """Nodes of which one must say anew who sits there, and what is kept."""
        if self._renewed:
            self._arrange()
        found = [name for name in self._stale if name in self._row]
        self._stale.clear()
        return found

    def _arrange(self) -> None:
        self._renewed = False
        self._names = sorted(self._nodes)
        self._row = {name: row for row, name in enumerate(self._names)}
        width = max((len(node.devices) for node in self._nodes.values()), default=0)
        self._end: Times = np.full((len(self._names), width), NEVER)
        self._since: Times = np.zeros((len(self._names), width))
        racks: dict[str, list[int]] = {}
        for row, name in enumerate(self._names):
            racks.setdefault(self._nodes[name].rack, []).append(row)
        self._racks = [np.array(rows, np.intp) for rows in racks.values()]
        self._fitting: dict[object, NDArray[np.bool_]] = {}
        self._stale = set(self._names)
        self._free_at: Times = self._end
        self._free_when: float | None = None
        """The time for which that was worked out, if any."""

    def set_node(self, name: str, sitters: Iterable[Sitter], kept: Iterable[Seat]) -> None:
        """Who sits on a node, and what is kept there for others."""
        row, devices = self._row[name], self._nodes[name].devices
        slot = {device.uuid: at for at, device in enumerate(devices)}
        for at, device in enumerate(devices):
            self._end[row, at] = -NEVER if device.healthy and not device.busy_with else NEVER
            self._since[row, at] = 0.0
        for end, since, seats in sitters:
            for at in (slot[uuid] for seat in seats for uuid in seat.devices if uuid in slot):
                if end > self._end[row, at]:
                    self._end[row, at], self._since[row, at] = end, since
        for seat in kept:
            for uuid in seat.devices:
                if uuid in slot:
                    self._end[row, slot[uuid]] = NEVER
        if self._free_when is not None:
            self._free_at[row] = _free_at(self._end[row], self._since[row], self._free_when)

    def soonest(self, gang: Gang, tasks: int, now: float) -> tuple[float, list[str]] | None:
        """When so many times the gang could find devices, and on which nodes; None when never. Only devices are looked at."""
        if self._free_when != now:
            self._free_when, self._free_at = now, _free_at(self._end, self._since, now)
        free_at = self._free_at
        best: tuple[float, list[str]] | None = None
        for rows in self._racks if gang.same_rack else [None]:
            found = self._within(gang, tasks, rows, free_at)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def _within(self, gang: Gang, tasks: int, rows: NDArray[np.intp] | None, free_at: Times) -> tuple[float, list[str]] | None:
        """The same on the nodes of these rows; None: all of them."""
        latest, names = -NEVER, dict[str, None]()
        for part in gang.parts:
            if not part.shape.gpus:
                continue
            fits = self._fits(part.shape)
            usable = np.where(fits, free_at, NEVER) if rows is None else np.where(fits[rows], free_at[rows], NEVER)
            times = _times(part, usable)
            count = (1 if part.together else part.least) * tasks
            if times.size < count:
                return None
            flat = times.ravel()
            last = float(flat.min() if count == 1 else np.partition(flat, count - 1)[count - 1])
            if last == NEVER:
                return None
            before = np.flatnonzero(flat < last)
            chosen = [*before, *np.flatnonzero(flat == last)[: count - len(before)]]
            latest = max(latest, last)
            found = [at // times.shape[1] for at in chosen]
            names.update((self._names[at if rows is None else int(rows[at])], None) for at in found)
        return (latest, list(names)) if names else None

    def _fits(self, shape: Shape) -> NDArray[np.bool_]:
        alike = (shape.gpu_types, shape.gpu_memory, shape.gpu_milli, shape.where)
        found = self._fitting.get(alike)
        if found is None:
            found = np.zeros(self._end.shape, np.bool_)
            for row, name in enumerate(self._names):
                node = self._nodes[name]
                if _admits(node, shape):
                    found[row, : len(node.devices)] = [_will_do(shape, node, at) for at in range(len(node.devices))]
            if len(self._fitting) > 256:
                self._fitting.clear()
            self._fitting[alike] = found
        return found


def _free_at(end: Times, since: Times, now: float) -> Times:
    """When devices are free; later and later where somebody sits who should have left already."""
    late = now + np.maximum(60.0, 0.25 * (now - since))
    found: Times = np.where(end > now, end, np.where(end == -NEVER, now, late))
    return found


def is_alike(one: Node, other: Node) -> bool:
    """Whether the nodes have the same devices and the same place; how well they are is another matter."""
    same = (one.labels, one.taints, one.rack) == (other.labels, other.taints, other.rack)
    devices = [[(device.uuid, device.index, device.type, device.memory) for device in node.devices] for node in (one, other)]
    return same and devices[0] == devices[1]


def _times(part: Part, usable: Times) -> Times:
    """When each node has devices for one task, for two, and so on; for all of them where they must sit together."""
    gpus = part.shape.gpus
    if gpus == 1 and not part.together and not part.apart:
        return usable
    ordered = np.sort(usable, axis=1)
    if part.together:
        last = min(part.least * gpus, ordered.shape[1] + 1)
        return ordered[:, last - 1 : last] if last <= ordered.shape[1] else ordered[:, :0]
    return ordered[:, gpus - 1 : gpus] if part.apart else ordered[:, gpus - 1 :: gpus]


def _admits(node: Node, shape: Shape) -> bool:
    where = shape.where
    if where.nodes and node.name not in where.nodes:
        return False
    if any(node.labels.get(name) != value for name, value in where.labels):
        return False
    return not node.taints or "*" in where.tolerates or all(taint in where.tolerates for taint in node.taints)


def _will_do(shape: Shape, node: Node, at: int) -> bool:
    device = node.devices[at]
    named = not shape.where.devices or device.uuid in shape.where.devices or str(device.index) in shape.where.devices
    return named and (not shape.gpu_types or device.type in shape.gpu_types) and milli_on(shape, device_memory(device)) <= 1000
