"""NVIDIA devices, read through the driver's own library (NVML)."""

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

from fairway.state.node import NodeDevice

_NOISE = re.compile(r"\b(NVIDIA|Tesla|GeForce|Quadro|GPU)\b")
_FORM = re.compile(r"[-\s]*\b(SXM\d?|PCIe|PCIE|HBM\d\w*|NVL|MIG|\d+GB|\d+G|\d+GiB)\b.*")


def _has_driver() -> bool:
    """Return whether the driver's library can be loaded."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class NvidiaProbe:
    """Reads devices through NVML. Every value is optional: what a device does not support is left out, never guessed."""

    service = "nvidia-cuda-mps-control"

    def __init__(self, library: Any) -> None:
        # The library has no usable types, and tests replace it with a recorded one.
        self._library = library
        self._known: dict[int, NodeDevice] = {}
        self._islands: dict[int, str] | None = None

    @classmethod
    def open(cls, library: Any = None) -> NvidiaProbe | None:
        """Return a probe, or None on a machine without the driver."""
        if library is None and not _has_driver():
            # The module is large: do not load it where it would find no driver.
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
        """Shut NVML down."""
        self._ask(self._library.nvmlShutdown)

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[NodeDevice, ...]:
        """Return the devices with their current health and the processes that use them."""
        count = self._ask(self._library.nvmlDeviceGetCount) or 0
        # Tasks may hold a device that has fallen off the bus: keep listing it, as not healthy.
        if self._islands is None:
            self._islands = self._find_islands(count)
        indexes = range(max(count, 1 + max(self._known, default=-1)))
        return tuple(device for index in indexes if (device := self._device(index, is_ours)) is not None)

    def driver(self) -> str:
        """Return the driver's version."""
        return _text(self._ask(self._library.nvmlSystemGetDriverVersion))

    def use(self) -> dict[str, float]:
        """Return the fraction of the last sampling period in which each known device computed, by UUID."""
        fractions = {}
        for index, device in tuple(self._known.items()):
            handle = self._ask(self._library.nvmlDeviceGetHandleByIndex, index)
            rates = self._ask(self._library.nvmlDeviceGetUtilizationRates, handle) if handle is not None else None
            if rates is not None:
                fractions[device.uuid] = rates.gpu / 100
        return fractions

    def _device(self, index: int, is_ours: Callable[[int], bool]) -> NodeDevice | None:
        handle = self._ask(self._library.nvmlDeviceGetHandleByIndex, index)
        device = self._known.get(index)
        if handle is not None and device is None:
            device = self._describe(handle, index)
        if device is None:
            return None
        self._known[index] = device
        if handle is None:
            return replace(device, healthy=False)
        return replace(device, healthy=self._healthy(handle), busy_with=self._busy_with(handle, is_ours))

    def _describe(self, handle: Any, index: int) -> NodeDevice | None:
        uuid = _text(self._ask(self._library.nvmlDeviceGetUUID, handle))
        if not uuid:
            return None
        name = _text(self._ask(self._library.nvmlDeviceGetName, handle))
        memory = self._ask(self._library.nvmlDeviceGetMemoryInfo, handle)
        return NodeDevice(
            uuid=uuid,
            index=index,
            type=short_type(name),
            memory=int(memory.total) if memory else 0,
            numa=self._numa(handle),
            island=(self._islands or {}).get(index, ""),
        )

    def _numa(self, handle: Any) -> int:
        """Return the NUMA node of the device's PCI slot; -1 if the machine does not report it."""
        pci = self._ask(self._library.nvmlDeviceGetPciInfo, handle)
        # The driver writes the domain with eight digits, the kernel with four.
        name = _text(pci.busId).lower()[-12:] if pci is not None else ""
        try:
            return int(Path(f"/sys/bus/pci/devices/{name}/numa_node").read_text()) if name else -1
        except (OSError, ValueError):
            return -1

    def _find_islands(self, count: int) -> dict[int, str]:
        """Return the NVLink island of each device that reaches another over NVLink, directly or through others.

        Devices without such a neighbour are left out.
        """
        handles = [self._ask(self._library.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        island = list(range(count))
        for first, second in itertools.combinations(range(count), 2):
            if island[first] != island[second] and self._linked(handles[first], handles[second]):
                joined, into = island[second], island[first]
                island = [into if label == joined else label for label in island]
        return {index: f"nvlink-{island[index]}" for index in range(count) if island.count(island[index]) > 1}

    def _linked(self, first: Any, second: Any) -> bool:
        library = self._library
        if first is None or second is None:
            return False
        answer = self._ask(library.nvmlDeviceGetP2PStatus, first, second, library.NVML_P2P_CAPS_INDEX_NVLINK)
        return bool(answer == library.NVML_P2P_STATUS_OK)

    def _healthy(self, handle: Any) -> bool:
        """Return False for errors that corrupt results or kill work: uncorrected ECC errors, memory that cannot be repaired."""
        library = self._library
        uncorrected = self._ask(
            library.nvmlDeviceGetTotalEccErrors, handle, library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, library.NVML_VOLATILE_ECC
        )
        if uncorrected:
            return False
        rows = self._ask(library.nvmlDeviceGetRemappedRows, handle)
        # The fields: corrected, uncorrected, whether a reset is pending, whether a repair has failed.
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
        """Call an NVML function; return None if the device does not support it or is gone."""
        try:
            return question(*words)
        except self._library.NVMLError:
            return None


def short_type(name: str) -> str:
    """Return the common name: `NVIDIA A100-SXM4-80GB` becomes `A100`."""
    return _FORM.sub("", _NOISE.sub("", name)).strip().replace(" ", "") or name


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _is_server(pid: int) -> bool:
    """Return whether the process is the MPS server, which computes on behalf of other processes."""
    return _program(pid) == "nvidia-cuda-mps"


def _program(pid: int) -> str:
    """Return the name of a process; `unknown` if it is not visible here (it runs in another container)."""
    try:
        # The kernel cuts names to 15 characters.
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "unknown" if not os.path.exists(f"/proc/{pid}") else "of another user"
