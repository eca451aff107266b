"""The control groups of real nodes: each is created before the node's kubelet starts and removed with the node."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def make(name: str) -> None:
    """Create a control group with every controller enabled that the machine has."""
    if _unified():
        folder = _ROOT / name
        folder.mkdir(exist_ok=True)
        wanted = " ".join(f"+{controller}" for controller in (folder / "cgroup.controllers").read_text().split())
        (folder / "cgroup.subtree_control").write_text(wanted)
        return
    for hierarchy in _hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # a new group has no controllers, and takes no process
            if (hierarchy / file).exists():
                (folder / file).write_text((hierarchy / file).read_text())


def remove(name: str) -> None:
    """Remove the group with everything below it; it may hold no process any more."""
    for folder in below(name):
        folder.rmdir()


def below(name: str) -> list[Path]:
    """Return all folders of the group, the deepest first; an empty list when the group does not exist."""
    roots = [_ROOT] if _unified() else _hierarchies()
    return [Path(folder) for root in roots for folder, _, _ in os.walk(root / name, topdown=False)]


def _unified() -> bool:
    return (_ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return sorted({Path(words[1]) for words in mounts if words[2] in ("cgroup", "cgroup2")})
