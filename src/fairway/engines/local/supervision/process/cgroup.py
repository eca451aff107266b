"""One control group (version 2) per task where this user may create one; elsewhere silently none. Standard library only."""

from __future__ import annotations

import os

_PERIOD = 100_000
"""Period in microseconds over which the processor limit is counted."""


class Cgroup:
    """A control group of the task: limits its processes, counts out-of-memory kills, and kills them all at once."""

    def __init__(self, path: str) -> None:
        self.path = path

    def enter(self) -> None:
        """Move the calling process into the group. Call before exec; processes it starts later are in the group, too."""
        self._write("cgroup.procs", "0")

    def limit(self, memory: int, cpu: float) -> None:
        """Set the limits of the group; 0 means no limit. A missing controller is ignored."""
        if memory:
            self._try("memory.max", str(memory))
            # Otherwise the kernel would swap for minutes before it kills.
            self._try("memory.swap.max", "0")
            self._try("memory.oom.group", "1")
        if cpu:
            self._try("cpu.max", f"{int(cpu * _PERIOD)} {_PERIOD}")

    def killed_for_memory(self) -> bool:
        """Return whether the kernel killed a process of the group for lack of memory."""
        for line in _read(os.path.join(self.path, "memory.events")).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count) > 0
        return False

    def kill(self) -> None:
        """Send SIGKILL to all processes of the group at once."""
        self._try("cgroup.kill", "1")

    def remove(self) -> None:
        """Remove the group, if it is empty."""
        try:
            os.rmdir(self.path)
        except OSError:
            return

    def _write(self, name: str, text: str) -> None:
        descriptor = os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def _try(self, name: str, text: str) -> None:
        try:
            self._write(name, text)
        except OSError:
            return


def make(name: str, root: str | None = None) -> Cgroup | None:
    """Create a group under the nearest usable parent with the memory controller; return None where there is none."""
    parent = find_parent(root)
    if parent is None:
        return None
    path = os.path.join(parent, name)
    try:
        os.mkdir(path, 0o700)
    except OSError:
        return None
    return Cgroup(path)


def find_parent(root: str | None = None) -> str | None:
    """Return the nearest group above this process in which this user may create groups with memory limits."""
    mount = _mount() if root is None else root
    group = _own_path() if root is None else "/"
    while mount is not None and group is not None:
        path = os.path.normpath(mount + group)
        writable = os.access(path, os.W_OK) and os.access(os.path.join(path, "cgroup.procs"), os.W_OK)
        if writable and "memory" in _read(os.path.join(path, "cgroup.subtree_control")).split():
            return path
        if group == "/":
            return None
        group = os.path.dirname(group)
    return None


def _mount() -> str | None:
    """Return where version 2 is mounted."""
    for line in _read("/proc/self/mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            return fields.split()[4]
    return None


def _own_path() -> str | None:
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            return line[3:]
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
