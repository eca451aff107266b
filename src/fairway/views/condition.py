"""How the record of a home is: the database, its backups, what was recovered, and what cannot be read."""

from __future__ import annotations

import msgspec

from fairway.state.recovery import Condition


class BackupView(msgspec.Struct, frozen=True):
    """One backup."""

    name: str
    time: float
    age: float
    """Seconds."""
    size: int
    format: int


class RecoveryView(msgspec.Struct, frozen=True):
    """One time that the record was not as it should be when it was opened."""

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
    """A folder of a run that cannot be taken up."""

    name: str
    path: str
    cause: str
    running: bool


class ConditionView(msgspec.Struct, frozen=True):
    """The whole."""

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
    """What is shown of it now."""
    backups = (BackupView(one.name, one.time, max(0.0, now - one.time), one.size, one.format) for one in value.backups)
    recoveries = (
        RecoveryView(
            one.time,
            max(0.0, now - one.time),
            one.cause,
            one.message,
            one.moved,
            one.backup,
            one.replayed,
            one.rebuilt,
            one.lost,
        )
        for one in value.recoveries
    )
    return ConditionView(
        value.path,
        value.size,
        value.format,
        tuple(backups),
        value.backup_fault,
        tuple(recoveries),
        tuple(UnreadableView(one.kind, one.subject, one.cause) for one in value.unreadable),
        tuple(UnknownFolderView(one.key, one.path, one.cause, one.running) for one in value.unknown),
    )
