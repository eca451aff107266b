"""The settings of the machine that a kubelet insists on changing: they are written down before, and given back after."""

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
)
_SETTINGS = Path("/proc/sys")
_RECORD = "kernel.json"


def remember(folder: Path) -> None:
    """Write down how the machine is; where another cluster did, what it wrote."""
    others = [known / _RECORD for known in folders.known() if (known / _RECORD).exists()]
    if others:
        (folder / _RECORD).write_text(others[0].read_text())
    else:
        (folder / _RECORD).write_text(json.dumps({name: (_SETTINGS / name).read_text() for name in CHANGED}))


def restore(folder: Path) -> None:
    """Give it back, unless another cluster still needs it so."""
    record = folder / _RECORD
    others = [known for known in folders.known() if known != folder and (known / _RECORD).exists()]
    if record.exists() and not others:
        for name, value in json.loads(record.read_text()).items():
            (_SETTINGS / name).write_text(value)
