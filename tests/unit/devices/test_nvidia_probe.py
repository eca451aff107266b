"""NVIDIA devices from recorded answers of NVML."""
# ruff: noqa: N802  the names are those of the library that this replaces

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairway.devices.nvidia_probe import NvidiaProbe, short_type

GIB = 2**30


class NVMLError(Exception):
    """The exception that pynvml raises for everything: not supported, lost, no permission."""


class Recorded:
    """A replacement for the module `pynvml`, with the recorded answers of an H200 and an older T4."""

    NVMLError = NVMLError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    def __init__(self) -> None:
        self.started = 0
        self.driver = True
        self.boards: list[dict[str, Any]] = [
            {"uuid": b"GPU-h200", "name": "NVIDIA H200", "memory": 150_754_820_096, "ecc": 0, "rows": (0, 0, 0, 0), "pids": []},
            {"uuid": "GPU-t4", "name": b"Tesla T4", "memory": 15 * GIB, "pids": []},
        ]

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("Driver Not Loaded")
        self.started += 1

    def nvmlShutdown(self) -> None:
        self.started -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "1.2.3"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if index >= len(self.boards) or self.boards[index].get("lost"):
            raise NVMLError("GPU is lost")
        return self.boards[index]

    def nvmlDeviceGetUUID(self, board: dict[str, Any]) -> str | bytes:
        return self._of(board, "uuid")

    def nvmlDeviceGetName(self, board: dict[str, Any]) -> str | bytes:
        return self._of(board, "name")

    def nvmlDeviceGetMemoryInfo(self, board: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(total=self._of(board, "memory"))

    def nvmlDeviceGetTotalEccErrors(self, board: dict[str, Any], _kind: int, _counter: int) -> int:
        return int(self._of(board, "ecc"))

    def nvmlDeviceGetRemappedRows(self, board: dict[str, Any]) -> tuple[int, ...]:
        return tuple(self._of(board, "rows"))

    def nvmlDeviceGetComputeRunningProcesses(self, board: dict[str, Any]) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self._of(board, "pids")]

    def nvmlDeviceGetPciInfo(self, board: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(busId=self._of(board, "bus"))

    def nvmlDeviceGetUtilizationRates(self, board: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._of(board, "use"), memory=3)

    def nvmlDeviceGetP2PStatus(self, first: dict[str, Any], second: dict[str, Any], _index: int) -> int:
        return 0 if second["uuid"] in self._of(first, "links") else 1

    def _of(self, board: dict[str, Any], name: str) -> Any:
        if name not in board:
            raise NVMLError("Not Supported")
        return board[name]


@pytest.fixture
def library() -> Recorded:
    return Recorded()


def nobody(_pid: int) -> bool:
    return False


def look(library: Recorded, is_ours: Callable[[int], bool] = nobody) -> list[tuple[str, bool, str]]:
    probe = NvidiaProbe.open(library)
    assert probe is not None
    return [(device.uuid, device.healthy, device.busy_with) for device in probe.devices(is_ours)]


def test_what_a_device_is(library: Recorded) -> None:
    probe = NvidiaProbe.open(library)
    assert probe is not None
    found = probe.devices(nobody)
    assert [(device.uuid, device.index, device.type, device.memory) for device in found] == [
        ("GPU-h200", 0, "H200", 150_754_820_096),
        ("GPU-t4", 1, "T4", 15 * GIB),
    ]


def test_which_driver(library: Recorded) -> None:
    probe = NvidiaProbe.open(library)
    assert probe is not None
    assert probe.driver() == "1.2.3"


def test_how_busy_each_device_is_where_it_says_so(library: Recorded) -> None:
    library.boards[0]["use"] = 87
    probe = NvidiaProbe.open(library)
    assert probe is not None
    assert probe.use() == {}
    probe.devices(nobody)
    assert probe.use() == {"GPU-h200": 0.87}
    library.boards[0]["lost"] = True
    assert probe.use() == {}


def test_a_machine_without_the_driver_has_no_probe(library: Recorded) -> None:
    library.driver = False
    assert NvidiaProbe.open(library) is None


@pytest.mark.parametrize("absent", ["name", "memory", "ecc", "rows", "pids"])
def test_answers_that_are_not_supported_are_left_out(library: Recorded, absent: str) -> None:
    library.boards[0].pop(absent)
    assert look(library)[0] == ("GPU-h200", True, "")


def test_a_device_that_cannot_say_who_it_is_is_none(library: Recorded) -> None:
    library.boards[0].pop("uuid")
    assert [uuid for uuid, _, _ in look(library)] == ["GPU-t4"]


def test_errors_of_its_memory_make_a_device_sick(library: Recorded) -> None:
    library.boards[0]["ecc"] = 2
    assert [healthy for _, healthy, _ in look(library)] == [False, True]
    library.boards[0] |= {"ecc": 0, "rows": (0, 1, 0, 1)}
    assert [healthy for _, healthy, _ in look(library)] == [False, True]


def test_processes_of_others_make_it_busy_and_ours_do_not(library: Recorded) -> None:
    own_name = Path("/proc/self/comm").read_text().strip()
    library.boards[0]["pids"] = [os.getpid(), 2**30]
    assert look(library)[0][2] == f"pid {os.getpid()} ({own_name}) and 1 more"
    assert look(library, lambda pid: pid == os.getpid())[0][2] == f"pid {2**30} (unknown)"
    assert look(library, lambda _: True)[0][2] == ""


def test_a_device_that_falls_off_the_bus_stays_as_a_sick_one(library: Recorded) -> None:
    probe = NvidiaProbe.open(library)
    assert probe is not None
    probe.devices(nobody)
    library.boards[0]["lost"] = True
    assert [(device.uuid, device.healthy) for device in probe.devices(nobody)] == [("GPU-h200", False), ("GPU-t4", True)]
    library.boards.pop()
    assert [(device.uuid, device.healthy) for device in probe.devices(nobody)] == [("GPU-h200", False), ("GPU-t4", False)]


def test_the_driver_is_let_go_of(library: Recorded) -> None:
    probe = NvidiaProbe.open(library)
    assert probe is not None
    probe.close()
    assert library.started == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA H200 NVL", "H200"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA RTX A6000", "RTXA6000"),
        ("", ""),
    ],
)
def test_what_people_call_it(name: str, expected: str) -> None:
    assert short_type(name) == expected


def test_devices_that_reach_each_other_over_nvlink_are_one_island(library: Recorded) -> None:
    library.boards = [
        {"uuid": f"GPU-{index}", "name": "NVIDIA A100-SXM4-80GB", "memory": 80 * GIB, "pids": [], "links": links}
        for index, links in enumerate((["GPU-2"], [], ["GPU-3"], [], ["GPU-5"], []))
    ]
    probe = NvidiaProbe.open(library)
    assert probe is not None
    islands = [device.island for device in probe.devices(lambda _: True)]
    assert islands[0] == islands[2] == islands[3] != ""
    assert islands[1] == "", "it has no neighbour"
    assert islands[4] == islands[5] not in ("", islands[0])


def test_the_numa_node_is_that_of_the_slot(library: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read(path: Path) -> str:
        asked.append(str(path))
        return "1\n"

    monkeypatch.setattr(Path, "read_text", read)
    library.boards[0]["bus"] = b"00000000:3B:00.0"
    probe = NvidiaProbe.open(library)
    assert probe is not None
    assert [device.numa for device in probe.devices(lambda _: True)] == [1, -1], "the other does not say where it sits"
    assert asked == ["/sys/bus/pci/devices/0000:3b:00.0/numa_node"]
