"""Recovery of the database: what was wrong, what was done, and what could not be restored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """One record that cannot be decoded. All other records remain usable."""

    kind: str
    """`job`, `task`, `queue`, `service` or `tracked`."""
    key: tuple[str, ...]
    subject: str
    """Subject as in events: `default/mnist-7`, `queue:research`."""
    cause: str


@dataclass(frozen=True, slots=True)
class DatabaseBackup:
    """A copy of the database that was verified when it was made."""

    name: str
    time: float
    size: int
    format: int
    """Version of the schema."""
    journal: int
    """Number of the last journal entry that it contains."""


@dataclass(frozen=True, slots=True)
class UnknownFolder:
    """Folder of a run without a readable record in the database, in a backup, or in the folder itself."""

    key: str
    """`default/mnist-7`."""
    path: str
    cause: str
    """Why the run cannot be restored."""
    running: bool = False
    """Whether one of its tasks is still running."""


@dataclass(frozen=True, slots=True)
class DatabaseRecovery:
    """One recovery: the database was not intact when it was opened."""

    time: float
    cause: str
    """Machine-readable cause: `missing`, `empty`, `damaged`, `older`, `folders`, `unreadable`."""
    message: str
    """The finding in one sentence."""
    moved: str = ""
    """New path of the original file, which was moved away; empty if there was none."""
    backup: str = ""
    """The backup that was restored; empty: none."""
    backup_time: float | None = None
    replayed: int = 0
    """Number of changes replayed from the journal."""
    rebuilt: tuple[str, ...] = ()
    """Runs restored from their folders."""
    lost: tuple[str, ...] = ()
    """Data that could not be restored, in words."""


@dataclass(frozen=True, slots=True)
class DatabaseCondition:
    """Condition of the database of a home; shown by `fairway doctor`."""

    path: str = ""
    """Path of the database."""
    size: int = 0
    format: int = 0
    backups: tuple[DatabaseBackup, ...] = ()
    """Newest first."""
    backup_fault: str = ""
    """Why the last backup or journal entry could not be written; empty if it could."""
    recoveries: tuple[DatabaseRecovery, ...] = ()
    """Newest first."""
    unreadable: tuple[UnreadableRecord, ...] = ()
    unknown: tuple[UnknownFolder, ...] = ()
