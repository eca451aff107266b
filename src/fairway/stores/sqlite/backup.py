"""Backups of the database, made while it is in use: copied to a temporary file, checked, synced, and then renamed.

`backups/fairway-20260101T120000.000Z-7.db`: the time of the backup, and the format of the file.
"""

from __future__ import annotations

import calendar
import contextlib
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from fairway.app.system import crash_point
from fairway.errors import UnavailableError
from fairway.state.database_recovery import DatabaseBackup
from fairway.stores.sqlite import schema

FOLDER = "backups"
PAGES = 256
"""Number of pages copied in one step; between two steps other processes can use the disk."""
PAUSE = 0.002
NEWEST, HOURS, DAYS = 3, 6, 7
"""Backups that are kept: the newest, the last one of each recent hour, and the last one of each recent day."""
MOST_BYTES = 2 << 30
"""Maximum size of all backups together, in bytes; the two newest are kept in any case."""
SPARE = 64 << 20
"""Number of bytes that a backup leaves free on the disk."""

_NAME = re.compile(r"fairway-(?P<stamp>[0-9]{8}T[0-9]{6})\.(?P<milli>[0-9]{3})Z-(?P<format>[0-9]+)\.db")
log = logging.getLogger("fairway.store")


class InterruptedBackupError(Exception):
    """The process ends: the copy is abandoned."""


class BackupFolder:
    """The backups of one database."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.folder = database.with_name(FOLDER)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Abandon a copy in progress in another thread."""
        self._stop.set()

    def take(self, now: float) -> DatabaseBackup:
        """Make a backup and remove those that are no longer kept. Other connections may write to the database meanwhile.

        Raises `UnavailableError` if there is no space or the copy is damaged; then nothing is removed.
        """
        self._check_room()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        aside = self.folder / ".making"
        aside.unlink(missing_ok=True)
        try:
            self._copy(aside)
            problem, version, number = examine(aside)
            if problem:
                message = f"the copy of {self._database} is damaged: {problem}"
                raise UnavailableError(message, fix="fairway doctor")
            whole, part = divmod(now, 1)
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole))
            name = f"fairway-{stamp}.{int(part * 1000):03d}Z-{version}.db"
            _sync(aside)
            with crash_point.reach("backup.rename"):
                os.replace(aside, self.folder / name)
            _sync(self.folder)
        finally:
            for leftover in self.folder.glob(".making*"):
                leftover.unlink(missing_ok=True)
        self._rotate(now)
        return DatabaseBackup(name, now, (self.folder / name).stat().st_size, version, number)

    def all(self) -> list[DatabaseBackup]:
        """Return all backups, newest first. They are not opened: `journal` is 0."""
        backups = []
        for path in self.folder.glob("fairway-*.db"):
            match = _NAME.fullmatch(path.name)
            if match:
                time_made = calendar.timegm(time.strptime(match["stamp"], "%Y%m%dT%H%M%S")) + int(match["milli"]) / 1000
                with contextlib.suppress(FileNotFoundError):
                    backups.append(DatabaseBackup(path.name, time_made, path.stat().st_size, int(match["format"]), 0))
        return sorted(backups, key=lambda backup: backup.time, reverse=True)

    def good(self) -> Iterable[DatabaseBackup]:
        """Yield intact backups that this program can read, newest first; each is checked when it is yielded."""
        for backup in self.all():
            problem, version, number = examine(self.folder / backup.name)
            if problem or version > schema.VERSION:
                log.warning("skipping the backup %s: %s", backup.name, problem or f"format {version} is newer")
                continue
            yield DatabaseBackup(backup.name, backup.time, backup.size, version, number)

    def floor(self) -> int:
        """Return the last journal entry that all backups contain: earlier entries are no longer needed."""
        numbers = []
        for backup in self.all():
            try:
                numbers.append(number_of(self.folder / backup.name))
            except sqlite3.Error:
                continue  # It cannot be restored either.
        return min(numbers, default=0)

    def restore(self, backup: DatabaseBackup) -> None:
        """Put a copy of a backup in the place of the missing database."""
        aside = self._database.with_name(f".{self._database.name}.restoring")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with (self.folder / backup.name).open("rb") as source, os.fdopen(descriptor, "wb") as target:
            while piece := source.read(1 << 20):
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
        with crash_point.reach("recovery.rename"):
            os.replace(aside, self._database)
        _sync(self._database.parent)

    def _check_room(self) -> None:
        stats = os.statvfs(self._database.parent)
        free, need = stats.f_bavail * stats.f_frsize, self._database.stat().st_size + SPARE
        if free < need:
            message = f"no backup of {self._database}: {free >> 20} MiB are free, and it needs {need >> 20} MiB"
            raise UnavailableError(message, fix=f"free some space on the disk of {self._database.parent}")

    def _copy(self, aside: Path) -> None:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.close(descriptor)
        source = sqlite3.connect(self._database, isolation_level=None, timeout=5.0)
        target = sqlite3.connect(aside, isolation_level=None)
        try:
            # One read transaction for all steps: otherwise a write in between would restart the copy.
            source.execute("BEGIN")
            source.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            source.backup(target, pages=PAGES, progress=self._step, sleep=PAUSE)
            target.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as problem:
            message = f"{self._database} cannot be copied: {problem}"
            raise UnavailableError(message, fix="fairway doctor") from problem
        finally:
            target.close()
            source.close()

    def _step(self, _status: int, _remaining: int, _total: int) -> None:
        if self._stop.is_set():
            raise InterruptedBackupError
        time.sleep(PAUSE)

    def _rotate(self, now: float) -> None:
        backups = self.all()
        kept = kept_of([backup.time for backup in backups], now)
        room = MOST_BYTES
        for index, backup in enumerate(backups):
            room -= backup.size
            if index >= 2 and (backup.time not in kept or room < 0):
                (self.folder / backup.name).unlink(missing_ok=True)


def kept_of(times: Iterable[float], now: float) -> set[float]:
    """Return which of the backups made at these times are kept."""
    ordered = sorted(times, reverse=True)
    kept = set(ordered[:NEWEST])
    for span, count in ((3600, HOURS), (86400, DAYS)):
        slots: dict[int, float] = {}
        for taken_at in ordered:
            slots.setdefault(int(taken_at // span), taken_at)
        kept |= {taken_at for slot, taken_at in slots.items() if slot > int(now // span) - count}
    return kept


def examine(path: Path, *, deep: bool = True) -> tuple[str, int, int]:
    """Return what is wrong with a database file (empty if nothing), its format, and its last journal entry.

    Raises `sqlite3.OperationalError` and `OSError` for problems with the disk, locks or permissions: those are not damage.
    """
    with path.open("rb") as file:
        head = file.read(16)
    if not head:
        return "it is empty", 0, 0
    if head != b"SQLite format 3\0":
        return "it is not a database", 0, 0
    connection = sqlite3.connect(path, isolation_level=None, timeout=5.0)
    try:
        version = schema.version_of(connection)
        results = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")] if deep else ["ok"]
        if results != ["ok"]:
            return "; ".join(line for text in results for line in text.splitlines()[:3]), version, 0
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'job'").fetchone():
            return "it is empty", version, 0
        return "", version, _number(connection)
    except sqlite3.DatabaseError as problem:
        if isinstance(problem, sqlite3.OperationalError) and not _is_malformed(problem):
            raise
        return str(problem), 0, 0
    finally:
        connection.close()


def number_of(path: Path) -> int:
    """Return the last journal entry of a database."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5.0)
    try:
        return _number(connection)
    finally:
        connection.close()


def _number(connection: sqlite3.Connection) -> int:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'journal'").fetchone():
        return 0
    return int(connection.execute("SELECT last FROM journal").fetchone()[0])


def _is_malformed(problem: sqlite3.OperationalError) -> bool:
    """Return whether the error means damage.

    SQLite reports some damage as a schema error or short read instead of `malformed`.
    """
    code = problem.sqlite_errorcode
    return code & 0xFF == sqlite3.SQLITE_ERROR or code == sqlite3.SQLITE_IOERR_SHORT_READ


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
