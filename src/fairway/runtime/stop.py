"""Stop a task early: detect stop requests, and request to be queued again."""

from __future__ import annotations

import os
import signal
import struct
import sys
from typing import Any, NoReturn

from fairway.runtime import task_context, task_contract

_FLOCK = "hhqqi"
"""`struct flock` of 64-bit Linux: type, whence, start, length, owner."""

_signalled = False
_polls = False


def should_stop() -> bool:
    """Return whether this task is requested to stop soon: a stop condition holds, a user ran `fairway stop`, or room is needed.

    Cheap enough for every step (one `stat`). Save, then leave the training loop and return normally. The first call informs the
    engine that this program checks for requests. From then on a stop starts with a request, and SIGTERM comes only when all such
    processes of the run have ended, or shortly before the grace period is over. Ranks see the request at slightly different
    steps: if they compute together, let rank 0 call this and broadcast the answer. A SIGTERM from another source counts only
    after `handle_sigterm()`.
    """
    global _polls  # one flag for the process
    _polls = True
    listen()
    return requested()


def handle_sigterm() -> None:
    """Make SIGTERM set `should_stop()` instead of ending the process; the program then has the grace period to stop.

    A stop by Fairway needs no handler. This is for SIGTERM from other sources, such as `kill` or another scheduler. Call it from
    the main thread. A handler that was set before is called as well.
    """
    previous_handler = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: Any) -> None:
        global _signalled  # a signal handler has nowhere else to put it
        _signalled = True
        if callable(previous_handler):
            previous_handler(number, frame)

    signal.signal(signal.SIGTERM, note)


def requeue() -> NoReturn:
    """End this process as "saved, put me back in the queue". This does not count as a failure."""
    sys.exit(task_contract.EXIT_REQUEUE)


def requested() -> bool:
    """Return the same as `should_stop()`, without informing the engine that this program checks for requests."""
    if _signalled:
        return True
    folder = task_context.attempt_dir()
    return folder is not None and os.path.exists(os.path.join(folder, task_contract.STOP_FILE))


def listen() -> None:
    """Inform the engine that this process accepts stop requests and needs time to save. Outside of a job it does nothing."""
    _ear.open()


def saved() -> None:
    """Record that a checkpoint is complete.

    If a stop is requested, a program that never calls `should_stop()` may be stopped now.
    """
    if not _polls and requested():
        _ear.close()


def has_listeners(shared: str) -> bool:
    """Return whether a process of the run with this shared folder listens for stop requests. For engines."""
    import fcntl  # noqa: PLC0415  most programs never need it

    try:
        file = os.open(os.path.join(shared, task_contract.LISTEN_FILE), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # F_GETLK only queries and takes no lock, so it never blocks a process that starts to listen.
        answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        # A file system without locks: the file shows at least that a process listened.
        return True
    finally:
        os.close(file)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


class _ListenerLock:
    """A shared lock on a file of the run, held while this process listens. The kernel releases it when the process ends."""

    def __init__(self) -> None:
        self._file = -1
        self._closed = False

    def open(self) -> None:
        if self._file >= 0 or self._closed:
            return
        folder = task_context.shared_dir()
        if folder is None:
            return
        import fcntl  # noqa: PLC0415  most programs never need it

        try:
            # A record lock belongs to the process, so helper processes that it forks do not hold it.
            self._file = os.open(folder / task_contract.LISTEN_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._file, fcntl.LOCK_SH)
        except OSError:
            # The folder is gone or has no locks: SIGTERM then comes immediately, and the request is still visible.
            self._closed = True

    def close(self) -> None:
        self._closed = True
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


_ear = _ListenerLock()


def _start_afresh() -> None:
    # The lock stays with the parent.
    global _ear, _polls  # the one place that replaces them
    _ear, _polls = _ListenerLock(), False


os.register_at_fork(after_in_child=_start_afresh)
