"""Who a process is: a process id alone is used again, so its start time and the boot go with it. Standard library only."""

from __future__ import annotations

import os
import signal

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_boot: list[str] = []


class Status:
    """What `/proc/PID/stat` says of a process."""

    __slots__ = ("parent", "session", "start", "state")

    def __init__(self, state: str, parent: int, session: int, start: int) -> None:
        self.state = state
        self.parent = parent
        self.session = session
        self.start = start

    @property
    def dead(self) -> bool:
        """Whether only its exit code is left."""
        return self.state in "ZX"


class Identity:
    """A process that cannot be mistaken for another one."""

    __slots__ = ("boot", "pid", "start")

    def __init__(self, pid: int, start: int, boot: str) -> None:
        self.pid = pid
        self.start = start
        """Clock ticks between the boot and the birth of the process."""
        self.boot = boot

    def as_dict(self) -> dict[str, object]:
        """Plain data, for a file."""
        return {"pid": self.pid, "start": self.start, "boot": self.boot}

    @classmethod
    def from_dict(cls, data: object) -> Identity | None:
        """The identity that `as_dict` described; None when the data is something else."""
        if not isinstance(data, dict):
            return None
        pid, start, boot = data.get("pid"), data.get("start"), data.get("boot")
        if not isinstance(pid, int) or not isinstance(start, int) or not isinstance(boot, str):
            return None
        # Process ids outside of this range mean groups, all processes, or an error in system calls.
        return cls(pid, start, boot) if 0 < pid < 1 << 31 and 0 <= start < 1 << 63 else None

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        if self.boot != boot_id():
            return False
        status = read_status(self.pid)
        return status is not None and status.start == self.start and not status.dead

    def send(self, number: signal.Signals) -> bool:
        """Signal this very process and no other; False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The handle pins the process; only then is it compared, so nobody can slip in between.
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True


def boot_id() -> str:
    """Names this boot of the machine; empty where the kernel does not say."""
    if not _boot:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                _boot.append(file.read().strip())
        except OSError:
            return ""
    return _boot[0]


def identify(pid: int) -> Identity | None:
    """The identity of a process that exists now; None when it does not."""
    status = read_status(pid)
    return None if status is None else Identity(pid, status.start, boot_id())


def read_status(pid: int) -> Status | None:
    """What the kernel says of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in brackets may hold anything, also brackets and spaces.
    fields = text[text.rfind(b")") + 2 :].split()
    return Status(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
