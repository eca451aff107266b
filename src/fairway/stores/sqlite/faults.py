"""What SQLite's errors mean to a person."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from fairway.errors import BugError, FairwayError, UnavailableError

_FULL = {sqlite3.SQLITE_FULL}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CLOSED_TO_US = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


def explain(problem: sqlite3.Error | OSError, path: Path) -> FairwayError:
    """The error to raise instead: what happened to which file, and what to do."""
    code = (getattr(problem, "sqlite_errorcode", None) or 0) & 0xFF
    number = problem.errno if isinstance(problem, OSError) else None
    if code in _FULL or number in (errno.ENOSPC, errno.EDQUOT):
        message = f"{path} cannot be written: the disk is full; nothing was changed"
        return UnavailableError(message, fix=f"free some space under {path.parent}, for example with: fairway delete NAME")
    if code in _DAMAGED:
        message = f"{path} is damaged: {problem}"
        fix = (
            f"stop the daemon and move the file away (mv {path} {path}.damaged), or put a copy back; "
            "logs, checkpoints and outputs lie beside it and are not touched"
        )
        return UnavailableError(message, fix=fix)
    if code in _BUSY:
        message = f"{path} is locked by another process"
        return UnavailableError(message, fix=f"end the program that holds it (fuser {path} names it), then try again")
    if code in _CLOSED_TO_US or number is not None:
        message = f"{path} cannot be opened for writing: {problem}"
        return UnavailableError(message, fix=f"make {path.parent} a folder that you own, or set FAIRWAY_HOME to one")
    if code == sqlite3.SQLITE_IOERR:
        message = f"{path} cannot be read or written: {problem}"
        return UnavailableError(message, fix="look at the disk (dmesg tells of errors), or set FAIRWAY_HOME to another one")
    return BugError(f"the store did not understand itself: {problem}", fix="please report it")
