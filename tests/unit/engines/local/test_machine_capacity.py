"""The resources of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairway.engines.local.machine_capacity import available_bytes, cpu_count, memory_bytes


def a_machine(root: Path, cgroup: str, mountinfo: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text(mountinfo)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


VERSION_2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
VERSION_1 = """31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def test_without_limits_all_of_the_machine_counts(tmp_path: Path) -> None:
    machine = a_machine(
        tmp_path, "0::/user.slice\n", VERSION_2, {"user.slice/cpu.max": "max 100000", "user.slice/memory.max": "max"}
    )
    assert cpu_count(machine) == len(os.sched_getaffinity(0))
    assert memory_bytes(machine) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize("group", ["box", "box/inner"])
def test_limits_of_any_group_above_count(tmp_path: Path, group: str) -> None:
    files = {
        "box/cpu.max": "50000 100000\n",
        "box/memory.max": f"{1 << 28}\n",
        "box/inner/cpu.max": "max 100000",
        "box/inner/memory.max": "max",
    }
    machine = a_machine(tmp_path, f"0::/{group}\n", VERSION_2, files)
    assert cpu_count(machine) == 0.5
    assert memory_bytes(machine) == 1 << 28


def test_limits_of_version_1_count(tmp_path: Path) -> None:
    files = {
        "cpu/box/cpu.cfs_quota_us": "25000",
        "cpu/box/cpu.cfs_period_us": "100000",
        "memory/box/memory.limit_in_bytes": str(1 << 27),
        "memory/memory.limit_in_bytes": str((1 << 63) - 4096),
    }
    machine = a_machine(tmp_path, "4:memory:/box\n3:cpu,cpuacct:/box\n", VERSION_1, files)
    assert cpu_count(machine) == 0.25
    assert memory_bytes(machine) == 1 << 27


def test_a_machine_that_tells_nothing_is_taken_as_it_is(tmp_path: Path) -> None:
    assert cpu_count(tmp_path) >= 1
    assert memory_bytes(tmp_path) > 1 << 20


def test_what_is_free_is_what_the_machine_and_all_groups_have_left(tmp_path: Path) -> None:
    files = {"box/memory.max": str(8 << 30), "box/memory.current": str(5 << 30)}
    machine = a_machine(tmp_path, "0::/box\n", VERSION_2, files)
    assert available_bytes(machine) == 0
    (machine / "proc/meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n")
    assert available_bytes(machine) == 3 << 30
    (machine / "sys/fs/cgroup/box/memory.max").write_text("max")
    assert available_bytes(machine) == 12 << 30
