"""Open the database of a home, whatever the condition of the file.

A file that is missing, empty, damaged, or older than the journal beside it is never used as if it were intact: the newest good
backup replaces it, the journal updates that, and the original file is moved aside and kept.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from fairway.app.system import crash_point
from fairway.state.database_recovery import DatabaseRecovery
from fairway.stores.sqlite import record_repair, schema
from fairway.stores.sqlite.backup import BackupFolder, examine
from fairway.stores.sqlite.error import explain
from fairway.stores.sqlite.journal import StoreJournal
from fairway.stores.sqlite.store import SqliteStore, journal_of

CHECKED = 128 << 20
"""Size in bytes up to which the whole file is checked at every start; a larger one is checked with its next backup."""
SINCE_BACKUP = (
    "metric points since the backup (the files of the runs still hold them)",
    "events since the backup",
    "what the scheduler learnt since the backup",
)
LOST_WITHOUT = ("events", "what the scheduler learnt", "queues, services and tracked records that the journal does not have")

log = logging.getLogger("fairway.recovery")


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """An open store, with the recovery that was necessary."""

    store: SqliteStore
    backups: BackupFolder
    recovery: DatabaseRecovery | None = None

    def settled(self) -> None:
        """Record that the recovery is complete: the next start need not repeat it."""
        _pending(self.store.path).unlink(missing_ok=True)


def open_store(path: Path, now: float, has_runs: Callable[[], bool], *, suspect: bool = False) -> OpenedStore:
    """Open the database of a home. `has_runs`: whether folders of runs exist beside it. `suspect`: check the whole file."""
    backups = BackupFolder(path)
    try:
        recovery = _mended(path, backups, now, has_runs, suspect=suspect) or _replaced_if_too_old(path, backups, now)
    except (sqlite3.Error, OSError) as problem:
        raise explain(problem, path) from problem
    recovery = recovery or _unsettled(path)
    store = SqliteStore(path, before_migration=lambda _found: _before_migration(backups, now))
    try:
        recovery = _caught_up(store, recovery, now)
        repaired = record_repair.mend(store, backups)
    except BaseException:
        store.close()
        raise
    if repaired:
        words = f"{len(repaired)} records could not be read and were taken from the journal or a backup: {', '.join(repaired)}"
        lost = tuple(f"what changed in {subject} since the backup" for subject in repaired)
        recovery = recovery or DatabaseRecovery(now, "unreadable", words)
        recovery = replace(recovery, lost=(*recovery.lost, *lost))
    if recovery is not None:
        _note(path, recovery)
    return OpenedStore(store, backups, recovery)


def _mended(
    path: Path, backups: BackupFolder, now: float, has_runs: Callable[[], bool], *, suspect: bool
) -> DatabaseRecovery | None:
    """Ensure that an intact file is at the path, or none if nothing was ever stored."""
    cause, description = _examined(path, suspect=suspect)
    if not cause:
        return None
    if cause in ("missing", "empty") and not backups.all() and not _has_journal(path) and not has_runs():
        _remove_empty(path)
        return None
    _note(path, DatabaseRecovery(now, cause, f"{path} {description}"))
    moved = _set_aside(path, "damaged" if cause == "damaged" else "empty", now)
    return _restored(backups, DatabaseRecovery(now, cause, f"{path} {description}", moved=moved))


def _examined(path: Path, *, suspect: bool) -> tuple[str, str]:
    """Return a word and a phrase for what is wrong with the file; empty if nothing is."""
    if not path.exists():
        return "missing", "is missing"
    if path.is_dir():
        raise IsADirectoryError(21, "it is a folder", str(path))
    problem, version, _ = examine(path, deep=suspect or path.stat().st_size <= CHECKED)
    if version > schema.VERSION or not problem:
        return "", ""  # A newer format is refused when the file is opened.
    return ("empty", "is empty") if problem == "it is empty" else ("damaged", f"is damaged ({problem})")


def _pending(path: Path) -> Path:
    return path.with_name(f"{path.name}.recovery")


def _note(path: Path, recovery: DatabaseRecovery) -> None:
    """Record that a recovery is in progress: if it is interrupted, the next start continues it."""
    aside = path.with_name(f".{path.name}.recovery")
    aside.write_bytes(msgspec.json.encode(recovery))
    with crash_point.reach("recovery.rename"):
        os.replace(aside, _pending(path))


def _unsettled(path: Path) -> DatabaseRecovery | None:
    """Return a recovery that was interrupted before it was complete."""
    try:
        return msgspec.json.decode(_pending(path).read_bytes(), type=DatabaseRecovery)
    except (OSError, msgspec.MsgspecError):
        return None


def _has_journal(path: Path) -> bool:
    journal = journal_of(path)
    return journal.exists() and journal.stat().st_size > 0


def _remove_empty(path: Path) -> None:
    """Remove an empty file where nothing was ever stored: the new database needs the name."""
    if path.exists() and path.stat().st_size == 0:
        path.unlink()


def _set_aside(path: Path, word: str, now: float) -> str:
    """Move the file with its companion files; nothing is deleted. SQLite would drop the log of a missing file."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    base = path.with_name(f"{path.name}.{word}-{stamp}")
    count = 1
    while any(Path(f"{base}{end}").exists() for end in ("", "-wal", "-shm")):
        count += 1
        base = path.with_name(f"{path.name}.{word}-{stamp}.{count}")
    moved = ""
    for end in ("", "-wal", "-shm"):
        if os.path.exists(f"{path}{end}"):
            with crash_point.reach("recovery.rename"):
                os.rename(f"{path}{end}", f"{base}{end}")
            moved = moved or f"{base}{end}"
    return moved


def _restored(backups: BackupFolder, recovery: DatabaseRecovery) -> DatabaseRecovery:
    for backup in backups.good():
        backups.restore(backup)
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(backup.time))
        words = f"{recovery.message}; the backup of {when} took its place"
        return replace(recovery, message=words, backup=backup.name, backup_time=backup.time, lost=SINCE_BACKUP)
    words = f"{recovery.message}; there is no good backup"
    return replace(recovery, message=words, lost=LOST_WITHOUT)


def _caught_up(store: SqliteStore, recovery: DatabaseRecovery | None, now: float) -> DatabaseRecovery | None:
    """Update the file from the journal."""
    behind = store.journal.last - store.journal_number()
    if behind <= 0:
        return recovery
    entries = store.journal.since(store.journal_number())
    replayed = store.replay(entries)
    words = f"{replayed} changes were taken from {store.journal.path.name}"
    if recovery is None:
        recovery = DatabaseRecovery(now, "older", f"{store.path} is older than the journal beside it", lost=SINCE_BACKUP)
    return replace(recovery, message=f"{recovery.message}; {words}", replayed=replayed)


def _replaced_if_too_old(path: Path, backups: BackupFolder, now: float) -> DatabaseRecovery | None:
    """Restore the newest backup if the file is older than the oldest entry of the journal."""
    if not path.exists() or not _has_journal(path):
        return None
    journal = StoreJournal(journal_of(path))
    try:
        floor = journal.floor
    finally:
        journal.close()
    problem, version, number = examine(path, deep=False)
    if problem or version > schema.VERSION or number >= floor:
        return None
    newest = next(iter(backups.good()), None)
    if newest is None or newest.journal <= number:
        return None
    _note(path, DatabaseRecovery(now, "older", f"{path} is older than the journal beside it"))
    moved = _set_aside(path, "older", now)
    description = f"{path} is older than the journal beside it, and than the oldest backup"
    return _restored(backups, DatabaseRecovery(now, "older", description, moved=moved))


def _before_migration(backups: BackupFolder, now: float) -> None:
    """Keep the unmigrated file as a backup."""
    backup = backups.take(now)
    log.info("the database is of an earlier format; it was copied to %s before the change", backup.name)
