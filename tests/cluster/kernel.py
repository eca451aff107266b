"""The machine's settings that kubelets change or need changed: they are saved before, and restored after."""

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
"""Minimum of inotify instances: a node uses a dozen, so a few clusters exhaust the usual 128; then no kubelet starts any more."""
_SETTINGS = Path("/proc/sys")
_RECORD = "kernel.json"


def original() -> dict[str, str]:
    """Return the machine's settings; while a cluster runs, those from before it."""
    for folder in folders.known():
        if (folder / _RECORD).exists():
            return json.loads((folder / _RECORD).read_text())
    return {name: (_SETTINGS / name).read_text() for name in CHANGED}


def remember(folder: Path) -> None:
    """Save the settings, and raise the inotify limits for the nodes."""
    (folder / _RECORD).write_text(json.dumps(original()))
    watches = _SETTINGS / "fs/inotify/max_user_instances"
    if int(watches.read_text()) < INSTANCES:
        watches.write_text(str(INSTANCES))


def restore(folder: Path) -> None:
    """Restore the settings, unless another cluster still needs them."""
    record = folder / _RECORD
    others = [known for known in folders.known() if known != folder and (known / _RECORD).exists()]
    if record.exists() and not others:
        for name, value in json.loads(record.read_text()).items():
            (_SETTINGS / name).write_text(value)
