"""The layout of a home, the folder in which the local engine keeps its files, and the check of a home's location.

    jobs/<namespace>/<run>/
        code/  checkpoints/  outputs/<name>/  tensorboard/  shared/
        attempts/<role>-<index>-<attempt>/
            lock  order.json  started.json  exit.json  out-0.log  out-0.index  metrics-0.jsonl  stop  ctl
    trash/      folders to be removed

Folders are 0700 and files 0600, whatever the umask.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairway.app.system import crash_point
from fairway.errors import BugError, RefusedError
from fairway.state.job import JobKey
from fairway.state.task import TaskKey

LOCK = "lock"
ORDER = "order.json"
POKE = "poke"

_ATTEMPT = re.compile(r"(?P<role>.+)-(?P<index>\d+)-(?P<attempt>\d+)")

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "afs", "ceph", "glusterfs", "orangefs",
        "pvfs2", "davfs", "fuse.sshfs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineHome:
    """One home: all files of one local engine."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> EngineHome:
        """Open the home; create it if missing. Refuses a network file system: locks and sockets do not work there."""
        path = Path(os.path.realpath(path))
        kind = file_system_of(path)
        if kind in NETWORK_FILE_SYSTEMS:
            message = f"the home {path} is on a network file system ({kind}), where locks are unreliable"
            fix = f"set FAIRWAY_HOME to a folder on a local disk, such as /var/tmp/fairway-{os.getuid()}"
            raise RefusedError(message, fix=fix)
        make_private(path)
        return cls(path)

    @property
    def name(self) -> str:
        """An identifier of the home on this machine that does not reveal its path."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]

    @property
    def poke(self) -> Path:
        """The socket on which supervisors announce that a task has ended."""
        return self.path / POKE

    def job(self, key: JobKey) -> Path:
        """Return the folder of a run."""
        return Path(f"{self.path}/jobs/{_plain(key.namespace)}/{_plain(key.name)}")

    def make_job(self, key: JobKey) -> Path:
        """Return the folder of a run; create it if missing."""
        folder = self.job(key)
        if not os.path.isdir(folder):
            for parent in (folder.parents[1], folder.parents[0], folder):
                make_private(parent)
        return folder

    def make_shared_parts(self, key: JobKey) -> Path:
        """Create the folder of a run with the parts that its tasks share. Folders of outputs are created when tasks are bound."""
        folder = self.make_job(key)
        for part in ("attempts", "checkpoints", "tensorboard", "shared"):
            make_private(Path(f"{folder}/{part}"))
        return folder

    def make_attempt(self, key: TaskKey) -> bool:
        """Create the folder of an attempt, and its run's if missing. Return whether it is new."""
        folder = self.attempt(key)
        if os.path.isdir(folder):
            return False
        self.make_shared_parts(key.run)
        make_private(folder)
        return True

    def attempt(self, key: TaskKey) -> Path:
        """Return the folder of one attempt of one task."""
        attempt = _plain(f"{key.role}-{key.index}-{key.attempt}")
        return Path(f"{self.path}/jobs/{_plain(key.namespace)}/{_plain(key.job)}/attempts/{attempt}")

    def attempts_of(self, key: JobKey) -> list[TaskKey]:
        """Return every attempt of every task of a run that has a folder."""
        keys = []
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.job(key) / "attempts")):
                match = _ATTEMPT.fullmatch(name)
                if match:
                    keys.append(TaskKey(key.namespace, key.name, match["role"], int(match["index"]), int(match["attempt"])))
        return keys

    def jobs(self) -> list[JobKey]:
        """Return the runs that have a folder."""
        root = self.path / "jobs"
        keys = []
        with contextlib.suppress(FileNotFoundError):
            for namespace in sorted(os.listdir(root)):
                keys += [JobKey(namespace, name) for name in sorted(os.listdir(root / namespace))]
        return keys

    def forget_job(self, key: JobKey) -> None:
        """Remove all files of a run. It disappears in one step; a crash leaves only trash, which the next start removes."""
        folder = self.job(key)
        if folder.is_dir() and not folder.is_symlink():
            trash = make_private(self.path / "trash")
            with crash_point.reach("engine.forget"):
                os.rename(folder, trash / f"{key.namespace}.{key.name}.{os.urandom(6).hex()}")
        self.empty_trash()

    def forget_logs(self, key: JobKey) -> None:
        """Remove the output of a run's tasks, and nothing else."""
        for task in self.attempts_of(key):
            for path in self.attempt(task).glob("out-*"):
                path.unlink(missing_ok=True)

    def empty_trash(self) -> None:
        """Remove the contents of the trash."""
        trash = self.path / "trash"
        if trash.is_dir():
            for entry in os.scandir(trash):
                remove_tree(Path(entry.path))


def make_private(folder: Path) -> Path:
    """Create a folder with mode 0700, and its missing parents."""
    if not os.path.isdir(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(folder, 0o700)
    return folder


def remove_tree(folder: Path) -> None:
    """Remove a folder and its contents, including unreadable ones; symbolic links are not followed."""

    def make_removable(function: Callable[..., object], path: str, _problem: object) -> None:
        parent = os.path.dirname(path)
        for entry in (parent, path):
            if os.path.isdir(entry) and not os.path.islink(entry):
                os.chmod(entry, stat.S_IRWXU)
        if function is os.unlink:
            os.unlink(path)
        elif os.path.lexists(path):
            shutil.rmtree(path, ignore_errors=True)

    if os.path.islink(folder) or not os.path.isdir(folder):
        os.unlink(folder)
        return
    shutil.rmtree(folder, onerror=make_removable)


def file_system_of(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system of a path, existing or not; empty when unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""
    longest, kind = "", ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split()
        if len(parts) < 5 or not rest:
            continue
        point = parts[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
        # A later mount on the same place hides the earlier one.
        if len(point) >= len(longest) and Path(path).is_relative_to(point):
            longest, kind = point, rest.split()[0]
    return kind


def _plain(name: str) -> str:
    """Return the name if it is safe as the name of a folder. Names are validated earlier; this is the last check."""
    if not name or "/" in name or name in (".", "..") or "\0" in name:
        message = f"{name!r} is not a valid folder name"
        raise BugError(message)
    return name
