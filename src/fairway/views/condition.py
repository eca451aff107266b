"""Views of the condition of a home's record: database, backups, recoveries and unreadable parts."""

from __future__ import annotations

import msgspec

from fairway.state.recovery import Condition


class BackupView(msgspec.Struct, frozen=True):
    """A backup of the database."""

    name: str
    time: float
    age: float
    """Age in seconds."""
    size: int
    format: int


class RecoveryView(msgspec.Struct, frozen=True):
    """A recovery of the record, done when it was damaged or incomplete at opening."""

    time: float
    age: float
    cause: str
    message: str
    moved: str
    backup: str
    replayed: int
    rebuilt: tuple[str, ...]
    lost: tuple[str, ...]


class UnreadableView(msgspec.Struct, frozen=True):
    """A record that cannot be decoded."""

    kind: str
    subject: str
    cause: str


class UnknownFolderView(msgspec.Struct, frozen=True):
    """A folder of a run that cannot be loaded."""

    name: str
    path: str
    cause: str
    running: bool


class ConditionView(msgspec.Struct, frozen=True):
    """The condition of the record."""

    path: str
    size: int
    format: int
    backups: tuple[BackupView, ...]
    """The newest first."""
    fault: str
    """Why the last backup, or entry of the journal, could not be written."""
    recoveries: tuple[RecoveryView, ...]
    """The newest first."""
    unreadable: tuple[UnreadableView, ...]
    unknown: tuple[UnknownFolderView, ...]


def condition_view(value: Condition, now: float) -> ConditionView:
    """Return the view of a condition, with ages as of `now`."""
    backups = (
        BackupView(entry.name, entry.time, max(0.0, now - entry.time), entry.size, entry.format) for entry in value.backups
    )
    recoveries = (
        RecoveryView(
            entry.time,
            max(0.0, now - entry.time),
            entry.cause,
            entry.message,
            entry.moved,
            entry.backup,
            entry.replayed,
            entry.rebuilt,
            entry.lost,
        )
        for entry in value.recoveries
    )
    return ConditionView(
        value.path,
        value.size,
        value.format,
        tuple(backups),
        value.backup_fault,
        tuple(recoveries),
        tuple(UnreadableView(entry.kind, entry.subject, entry.cause) for entry in value.unreadable),
        tuple(UnknownFolderView(entry.key, entry.path, entry.cause, entry.running) for entry in value.unknown),
    )
