"""Where clusters lie while they run: one folder each, so that whatever a crash left is found and cleaned."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cluster.process import birth


def runs() -> Path:
    """The folder of all clusters of this user (`FAIRWAY_CLUSTER_RUN`). Short, because sockets lie in it."""
    given = os.environ.get("FAIRWAY_CLUSTER_RUN")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"fairway-cluster-{os.getuid()}"


def new(*, outlive: bool = False) -> Path:
    """A new folder for a cluster, owned by this process unless it is to outlive it."""
    runs().mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=runs(), prefix="c"))
    pid = 0 if outlive else os.getpid()
    (folder / "owner").write_text(f"{pid} {birth(pid)}")
    return folder


def known() -> list[Path]:
    """The folders of clusters that run, or did not end as they should."""
    return sorted(path.parent for path in runs().glob("*/owner"))


def is_owned(folder: Path) -> bool:
    """Whether the process that made it lives, and will end it."""
    pid, began = map(int, (folder / "owner").read_text().split())
    return pid != 0 and birth(pid) == began
