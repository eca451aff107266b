"""Finds the processes of a task, even detached ones, and ends them. Standard library only."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator

from fairway.engines.local.supervision.process.process_identity import ProcessIdentity, ProcessStatus, boot_id, read_status

_PAUSE = 0.01
_LONGEST_RANK = 10
"""Number of digits; a longer number is no rank."""
_WORLDS = (
    ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
    ("PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_RANK", "PMI_SIZE"),
)
"""Variables that launchers set for the ranks they start: an identifying one, the rank, and the number of ranks."""


def descendants(root: int) -> list[int]:
    """Return all descendants of a process, zombies too; parents before their children."""
    pids: list[int] = []
    queue = [root]
    while queue:
        pid = queue.pop()
        children = _children(pid)
        if children is None:
            return _descendants_by_scan(root)
        pids += children
        queue += children
    return pids


def kill_descendants(root: int) -> None:
    """Send SIGKILL to every descendant alive now. Processes created meanwhile are left to the next call."""
    for pid in descendants(root):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def end_leftovers(folder: str, known: Iterable[ProcessIdentity], deadline: float) -> bool:
    """Kill the remaining processes of a task whose supervisor is dead; return whether none is left by the monotonic deadline.

    A process belongs to the task when it is one of the known ones, carries the attempt's folder in its environment, shares a
    session with such a process, or descends from one.
    """
    known = list(known)
    while True:
        leftovers = find_leftovers(folder, known)
        for identity in leftovers:
            identity.send(signal.SIGKILL)
        if not leftovers:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)


def find_leftovers(folder: str, known: Iterable[ProcessIdentity]) -> list[ProcessIdentity]:
    """Return the living processes of a task whose supervisor is dead."""
    boot = boot_id()
    mark = f"FAIRWAY_ATTEMPT_DIR={folder}".encode()
    table = {pid: status for pid, status in _processes() if not status.dead}
    ours = {identity.pid for identity in known if identity.alive}
    ours |= {pid for pid in table if pid not in ours and mark in environment(pid)}
    sessions = {table[pid].session for pid in ours if pid in table and table[pid].session in ours}
    grown = True
    while grown:
        more = {pid for pid, status in table.items() if status.parent in ours or status.session in sessions}
        grown = not more <= ours
        ours |= more
    ours.discard(os.getpid())
    return [ProcessIdentity(pid, table[pid].start, boot) for pid in sorted(ours) if pid in table]


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory that these processes hold. Shared pages count once per process."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                total += int(file.read().split()[1]) * page
        except (OSError, IndexError):
            continue
    return total


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the memory that these processes hold, shared pages divided among them. More expensive than `resident_bytes`."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        except OSError:
            continue
    return total


def largest_rank(pids: Iterable[int]) -> int | None:
    """Return the rank of the process that holds most memory; None when it has no rank."""
    pid = max(pids, key=lambda candidate: resident_bytes([candidate]), default=0)
    env = dict(entry.decode(errors="replace").partition("=")[::2] for entry in environment(pid))
    # A launcher inside the task numbers its ranks itself, beside the numbers that the task was given.
    rank_text = next((env[rank] for sign, rank, _ in reversed(_WORLDS) if sign in env and rank in env), env.get("RANK", ""))
    return int(rank_text) if rank_text.isdecimal() and len(rank_text) < _LONGEST_RANK else None


class LauncherWorldWatch:
    """Detects the world that a launcher inside the task formed, from the environments of the ranks that it started.

    A process with the variables that the task was given is no rank of such a launcher. Of several worlds the largest counts: a
    script may train with all ranks and evaluate with one.
    """

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self.size = 0
        """Number of ranks of the world; 0 while none has been detected."""
        self.leads = False
        """Whether rank 0 of that world was among the processes of this task."""

    def look(self, pids: Iterable[int]) -> None:
        """Examine these processes."""
        for pid in pids:
            env = dict(entry.decode(errors="replace").partition("=")[::2] for entry in environment(pid))
            for sign, rank, size in _WORLDS:
                if sign in env and env[sign] != self._given.get(sign) and env.get(size, "").isdecimal():
                    self._see(int(env[size]), env.get(rank) == "0")

    def _see(self, size: int, leads: bool) -> None:
        if size > self.size:
            self.size, self.leads = size, leads
        elif size == self.size:
            self.leads = self.leads or leads


def _children(pid: int) -> list[int] | None:
    """Return the children of a process; None when the kernel does not list them."""
    folder = f"/proc/{pid}/task"
    children: list[int] = []
    try:
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:
        # The process ended meanwhile, or the kernel was built without this file.
        return None if os.path.exists(f"/proc/{pid}") else children
    return children


def _descendants_by_scan(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for pid, status in _processes():
        parents.setdefault(status.parent, []).append(pid)
    pids: list[int] = []
    queue = [root]
    while queue:
        children = parents.get(queue.pop(), [])
        pids += children
        queue += children
    return pids


def _processes() -> Iterator[tuple[int, ProcessStatus]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = read_status(int(name))
            if status is not None:
                yield int(name), status


def environment(pid: int) -> list[bytes]:
    """Return the variables with which a process was started, as `NAME=value`; none when they cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
