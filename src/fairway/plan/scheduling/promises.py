"""Who sits where, by node, and which of the places kept for gangs nobody sits on by now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fairway.plan.scheduling.shape import WHOLE, Seat
from fairway.state.job import JobKey
from fairway.state.node import Node


class Promises:
    """Running gangs by node, and places kept. Only devices are compared: it says who is worth a try, not who fits."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """`nodes` is the caller's."""
        self._nodes = nodes
        self.sitters: dict[str, dict[JobKey, list[Seat]]] = {}
        """By node: who sits there, and where."""
        self._busy: dict[str, dict[str, int]] = {}
        """By node and device: how many tasks use it."""
        self._load: dict[str, dict[str, int]] = {}
        """By node and device: thousandths that are used or kept."""
        self._kept: dict[str, dict[str, list[Seat]]] = {}
        """By node and name."""
        self._ready: dict[str, dict[str, int]] = {}
        self._idle: dict[str, int] = {}
        """Nodes where places are kept and devices are idle, with the number of those."""

    def sit(self, key: JobKey, seats: Iterable[Seat], sign: int = 1) -> None:
        """A gang sits there; with -1 it did."""
        for seat in seats:
            there = self.sitters.setdefault(seat.node, {})
            if sign > 0:
                there.setdefault(key, []).append(seat)
            else:
                there[key].remove(seat)
                if not there[key]:
                    del there[key]
            self._use(seat, sign)

    def _use(self, seat: Seat, sign: int) -> None:
        if seat.node in self._kept:
            self._recount(seat.node, -1)
        busy = self._busy.setdefault(seat.node, {})
        for device in seat.devices:
            busy[device] = busy.get(device, 0) + sign
            if not busy[device]:
                del busy[device]
        self._weigh(seat, sign)
        if seat.node in self._kept:
            self._recount(seat.node, 1)
            self.look_at(seat.node)

    def keep(self, name: str, seats: Sequence[Seat]) -> None:
        """These places are kept for a run."""
        self._ready[name] = {}
        for seat in seats:
            self._kept.setdefault(seat.node, {}).setdefault(name, []).append(seat)
            self._weigh(seat, 1)
        for node in {seat.node for seat in seats}:
            self._add(name, node, 1)
            self.look_at(node)

    def drop(self, name: str, seats: Sequence[Seat]) -> None:
        """They are kept no longer."""
        del self._ready[name]
        for seat in seats:
            self._weigh(seat, -1)
        for node in {seat.node for seat in seats}:
            del self._kept[node][name]
            if not self._kept[node]:
                del self._kept[node]
            self.look_at(node)

    def look_at(self, node: str) -> None:
        """Something changed on the node."""
        known = self._nodes.get(node)
        idle = 0
        if known is not None and node in self._kept:
            busy = self._busy.get(node, {})
            idle = sum(device.healthy and not device.busy_with and device.uuid not in busy for device in known.devices)
        if idle:
            self._idle[node] = idle
        else:
            self._idle.pop(node, None)

    def open_devices(self, node: str) -> list[tuple[str, int]]:
        """Type and free thousandths of the devices of a node that are neither used up nor kept for anybody."""
        known, load = self._nodes.get(node), self._load.get(node, {})
        if known is None:
            return []
        free = [
            (device.type, WHOLE - load.get(device.uuid, 0)) for device in known.devices if device.healthy and not device.busy_with
        ]
        return [each for each in free if each[1] > 0]

    def _weigh(self, seat: Seat, sign: int) -> None:
        load = self._load.setdefault(seat.node, {})
        for device in seat.devices:
            load[device] = load.get(device, 0) + sign * seat.milli

    def ready(self, name: str) -> Mapping[str, int]:
        """By role: how many of the places kept for the run nobody sits on."""
        return self._ready.get(name, {})

    def idle(self) -> Iterator[tuple[str, int, Mapping[str, list[Seat]]]]:
        """Nodes with idle devices and places kept: how many are idle, and what is kept for whom. In no particular order."""
        for node, count in self._idle.items():
            yield node, count, self._kept[node]

    def kept_for(self, node: str) -> list[tuple[str, list[Seat]]]:
        """The places of a node that are kept, by for whom."""
        return list(self._kept.get(node, {}).items())

    def kept_on(self, node: str) -> list[Seat]:
        """The places of a node that are kept for anybody."""
        return [seat for seats in self._kept.get(node, {}).values() for seat in seats]

    def _recount(self, node: str, sign: int) -> None:
        for name in self._kept.get(node, ()):
            self._add(name, node, sign)

    def _add(self, name: str, node: str, sign: int) -> None:
        busy, ready = self._busy.get(node, {}), self._ready[name]
        for seat in self._kept[node][name]:
            if not any(device in busy for device in seat.devices):
                ready[seat.role] = ready.get(seat.role, 0) + sign
