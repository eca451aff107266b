"""Expected release times of devices as arrays, so that thousands of endings need not be simulated one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.gang import GangRole, GangShape, TaskSeat, TaskShape, device_memory, milli_on
from fairway.state.node import ClusterNode

Times = NDArray[np.float64]
NEVER = np.inf

Sitter = tuple[float, float, tuple[TaskSeat, ...]]
"""A gang's expected end, its start, and its seats on one node."""


class DeviceReleaseForecast:
    """Release times by node and device, nodes sorted by name. Changed nodes are updated on demand."""

    def __init__(self, nodes: Mapping[str, ClusterNode]) -> None:
        """`nodes` belongs to the caller, which changes it."""
        self._nodes = nodes
        self._names: list[str] = []
        self._row: dict[str, int] = {}
        self._stale: set[str] = set()
        self._renewed = True

    def renew(self) -> None:
        """Note that nodes were added, removed or changed."""
        self._renewed = True

    def touch(self, names: Iterable[str]) -> None:
        """Note that something changed on these nodes."""
        self._stale.update(names)

    def stale(self) -> list[str]:
        """Return the nodes for which the caller must call `set_node` again."""
        if self._renewed:
            self._arrange()
        stale_names = [name for name in self._stale if name in self._row]
        self._stale.clear()
        return stale_names

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
        """The time for which `_free_at` was computed, if any."""

    def set_node(self, name: str, sitters: Iterable[Sitter], kept: Iterable[TaskSeat]) -> None:
        """Set the gangs on a node and the seats reserved there."""
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

    def soonest(self, gang: GangShape, tasks: int, now: float) -> tuple[float, list[str]] | None:
        """Return when, and on which nodes, `tasks` copies of the gang could find devices; None when never. Only devices count."""
        if self._free_when != now:
            self._free_when, self._free_at = now, _free_at(self._end, self._since, now)
        free_at = self._free_at
        best: tuple[float, list[str]] | None = None
        for rows in self._racks if gang.same_rack else [None]:
            result = self._within(gang, tasks, rows, free_at)
            if result is not None and (best is None or result[0] < best[0]):
                best = result
        return best

    def _within(
        self, gang: GangShape, tasks: int, rows: NDArray[np.intp] | None, free_at: Times
    ) -> tuple[float, list[str]] | None:
        """Do the same for the nodes of these rows; None: all nodes."""
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
            found_rows = [at // times.shape[1] for at in chosen]
            names.update((self._names[at if rows is None else int(rows[at])], None) for at in found_rows)
        return (latest, list(names)) if names else None

    def _fits(self, shape: TaskShape) -> NDArray[np.bool_]:
        criteria = (shape.gpu_types, shape.gpu_memory, shape.gpu_milli, shape.where)
        fitting = self._fitting.get(criteria)
        if fitting is None:
            fitting = np.zeros(self._end.shape, np.bool_)
            for row, name in enumerate(self._names):
                node = self._nodes[name]
                if _admits(node, shape):
                    fitting[row, : len(node.devices)] = [_will_do(shape, node, at) for at in range(len(node.devices))]
            if len(self._fitting) > 256:
                self._fitting.clear()
            self._fitting[criteria] = fitting
        return fitting


def _free_at(end: Times, since: Times, now: float) -> Times:
    """Return when devices are free. For a device held by an overdue gang the time is postponed further and further."""
    overdue = now + np.maximum(60.0, 0.25 * (now - since))
    times: Times = np.where(end > now, end, np.where(end == -NEVER, now, overdue))
    return times


def is_alike(one: ClusterNode, other: ClusterNode) -> bool:
    """Return whether the nodes have the same devices, labels, taints and rack, regardless of health."""
    same_placement = (one.labels, one.taints, one.rack) == (other.labels, other.taints, other.rack)
    devices = [[(device.uuid, device.index, device.type, device.memory) for device in node.devices] for node in (one, other)]
    return same_placement and devices[0] == devices[1]


def _times(part: GangRole, usable: Times) -> Times:
    """Return when each node has devices for one task, for two, and so on; for all tasks where they must be together."""
    gpus = part.shape.gpus
    if gpus == 1 and not part.together and not part.apart:
        return usable
    ordered = np.sort(usable, axis=1)
    if part.together:
        last = min(part.least * gpus, ordered.shape[1] + 1)
        return ordered[:, last - 1 : last] if last <= ordered.shape[1] else ordered[:, :0]
    return ordered[:, gpus - 1 : gpus] if part.apart else ordered[:, gpus - 1 :: gpus]


def _admits(node: ClusterNode, shape: TaskShape) -> bool:
    where = shape.where
    if where.nodes and node.name not in where.nodes:
        return False
    if any(node.labels.get(name) != value for name, value in where.labels):
        return False
    return not node.taints or "*" in where.tolerates or all(taint in where.tolerates for taint in node.taints)


def _will_do(shape: TaskShape, node: ClusterNode, at: int) -> bool:
    device = node.devices[at]
    named = not shape.where.devices or device.uuid in shape.where.devices or str(device.index) in shape.where.devices
    return named and (not shape.gpu_types or device.type in shape.gpu_types) and milli_on(shape, device_memory(device)) <= 1000
