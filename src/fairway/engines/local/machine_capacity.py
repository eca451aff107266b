"""Processors and memory of this machine, as far as this process may use them."""

from __future__ import annotations

import os
from pathlib import Path

_UNLIMITED = 1 << 60


def cpu_count(root: Path = Path("/")) -> float:
    """Return the number of usable processors: those of the affinity, limited by the control groups."""
    count = float(len(os.sched_getaffinity(0)))
    for folder in _groups(root, "cpu"):
        limit = _cpu_limit(folder)
        if limit is not None:
            count = min(count, limit)
    return count


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory of the machine, or the limit of this process's control groups."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit() and int(text) < _UNLIMITED:
                total = min(total, int(text))
    return total


def available_bytes(root: Path = Path("/")) -> int:
    """Return the memory available without taking it from other processes; 0 where the kernel does not report it."""
    lines = _read(root / "proc/meminfo").splitlines()
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    for folder in _groups(root, "memory"):
        for most, now in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit, used = _read(folder / most), _read(folder / now)
            if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
                available = min(available, max(0, int(limit) - int(used)))
    return available


def _cpu_limit(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _groups(root: Path, controller: str) -> list[Path]:
    """Return the folders of this process's control groups, from its own up to the root: each could limit it."""
    mounts = _mounts(root, controller)
    folders: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, names, path = line.split(":", 2)
        mount = mounts.get("2" if number == "0" and not names else "1")
        if mount is None or (number != "0" and controller not in names.split(",")):
            continue
        own = Path(path.lstrip("/"))
        folders += [mount / part for part in (own, *own.parents)]
    return folders


def _mounts(root: Path, controller: str) -> dict[str, Path]:
    """Return where control groups of version 1 (for the controller) and 2 are mounted."""
    mounts: dict[str, Path] = {}
    for line in _read(root / "proc/self/mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        parts, kind = fields.split(), rest.split()
        if kind[:1] == ["cgroup2"]:
            mounts["2"] = root / parts[4].lstrip("/")
        elif kind[:1] == ["cgroup"] and controller in kind[-1].split(","):
            mounts["1"] = root / parts[4].lstrip("/")
    return mounts


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
