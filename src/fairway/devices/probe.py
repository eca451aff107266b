"""Probes: what accelerators this machine has. One file a vendor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fairway.devices.fake import FakeProbe
from fairway.devices.nvidia import NvidiaProbe
from fairway.state.node import Device


class Probe(Protocol):
    """Looks at the devices of this machine.

    Promises:
    1. `devices` never raises: a device that cannot be read is reported as not healthy, a driver that is not there as no devices.
    2. UUIDs and the order are the same at every call.
    3. It costs milliseconds at most.
    """

    service: str
    """The program through which several processes share a device within bounds; empty when there is none."""

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[Device, ...]:
        """The devices now. A device is busy with a process that computes on it and that `is_ours` does not know."""
        ...

    def driver(self) -> str:
        """The version of the driver; empty when there is none, or when it does not say."""
        ...

    def use(self) -> dict[str, float]:
        """The part of the last moment in which each device computed, by UUID; those that do not say are left out."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


class NoProbe:
    """A machine without accelerators."""

    service = ""

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[Device, ...]:
        """None."""
        del is_ours
        return ()

    def driver(self) -> str:
        """None."""
        return ""

    def use(self) -> dict[str, float]:
        """None."""
        return {}

    def close(self) -> None:
        """Nothing to let go of."""


def pick_probe(fake: str, machine_folder: Path) -> Probe:
    """The probe for this machine: pretended devices where a text asks for them (`none` for none at all), else what is found.

    Homes that share a machine folder share the pretended devices too, and contend for them.
    """
    if fake.strip() == "none":
        return NoProbe()
    if fake.strip():
        return FakeProbe(fake, pool=str(machine_folder))
    return NvidiaProbe.open() or NoProbe()
