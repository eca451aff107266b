"""The folders of running clusters: one per cluster, so that leftovers of a crash are found and cleaned up."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cluster.process import birth


def runs() -> Path:
    """Return the folder of all clusters of this user (`FAIRWAY_CLUSTER_RUN`). Its path is short: it holds Unix sockets."""
    given = os.environ.get("FAIRWAY_CLUSTER_RUN")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"fairway-cluster-{os.getuid()}"


def new(*, outlive: bool = False) -> Path:
    """Create a folder for a cluster, owned by this process unless the cluster is to outlive it."""
    runs().mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=runs(), prefix="c"))
    pid = 0 if outlive else os.getpid()
    (folder / "owner").write_text(f"{pid} {birth(pid)}")
    return folder


def known() -> list[Path]:
    """Return the folders of clusters that run or were not stopped properly."""
    return sorted(path.parent for path in runs().glob("c*/owner"))


def staying() -> list[Path]:
    """Return the folders of clusters that were started to outlive their process."""
    return [folder for folder in known() if (folder / "owner").read_text().startswith("0 ")]


def is_owned(folder: Path) -> bool:
    """Whether the process that created the folder is alive, and will stop the cluster."""
    pid, began = map(int, (folder / "owner").read_text().split())
    return pid != 0 and birth(pid) == began
