"""Probes, which find the accelerators of this machine. One module per vendor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fairway.devices.fake_probe import FakeProbe
from fairway.devices.nvidia_probe import NvidiaProbe
from fairway.state.node import NodeDevice


class DeviceProbe(Protocol):
    """Reads the devices of this machine.

    Guarantees:
    1. `devices` never raises: an unreadable device is reported as not healthy, a missing driver as no devices.
    2. UUIDs and order are the same on every call.
    3. A call takes milliseconds at most.
    """

    service: str
    """The program that lets processes share a device with limits for each; empty if there is none."""

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[NodeDevice, ...]:
        """Return the devices. A device is busy if a process computes on it for which `is_ours` returns False."""
        ...

    def driver(self) -> str:
        """Return the driver's version; empty if there is no driver or it does not report one."""
        ...

    def use(self) -> dict[str, float]:
        """Return the fraction of the last sampling period in which each device computed, by UUID.

        Devices that do not report it are left out.
        """
        ...

    def close(self) -> None:
        """Release the driver."""
        ...


class EmptyDeviceProbe:
    """The probe of a machine without accelerators."""

    service = ""

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[NodeDevice, ...]:
        """Return no devices."""
        del is_ours
        return ()

    def driver(self) -> str:
        """Return an empty string: there is no driver."""
        return ""

    def use(self) -> dict[str, float]:
        """Return an empty mapping: there are no devices."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def pick_probe(fake: str, machine_folder: Path) -> DeviceProbe:
    """Return the probe for this machine: fake devices if `fake` is set (`none`: no devices), else what is detected.

    Homes with the same machine folder also share its fake devices and compete for them.
    """
    if fake.strip() == "none":
        return EmptyDeviceProbe()
    if fake.strip():
        return FakeProbe(fake, pool=str(machine_folder))
    return NvidiaProbe.open() or EmptyDeviceProbe()
