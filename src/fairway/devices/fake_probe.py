"""Fake devices for tests and laptops, described by a text such as `4xA100-80GB,2xT4`.

`sick:3` in the text marks the device with index 3 (the fourth) as unhealthy; `busy:3:87` reports 87 % utilisation for it.
`@FILE` reads the text from a file, again on every call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fairway.errors import UsageError
from fairway.state.node import NodeDevice
from fairway.units.quantity import byte_count

_PART = re.compile(r"(?:(?P<count>\d+)\s*x\s*)?(?P<type>[A-Za-z][A-Za-z0-9.]*)(?:-(?P<memory>\d+(?:GB|GiB|Gi|G)))?")
_MEMORY = {
    "T4": 16, "L4": 24, "L40": 48, "L40S": 48, "A10": 24, "A10G": 24, "A40": 48, "A100": 40, "H100": 80, "H200": 141, "B200": 192,
    "V100": 16, "P100": 16, "RTX3090": 24, "RTX4090": 24,
}  # fmt: skip
"""Memory in GB by type, for entries that do not give it."""
_MOST = 1024
_SICK = re.compile(r"sick:(?P<index>\d+)")
_BUSY = re.compile(r"busy:(?P<index>\d+):(?P<percent>\d+)")


class FakeProbe:
    """Devices that exist only in a text.

    Their UUIDs are derived from the pool's name: two homes of one pool see the same devices.
    """

    service = ""

    def __init__(self, text: str, pool: str) -> None:
        self._text = text
        self._pool = pool
        self._devices = parse(self._said(), pool)

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[NodeDevice, ...]:
        """Return the devices. None is ever busy."""
        del is_ours
        if self._text.startswith("@"):
            self._devices = parse(self._said(), self._pool)
        return self._devices

    def driver(self) -> str:
        """Return an empty string: there is no driver."""
        return ""

    def _said(self) -> str:
        return Path(self._text[1:]).read_text() if self._text.startswith("@") else self._text

    def use(self) -> dict[str, float]:
        """Return the utilisation given by the `busy` entries; devices without such an entry are left out."""
        fractions = {int(match["index"]): int(match["percent"]) / 100 for match in _BUSY.finditer(self._said())}
        return {device.uuid: fractions[device.index] for device in self._devices if device.index in fractions}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def parse(text: str, pool: str) -> tuple[NodeDevice, ...]:
    """Parse the text into devices. Raises `UsageError` that names the invalid entry."""
    devices: list[NodeDevice] = []
    sick: set[int] = set()
    for part in (part.strip() for part in text.split(",") if part.strip()):
        broken = _SICK.fullmatch(part)
        if broken is not None:
            sick.add(int(broken["index"]))
            continue
        if _BUSY.fullmatch(part):
            continue
        match = _PART.fullmatch(part)
        if match is None:
            message = f"fake devices: {part!r} is not understood"
            raise UsageError(message, fix="write for example 4xA100-80GB,2xT4")
        count = int(match["count"] or 1)
        if len(devices) + count > _MOST:
            message = f"fake devices: {text!r} asks for more than {_MOST}"
            raise UsageError(message, fix=f"ask for {_MOST} at most")
        memory = byte_count(match["memory"]) if match["memory"] else _MEMORY.get(match["type"].upper(), 16) * 10**9
        for _ in range(count):
            index = len(devices)
            devices.append(NodeDevice(uuid=_uuid(pool, index), index=index, type=match["type"], memory=memory))
    return tuple(replace(device, healthy=device.index not in sick) for device in devices)


def _uuid(pool: str, index: int) -> str:
    raw = hashlib.sha256(f"{pool}\0{index}".encode()).hexdigest()
    return f"FAKE-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:32]}"
