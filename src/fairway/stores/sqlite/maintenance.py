"""Maintain a database while it is in use: periodic backups, and the handling of damage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from fairway.app.port.port import Clock
from fairway.errors import FairwayError
from fairway.state.database_recovery import DatabaseCondition
from fairway.stores.sqlite import schema
from fairway.stores.sqlite.backup import InterruptedBackupError
from fairway.stores.sqlite.recovery import OpenedStore

EVERY = 3600.0
"""Interval between two backups of a database that changes, in seconds."""
LOOK = 30.0
"""Interval at which the size of the journal and the next backup are checked, in seconds."""
AGAIN = 300.0
"""Delay before a failed backup is retried, in seconds."""
SUSPECT = "fairway.db.suspect"
"""A file marking that the database was found damaged while in use: the next start checks all of it."""

log = logging.getLogger("fairway.store")


class StoreMaintenance:
    """The maintenance of one store."""

    def __init__(self, opened: OpenedStore, clock: Clock) -> None:
        self._store = opened.store
        self._backups = opened.backups
        self._clock = clock
        self._closing = asyncio.Event()
        self._due = float("-inf")
        self._number = -1
        self.fault = ""
        """Why the last backup failed; empty if it succeeded."""
        self.damage = ""
        """What is wrong with the file, once damage is detected."""
        self.restart: Callable[[], None] = lambda: None
        """Called once when the file is damaged: everything that uses it must end, and reopen it."""
        opened.store.damaged = self._damaged

    async def run(self) -> None:
        """Make backups until closed: one at once, then hourly if anything changed."""
        while not self._closing.is_set():
            if self._clock.now() >= self._due or self._store.journal.large:
                await self._back_up()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._closing.wait()

    def close(self) -> None:
        """Stop, abandoning a backup in progress."""
        self._backups.stop()
        self._closing.set()

    def condition(self) -> DatabaseCondition:
        """Return the condition of the database and its backups."""
        size = self._store.path.stat().st_size if self._store.path.exists() else 0
        fault = self.damage or self.fault or self._store.journal.fault
        backups = tuple(self._backups.all())
        unreadable = tuple(self._store.unreadable())
        return DatabaseCondition(str(self._store.path), size, schema.VERSION, backups, fault, unreadable=unreadable)

    async def _back_up(self) -> None:
        now, number = self._clock.now(), self._store.change_count()
        self._due = now + EVERY
        if number == self._number:
            return
        try:
            backup = await asyncio.to_thread(self._backups.take, now)
            floor = await asyncio.to_thread(self._backups.floor)
            if floor > self._store.journal.floor or self._store.journal.large:
                self._store.journal.shorten(floor)
        except InterruptedBackupError:
            return
        except (FairwayError, OSError) as error:
            self.fault = error.message if isinstance(error, FairwayError) else str(error)
            self._due = now + AGAIN
            log.warning("the backup failed: %s", self.fault)
            return
        self._number, self.fault = number, ""
        log.info("backup %s, %d bytes", backup.name, backup.size)

    def _damaged(self, cause: str) -> None:
        if self.damage:
            return
        self.damage = f"{self._store.path} is damaged: {cause}"
        log.error("%s; it is opened again, with the newest good backup", self.damage)
        with contextlib.suppress(OSError):
            self._store.path.with_name(SUSPECT).touch(mode=0o600)
        self.restart()


def is_suspect(home: Path) -> bool:
    """Return whether the database of a home was found damaged while in use."""
    return (home / SUSPECT).exists()


def clear_suspicion(home: Path) -> None:
    """Remove the mark after the database was checked or replaced."""
    (home / SUSPECT).unlink(missing_ok=True)
