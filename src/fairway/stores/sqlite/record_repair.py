"""Repair records that cannot be decoded, from the journal and from backups."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator

from fairway.app.port.port import JobFilter
from fairway.state.database_recovery import UnreadableRecord
from fairway.state.mlflow_record import KINDS
from fairway.stores.sqlite import journal
from fairway.stores.sqlite.backup import BackupFolder
from fairway.stores.sqlite.journal import JournalEntry
from fairway.stores.sqlite.store import SqliteStore

_SELECT = {
    journal.JOB: "SELECT body FROM job WHERE namespace = ? AND name = ?",
    journal.QUEUE: "SELECT body FROM queue WHERE name = ?",
    journal.SERVICE: "SELECT body FROM service WHERE namespace = ? AND name = ?",
    journal.TRACKED: "SELECT body FROM tracked WHERE kind = ? AND namespace = ? AND name = ?",
}
_EVERY = 500
"""Number of runs that are decoded when all kinds of records are checked."""
log = logging.getLogger("fairway.recovery")


def mend(store: SqliteStore, backups: BackupFolder) -> list[str]:
    """Restore records that cannot be decoded where possible; return the subjects that can be read again."""
    _read_all(store)
    mended = []
    for bad in store.unreadable():
        if any(store.replay([entry]) for entry in _candidates(store, backups, bad)):
            mended.append(bad.subject)
    if mended:
        _read_all(store)
    return mended


def _read_all(store: SqliteStore) -> None:
    """Decode what is decoded at a start anyway. Finished runs are decoded when they are shown."""
    store.active_jobs()
    store.queues()
    store.services()
    store.list_jobs(JobFilter(limit=_EVERY))
    for kind in KINDS:
        store.all_tracked(kind, "default")


def _candidates(store: SqliteStore, backups: BackupFolder, bad: UnreadableRecord) -> Iterator[JournalEntry]:
    """Yield earlier bytes of the record, newest first."""
    if bad.kind not in _SELECT:
        return
    entries = [entry for entry in store.journal.since(0) if (entry.kind, entry.key) == (bad.kind, bad.key)]
    yield from (entry for entry in reversed(entries) if not entry.deleted)
    for backup in backups.all():
        try:
            connection = sqlite3.connect(f"file:{backups.folder / backup.name}?mode=ro&immutable=1", uri=True)
            try:
                row = connection.execute(_SELECT[bad.kind], bad.key).fetchone()
            finally:
                connection.close()
        except sqlite3.Error as problem:
            log.warning("the backup %s cannot be read: %s", backup.name, problem)
            continue
        if row is not None:
            yield JournalEntry(0, bad.kind, bad.key, bytes(row[0]))
