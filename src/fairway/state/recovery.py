"""What was found wrong with the record, what was done about it, and what could not be brought back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One record that cannot be decoded. Everything else goes on without it."""

    kind: str
    """`job`, `task`, `queue`, `service` or `tracked`."""
    key: tuple[str, ...]
    subject: str
    """As events name it: `default/mnist-7`, `queue:research`."""
    cause: str


@dataclass(frozen=True, slots=True)
class Backup:
    """One copy of the database that was checked when it was made."""

    name: str
    time: float
    size: int
    format: int
    """The schema's version."""
    journal: int
    """The number of the last entry of the journal that it has."""


@dataclass(frozen=True, slots=True)
class UnknownFolder:
    """A folder of a run of which neither the database, nor a backup, nor the folder itself holds a readable record."""

    key: str
    """`default/mnist-7`."""
    path: str
    cause: str
    """Why it cannot be taken up."""
    running: bool = False
    """Whether one of its tasks still runs."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """One time that the record was not as it should be when it was opened."""

    time: float
    cause: str
    """A word for programs: `missing`, `empty`, `damaged`, `older`, `folders`, `unreadable`."""
    message: str
    """What was found, in a sentence."""
    moved: str = ""
    """Where the file that was found lies now; empty when there was none."""
    backup: str = ""
    """The backup that took its place; empty: none did."""
    backup_time: float | None = None
    replayed: int = 0
    """Changes taken from the journal."""
    rebuilt: tuple[str, ...] = ()
    """Runs taken up from their folders."""
    lost: tuple[str, ...] = ()
    """What could not be brought back, in words."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How the record of a home is: what `fairway doctor` shows."""

    path: str = ""
    """The database."""
    size: int = 0
    format: int = 0
    backups: tuple[Backup, ...] = ()
    """The newest first."""
    backup_fault: str = ""
    """Why the last backup or entry of the journal could not be written; empty when it could."""
    recoveries: tuple[Recovery, ...] = ()
    """The newest first."""
    unreadable: tuple[Unreadable, ...] = ()
    unknown: tuple[UnknownFolder, ...] = ()
