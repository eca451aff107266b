"""Which devices count as healthy. Pure: `now` is a steady clock of the process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fairway.state.node import Device


class Health:
    """A device is sick at once, and well again only after it has been well for a while: one that comes and goes stays sick."""

    def __init__(self, settle: float, known: Iterable[Device] = ()) -> None:
        """`known`: what was said of them before this process began."""
        self._settle = settle
        self._known = {device.uuid: device for device in known}
        self._sick = {device.uuid for device in self._known.values() if not device.healthy}
        self._well_since: dict[str, float] = {}

    def judge(self, found: Iterable[Device], now: float) -> tuple[Device, ...]:
        """The devices as they should be told of. One that was there and is not found any more is a sick one."""
        here = {device.uuid: device for device in found}
        self._known |= here
        judged = [self._judged(here.get(uuid) or replace(known, healthy=False), now) for uuid, known in self._known.items()]
        return tuple(sorted(judged, key=lambda device: (device.index, device.uuid)))

    def _judged(self, device: Device, now: float) -> Device:
        if not device.healthy:
            self._sick.add(device.uuid)
            self._well_since.pop(device.uuid, None)
        elif device.uuid in self._sick and now - self._well_since.setdefault(device.uuid, now) >= self._settle:
            self._sick.discard(device.uuid)
            self._well_since.pop(device.uuid)
        return replace(device, healthy=device.uuid not in self._sick)
