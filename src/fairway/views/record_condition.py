"""Views of the condition of a home's record: database, backups, recoveries and unreadable parts."""

from __future__ import annotations

import msgspec

from fairway.state.database_recovery import DatabaseCondition


class RecordBackupView(msgspec.Struct, frozen=True):
    """A backup of the database."""

    name: str
    time: float
    age: float
    """Age in seconds."""
    size: int
    format: int


class RecordRecoveryView(msgspec.Struct, frozen=True):
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


class UnreadableRecordView(msgspec.Struct, frozen=True):
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


class RecordConditionView(msgspec.Struct, frozen=True):
    """The condition of the record."""

    path: str
    size: int
    format: int
    backups: tuple[RecordBackupView, ...]
    """The newest first."""
    fault: str
    """Why the last backup, or entry of the journal, could not be written."""
    recoveries: tuple[RecordRecoveryView, ...]
    """The newest first."""
    unreadable: tuple[UnreadableRecordView, ...]
    unknown: tuple[UnknownFolderView, ...]


def condition_view(value: DatabaseCondition, now: float) -> RecordConditionView:
    """Return the view of a condition, with ages as of `now`."""
    backups = (
        RecordBackupView(entry.name, entry.time, max(0.0, now - entry.time), entry.size, entry.format) for entry in value.backups
    )
    recoveries = (
        RecordRecoveryView(
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
    return RecordConditionView(
        value.path,
        value.size,
        value.format,
        tuple(backups),
        value.backup_fault,
        tuple(recoveries),
        tuple(UnreadableRecordView(entry.kind, entry.subject, entry.cause) for entry in value.unreadable),
        tuple(UnknownFolderView(entry.key, entry.path, entry.cause, entry.running) for entry in value.unknown),
    )
