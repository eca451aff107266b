"""Detects whether a task uses or used too much memory, where there is no control group. Standard library only."""

from __future__ import annotations

import os

from fairway.engines.local.supervision.process import descendant

_CHILD_KILLED = b"killed by signal: Killed"
"""The message of a data loader whose worker was killed by the kernel."""


class MemoryWatch:
    """Adds up what a task holds, for a limit that no control group enforces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.seen = 0
        """Bytes held when the limit was exceeded."""
        self.rank: int | None = None
        """The rank that held most of them, if it has a number."""

    def exceeded(self) -> bool:
        """Return whether the descendants of this process hold more than the limit now."""
        pids = descendant.descendants(os.getpid())
        # The cheap sum counts shared pages once per process; the exact one is computed only when that is too large.
        if descendant.resident_bytes(pids) <= self._limit:
            return False
        self.seen = descendant.proportional_bytes(pids)
        if self.seen <= self._limit:
            return False
        self.rank = descendant.largest_rank(pids)
        return True


class OomKillEvidence:
    """The kernel's machine-wide evidence of out-of-memory kills: a counter, and a log where it is readable."""

    def __init__(self) -> None:
        self._before = _count()

    def blames(self, pids: set[int], killed: bool, tail: bytes) -> bool:
        """Return whether one of these processes was killed for memory since this object was created.

        `killed` tells whether one died by a SIGKILL that the supervisor did not send.
        """
        if _count() <= self._before or not (killed or _CHILD_KILLED in tail):
            return False
        log = _kernel_log()
        return log is None or any(b"Killed process %d " % pid in log for pid in pids) or _CHILD_KILLED in tail


def _count() -> int:
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        return 0
    return 0


def _kernel_log() -> bytes | None:
    """Return the kernel's messages; None where this user may not read them."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    messages: list[bytes] = []
    try:
        while True:
            try:
                messages.append(os.read(descriptor, 8192))
            except BrokenPipeError:
                # The oldest messages were overwritten meanwhile; continue with the next.
                continue
    except BlockingIOError:
        return b"".join(messages)
    except OSError:
        return None
    finally:
        os.close(descriptor)
