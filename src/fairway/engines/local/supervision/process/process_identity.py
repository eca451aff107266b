"""Identifies processes. Process ids are reused, so that start time and boot belong to an identity. Standard library only."""

from __future__ import annotations

import os
import signal

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_boot: list[str] = []


class ProcessStatus:
    """The fields of `/proc/PID/stat` that are used."""

    __slots__ = ("parent", "session", "start", "state")

    def __init__(self, state: str, parent: int, session: int, start: int) -> None:
        self.state = state
        self.parent = parent
        self.session = session
        self.start = start

    @property
    def dead(self) -> bool:
        """Whether the process has ended and only its exit code remains."""
        return self.state in "ZX"


class ProcessIdentity:
    """Identifies a process unambiguously."""

    __slots__ = ("boot", "pid", "start")

    def __init__(self, pid: int, start: int, boot: str) -> None:
        self.pid = pid
        self.start = start
        """Clock ticks between the boot and the start of the process."""
        self.boot = boot

    def as_dict(self) -> dict[str, object]:
        """Return the identity as plain data, for a file."""
        return {"pid": self.pid, "start": self.start, "boot": self.boot}

    @classmethod
    def from_dict(cls, data: object) -> ProcessIdentity | None:
        """Return the identity that `as_dict` described; None for other data."""
        if not isinstance(data, dict):
            return None
        pid, start, boot = data.get("pid"), data.get("start"), data.get("boot")
        if not isinstance(pid, int) or not isinstance(start, int) or not isinstance(boot, str):
            return None
        # Process ids outside this range mean groups, all processes, or an error in system calls.
        return cls(pid, start, boot) if 0 < pid < 1 << 31 and 0 <= start < 1 << 63 else None

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs."""
        if self.boot != boot_id():
            return False
        status = read_status(self.pid)
        return status is not None and status.start == self.start and not status.dead

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to exactly this process; return False when it has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The descriptor pins the process id. Comparing only afterwards excludes that another process has taken the id.
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True


def boot_id() -> str:
    """Return the id of this boot of the machine; empty where the kernel has none."""
    if not _boot:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                _boot.append(file.read().strip())
        except OSError:
            return ""
    return _boot[0]


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process; None when there is no such process."""
    status = read_status(pid)
    return None if status is None else ProcessIdentity(pid, status.start, boot_id())


def read_status(pid: int) -> ProcessStatus | None:
    """Return the status of a process from the kernel; None when the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in brackets may contain anything, including brackets and spaces.
    fields = text[text.rfind(b")") + 2 :].split()
    return ProcessStatus(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
