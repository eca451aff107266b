"""Explain SQLite's errors to users."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fairway.app.system import disk_error
from fairway.errors import BugError, FairwayError, UnavailableError

_FULL = {sqlite3.SQLITE_FULL}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CLOSED_TO_US = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


def is_damage(problem: BaseException) -> bool:
    """Return whether the file itself is damaged, as opposed to a problem with the disk, a lock or permissions."""
    return isinstance(problem, sqlite3.Error) and _code(problem) in _DAMAGED


def explain(problem: sqlite3.Error | OSError, path: Path) -> FairwayError:
    """Return the error to raise instead: what happened to which file, and the fix."""
    code = _code(problem)
    number = problem.errno if isinstance(problem, OSError) else None
    if code in _FULL or number in disk_error.FULL:
        what, fix = disk_error.full(str(path), number)
        return UnavailableError(f"{path} cannot be written: {what}; nothing was changed", fix=fix)
    if code in _DAMAGED:
        message = f"{path} is damaged: {problem}"
        fix = "fairway daemon stop, then any command: at its start the daemon restores the newest good backup by itself"
        return UnavailableError(message, fix=fix)
    if code in _BUSY:
        message = f"{path} is locked by another process"
        return UnavailableError(message, fix=f"end the program that holds it (fuser {path} names it), then try again")
    if path.is_dir():
        message = f"{path} cannot be opened: it is a folder"
        return UnavailableError(message, fix=f"move it away (mv {path} {path}.folder); no run is lost")
    if code in _CLOSED_TO_US or number is not None:
        what, fix = disk_error.closed(str(path))
        return UnavailableError(f"{path} cannot be opened for writing: {what} ({problem})", fix=fix)
    if code == sqlite3.SQLITE_IOERR:
        message = f"{path} cannot be read or written: {problem}"
        mount = disk_error.mount_of(str(path))
        return UnavailableError(
            message, fix=f"look at the disk mounted at {mount} (`dmesg` shows errors), or set FAIRWAY_HOME to another one"
        )
    return BugError(f"unexpected database error: {problem}", fix="please report it")


def _code(problem: BaseException) -> int:
    return (getattr(problem, "sqlite_errorcode", None) or 0) & 0xFF
