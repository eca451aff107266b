"""The settings of the machine that kubelets change, or need otherwise: they are written down before, and given back after."""

from __future__ import annotations

import json
from pathlib import Path

from cluster import folders

CHANGED = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "fs/inotify/max_user_instances",
)
INSTANCES = 1024
"""Of inotify, at the least: a node has a dozen, and a few clusters use up the usual 128; then no kubelet starts any more."""
_SETTINGS = Path("/proc/sys")
_RECORD = "kernel.json"


def original() -> dict[str, str]:
    """How the machine is; where a cluster runs, how it was before."""
    for folder in folders.known():
        if (folder / _RECORD).exists():
            return json.loads((folder / _RECORD).read_text())
    return {name: (_SETTINGS / name).read_text() for name in CHANGED}


def remember(folder: Path) -> None:
    """Write it down, and make room for the watches of nodes."""
    (folder / _RECORD).write_text(json.dumps(original()))
    watches = _SETTINGS / "fs/inotify/max_user_instances"
    if int(watches.read_text()) < INSTANCES:
        watches.write_text(str(INSTANCES))


def restore(folder: Path) -> None:
    """Give it back, unless another cluster still needs it so."""
    record = folder / _RECORD
    others = [known for known in folders.known() if known != folder and (known / _RECORD).exists()]
    if record.exists() and not others:
        for name, value in json.loads(record.read_text()).items():
            (_SETTINGS / name).write_text(value)
