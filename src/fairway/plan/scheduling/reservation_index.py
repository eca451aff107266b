"""Index by node of running gangs and reserved seats, and of reserved seats whose devices are idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fairway.plan.scheduling.gang import WHOLE, TaskSeat
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode


class ReservationIndex:
    """Running gangs and reserved seats by node. Only devices are compared: results are hints, not proof that a gang fits."""

    def __init__(self, nodes: Mapping[str, ClusterNode]) -> None:
        """`nodes` belongs to the caller, which changes it."""
        self._nodes = nodes
        self.sitters: dict[str, dict[JobKey, list[TaskSeat]]] = {}
        """By node: the gangs that run there, with their seats."""
        self._busy: dict[str, dict[str, int]] = {}
        """By node and device: the number of tasks that use it."""
        self._used: dict[str, dict[str, int]] = {}
        """By node and device: thousandths used by running gangs."""
        self._load: dict[str, dict[str, int]] = {}
        """By node and device: thousandths used or reserved."""
        self._kept: dict[str, dict[str, list[TaskSeat]]] = {}
        """Reserved seats by node and run name."""
        self._ready: dict[str, dict[str, int]] = {}
        self._idle: dict[str, int] = {}
        """Nodes with reserved seats and idle devices, with the number of idle devices."""

    def sit(self, key: JobKey, seats: Iterable[TaskSeat], sign: int = 1) -> None:
        """Add the seats of a running gang; remove them with `sign=-1`."""
        for seat in seats:
            gangs = self.sitters.setdefault(seat.node, {})
            if sign > 0:
                gangs.setdefault(key, []).append(seat)
            else:
                gangs[key].remove(seat)
                if not gangs[key]:
                    del gangs[key]
            self._use(seat, sign)

    def _use(self, seat: TaskSeat, sign: int) -> None:
        if seat.node in self._kept:
            self._recount(seat.node, -1)
        busy, used = self._busy.setdefault(seat.node, {}), self._used.setdefault(seat.node, {})
        for device in seat.devices:
            busy[device] = busy.get(device, 0) + sign
            used[device] = used.get(device, 0) + sign * seat.milli
            if not busy[device]:
                del busy[device], used[device]
        self._weigh(seat, sign)
        if seat.node in self._kept:
            self._recount(seat.node, 1)
            self.look_at(seat.node)

    def keep(self, name: str, seats: Sequence[TaskSeat]) -> None:
        """Add the reserved seats of a run."""
        self._ready[name] = {}
        for seat in seats:
            self._kept.setdefault(seat.node, {}).setdefault(name, []).append(seat)
            self._weigh(seat, 1)
        for node in {seat.node for seat in seats}:
            self._add(name, node, 1)
            self.look_at(node)

    def drop(self, name: str, seats: Sequence[TaskSeat]) -> None:
        """Remove the reserved seats of a run."""
        del self._ready[name]
        for seat in seats:
            self._weigh(seat, -1)
        for node in {seat.node for seat in seats}:
            del self._kept[node][name]
            if not self._kept[node]:
                del self._kept[node]
            self.look_at(node)

    def look_at(self, node: str) -> None:
        """Recount the idle devices of a changed node."""
        current = self._nodes.get(node)
        idle = 0
        if current is not None and node in self._kept:
            busy = self._busy.get(node, {})
            idle = sum(device.healthy and not device.busy_with and device.uuid not in busy for device in current.devices)
        if idle:
            self._idle[node] = idle
        else:
            self._idle.pop(node, None)

    def open_devices(self, node: str) -> list[tuple[str, int]]:
        """Return type and free thousandths of a node's devices that are not fully used or reserved."""
        current, load = self._nodes.get(node), self._load.get(node, {})
        if current is None:
            return []
        free = [
            (device.type, WHOLE - load.get(device.uuid, 0))
            for device in current.devices
            if device.healthy and not device.busy_with
        ]
        return [entry for entry in free if entry[1] > 0]

    def _weigh(self, seat: TaskSeat, sign: int) -> None:
        load = self._load.setdefault(seat.node, {})
        for device in seat.devices:
            load[device] = load.get(device, 0) + sign * seat.milli

    def ready(self, name: str) -> Mapping[str, int]:
        """Return, by role, how many seats reserved for the run fit beside the running tasks on their devices."""
        return self._ready.get(name, {})

    def idle(self) -> Iterator[tuple[str, int, Mapping[str, list[TaskSeat]]]]:
        """Yield nodes with idle devices and reserved seats: node, idle devices, and seats by run name. In no particular order."""
        for node, count in self._idle.items():
            yield node, count, self._kept[node]

    def kept_for(self, node: str) -> list[tuple[str, list[TaskSeat]]]:
        """Return the reserved seats of a node by run name."""
        return list(self._kept.get(node, {}).items())

    def kept_on(self, node: str) -> list[TaskSeat]:
        """Return all reserved seats of a node."""
        return [seat for seats in self._kept.get(node, {}).values() for seat in seats]

    def _recount(self, node: str, sign: int) -> None:
        for name in self._kept.get(node, ()):
            self._add(name, node, sign)

    def _add(self, name: str, node: str, sign: int) -> None:
        used, ready = self._used.get(node, {}), self._ready[name]
        for seat in self._kept[node][name]:
            if all(used.get(device, 0) + seat.milli <= WHOLE for device in seat.devices):
                ready[seat.role] = ready.get(seat.role, 0) + sign
