"""Ending early: being asked to, and saying that there is more to do."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

from fairway.runtime import context, contract

_signalled = False


def should_stop() -> bool:
    """Whether this task is asked to end soon: a stop condition holds, `fairway stop` was typed, or SIGTERM came.

    Cheap enough for every step (one `stat`). Save, then leave the training loop and return normally.
    Ranks see it at slightly different steps: where they compute together, let rank 0 ask and broadcast the answer.
    SIGTERM counts only after `handle_sigterm()`.
    """
    if _signalled:
        return True
    folder = context.attempt_dir()
    return folder is not None and os.path.exists(os.path.join(folder, contract.STOP_FILE))


def handle_sigterm() -> None:
    """From now on SIGTERM does not end the process but makes `should_stop()` true; the grace period is then yours.

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
