"""Decides which devices count as healthy. Pure: `now` is a monotonic clock of the process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fairway.state.node import NodeDevice


class DeviceHealth:
    """Tracks the health of devices, so that a flapping device stays unhealthy.

    A device becomes unhealthy at once, and healthy again only after a while without errors.
    """

    def __init__(self, settle: float, known: Iterable[NodeDevice] = ()) -> None:
        """`known`: the devices as reported before this process started."""
        self._settle = settle
        self._known = {device.uuid: device for device in known}
        self._sick = {device.uuid for device in self._known.values() if not device.healthy}
        self._well_since: dict[str, float] = {}

    def judge(self, found: Iterable[NodeDevice], now: float) -> tuple[NodeDevice, ...]:
        """Return the devices as they should be reported. A device that has disappeared is reported as unhealthy."""
        current = {device.uuid: device for device in found}
        self._known |= current
        judged = [
            self._judged(current.get(uuid) or replace(previous, healthy=False), now) for uuid, previous in self._known.items()
        ]
        return tuple(sorted(judged, key=lambda device: (device.index, device.uuid)))

    def _judged(self, device: NodeDevice, now: float) -> NodeDevice:
        if not device.healthy:
            self._sick.add(device.uuid)
            self._well_since.pop(device.uuid, None)
        elif device.uuid in self._sick and now - self._well_since.setdefault(device.uuid, now) >= self._settle:
            self._sick.discard(device.uuid)
            self._well_since.pop(device.uuid)
        return replace(device, healthy=device.uuid not in self._sick)
