"""NVIDIA devices, through the driver's own library (NVML)."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairway.state.node import Device

_NOISE = re.compile(r"\b(NVIDIA|Tesla|GeForce|Quadro|GPU)\b")
_FORM = re.compile(r"[-\s]*\b(SXM\d?|PCIe|PCIE|HBM\d\w*|NVL|MIG|\d+GB|\d+G|\d+GiB)\b.*")


def _has_driver() -> bool:
    """Whether the driver's library can be loaded."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class NvidiaProbe:
    """Asks NVML. Every answer is optional there: what a device does not support is left out, never guessed."""

    service = "nvidia-cuda-mps-control"

    def __init__(self, library: Any) -> None:
        # The library has no types of its own worth relying on, and is replaced by a recorded one in tests.
        self._library = library
        self._known: dict[int, Device] = {}
        self._islands: dict[int, str] | None = None

    @classmethod
    def open(cls, library: Any = None) -> NvidiaProbe | None:
        """None on a machine without the driver."""
        if library is None and not _has_driver():
            # The module is large; where it would find nothing it is not loaded.
            return None
        try:
            library = library or importlib.import_module("pynvml")
            library.nvmlInit()
        except ImportError:
            return None
        except library.NVMLError:
            return None
        return cls(library)

    def close(self) -> None:
        """Let go of the driver."""
        self._ask(self._library.nvmlShutdown)

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[Device, ...]:
        """The devices now."""
        count = self._ask(self._library.nvmlDeviceGetCount) or 0
        # A device that fell off the bus is still one that tasks may have been given: it stays, as not healthy.
        if self._islands is None:
            self._islands = self._find_islands(count)
        indexes = range(max(count, 1 + max(self._known, default=-1)))
        return tuple(device for index in indexes if (device := self._device(index, is_ours)) is not None)

    def driver(self) -> str:
        """Its version."""
        return _text(self._ask(self._library.nvmlSystemGetDriverVersion))

    def use(self) -> dict[str, float]:
        """The part of the last moment in which each known device computed."""
        found = {}
        for index, device in tuple(self._known.items()):
            handle = self._ask(self._library.nvmlDeviceGetHandleByIndex, index)
            rates = self._ask(self._library.nvmlDeviceGetUtilizationRates, handle) if handle is not None else None
            if rates is not None:
                found[device.uuid] = rates.gpu / 100
        return found

    def _device(self, index: int, is_ours: Callable[[int], bool]) -> Device | None:
        handle = self._ask(self._library.nvmlDeviceGetHandleByIndex, index)
        known = self._known.get(index)
        if handle is not None and known is None:
            known = self._describe(handle, index)
        if known is None:
            return None
        self._known[index] = known
        if handle is None:
            return replace(known, healthy=False)
        return replace(known, healthy=self._healthy(handle), busy_with=self._busy_with(handle, is_ours))

    def _describe(self, handle: Any, index: int) -> Device | None:
        uuid = _text(self._ask(self._library.nvmlDeviceGetUUID, handle))
        if not uuid:
            return None
        name = _text(self._ask(self._library.nvmlDeviceGetName, handle))
        memory = self._ask(self._library.nvmlDeviceGetMemoryInfo, handle)
        return Device(
            uuid=uuid,
            index=index,
            type=short_type(name),
            memory=int(memory.total) if memory else 0,
            numa=self._numa(handle),
            island=(self._islands or {}).get(index, ""),
        )

    def _numa(self, handle: Any) -> int:
        """The NUMA node of the slot that the device sits in; -1 where the machine does not say."""
        place = self._ask(self._library.nvmlDeviceGetPciInfo, handle)
        # The driver writes the domain with eight digits, the kernel with four.
        name = _text(place.busId).lower()[-12:] if place is not None else ""
        try:
            return int(Path(f"/sys/bus/pci/devices/{name}/numa_node").read_text()) if name else -1
        except (OSError, ValueError):
            return -1

    def _find_islands(self, count: int) -> dict[int, str]:
        """Devices that reach each other over NVLink, directly or through others; those with no such neighbour are left out."""
        handles = [self._ask(self._library.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        island = list(range(count))
        for first, second in itertools.combinations(range(count), 2):
            if island[first] != island[second] and self._linked(handles[first], handles[second]):
                joined, into = island[second], island[first]
                island = [into if each == joined else each for each in island]
        return {index: f"nvlink-{island[index]}" for index in range(count) if island.count(island[index]) > 1}

    def _linked(self, first: Any, second: Any) -> bool:
        library = self._library
        if first is None or second is None:
            return False
        answer = self._ask(library.nvmlDeviceGetP2PStatus, first, second, library.NVML_P2P_CAPS_INDEX_NVLINK)
        return bool(answer == library.NVML_P2P_STATUS_OK)

    def _healthy(self, handle: Any) -> bool:
        """False on what makes results wrong or work die: uncorrected errors, and memory that could not be repaired."""
        library = self._library
        uncorrected = self._ask(
            library.nvmlDeviceGetTotalEccErrors, handle, library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, library.NVML_VOLATILE_ECC
        )
        if uncorrected:
            return False
        rows = self._ask(library.nvmlDeviceGetRemappedRows, handle)
        # (corrected, uncorrected, a reset is pending, a repair has failed)
        return not (rows and rows[3])

    def _busy_with(self, handle: Any, is_ours: Callable[[int], bool]) -> str:
        processes = self._ask(self._library.nvmlDeviceGetComputeRunningProcesses, handle) or []
        users = sorted(int(process.pid) for process in processes)
        foreign = [pid for pid in users if not is_ours(pid) and not _is_server(pid)]
        if not foreign:
            return ""
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        return f"pid {foreign[0]} ({_program(foreign[0])}){more}"

    def _ask(self, question: Callable[..., Any], *words: Any) -> Any:
        """The answer; None where the device does not support the question or is gone."""
        try:
            return question(*words)
        except self._library.NVMLError:
            return None


def short_type(name: str) -> str:
    """What people call it: `NVIDIA A100-SXM4-80GB` is an A100."""
    return _FORM.sub("", _NOISE.sub("", name)).strip().replace(" ", "") or name


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _is_server(pid: int) -> bool:
    """Whether it is the server that shares a device between processes, which computes for others."""
    return _program(pid) == "nvidia-cuda-mps"


def _program(pid: int) -> str:
    """The name of a process; unknown for one of another container."""
    try:
        # The kernel cuts names to 15 characters.
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "unknown" if not os.path.exists(f"/proc/{pid}") else "of another user"
