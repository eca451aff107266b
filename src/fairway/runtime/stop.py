"""Ending early: being asked to, and saying that there is more to do."""

from __future__ import annotations

import os
import signal
import struct
import sys
from typing import Any, NoReturn

from fairway.runtime import context, contract

_FLOCK = "hhqqi"
"""`struct flock` of Linux on 64 bits: type, whence, start, length, owner."""

_signalled = False
_polls = False


def should_stop() -> bool:
    """Whether this task is asked to end soon: a stop condition holds, `fairway stop` was typed, or room is needed.

    Cheap enough for every step (one `stat`). Save, then leave the training loop and return normally.
    The first call tells the engine that this program asks: from then on a stop is a request first, and SIGTERM comes only
    when all processes of the run that ask have ended, or shortly before the grace period is over.
    Ranks see it at slightly different steps: where they compute together, let rank 0 ask and broadcast the answer.
    A SIGTERM that comes from elsewhere counts only after `handle_sigterm()`.
    """
    global _polls  # one flag for the process
    _polls = True
    listen()
    return requested()


def handle_sigterm() -> None:
    """From now on SIGTERM does not end the process but makes `should_stop()` true; the grace period is then yours.

    A stop by Fairway needs no handler. This is for SIGTERM from elsewhere, such as `kill` or another scheduler.
    Call it from the main thread. A handler that was set before is called as well.
    """
    before = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: Any) -> None:
        global _signalled  # a signal handler has nowhere else to put it
        _signalled = True
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, note)


def requeue() -> NoReturn:
    """End this process as "saved, put me back in the queue". It does not count as a failure."""
    sys.exit(contract.EXIT_REQUEUE)


def requested() -> bool:
    """The same answer as `should_stop()`, without telling the engine that this program asks."""
    if _signalled:
        return True
    folder = context.attempt_dir()
    return folder is not None and os.path.exists(os.path.join(folder, contract.STOP_FILE))


def listen() -> None:
    """Tell the engine that this process takes a request to stop and needs time to save. Outside of a job it does nothing."""
    _ear.open()


def saved() -> None:
    """A checkpoint is finished. A program that never asks `should_stop()` may be ended now, where the end is asked for."""
    if not _polls and requested():
        _ear.close()


def has_listeners(shared: str) -> bool:
    """Whether a process of the run with this shared folder listens for a request to stop. For engines."""
    import fcntl  # noqa: PLC0415  most programs never need it

    try:
        file = os.open(os.path.join(shared, contract.LISTEN_FILE), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # F_GETLK asks and takes nothing, so that it never holds up a process that begins to listen.
        answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        # A file system without locks: the file says at least that one listened.
        return True
    finally:
        os.close(file)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


class _Ear:
    """A shared lock on a file of the run, held while this process listens: the kernel lets go of it when the process ends."""

    def __init__(self) -> None:
        self._file = -1
        self._closed = False

    def open(self) -> None:
        if self._file >= 0 or self._closed:
            return
        folder = context.shared_dir()
        if folder is None:
            return
        import fcntl  # noqa: PLC0415  most programs never need it

        try:
            # A record lock belongs to the process: helpers that it forks do not listen in its place.
            self._file = os.open(folder / contract.LISTEN_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._file, fcntl.LOCK_SH)
        except OSError:
            # The folder is gone or has no locks: SIGTERM comes at once then, and the request is seen all the same.
            self._closed = True

    def close(self) -> None:
        self._closed = True
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


_ear = _Ear()


def _start_afresh() -> None:
    # The lock stays with the parent.
    global _ear, _polls  # the one place that replaces them
    _ear, _polls = _Ear(), False


os.register_at_fork(after_in_child=_start_afresh)
