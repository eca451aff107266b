"""Convert commits to entries of the journal, and entries back to changes."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from fairway.app.port.port import ChangeSet
from fairway.state.job import JobKey, JobState
from fairway.state.mlflow_record import KINDS
from fairway.state.service import ServiceKey
from fairway.stores.sqlite import codec, journal
from fairway.stores.sqlite.journal import JournalEntry, Note
from fairway.stores.sqlite.row_decoder import BAD

_MOST = 20_000
log = logging.getLogger("fairway.store")


class JournaledRuns:
    """Tracks what the journal has recorded of each run.

    Progress is not recorded: metrics and checkpoints are in the run's folder.
    """

    def __init__(self) -> None:
        self._known: dict[JobKey, tuple[object, ...]] = {}

    def is_news(self, job: JobState) -> bool:
        """Return whether this value of the run must be recorded in the journal."""
        value = (job.phase, job.attempt, job.intent, job.ending, job.deleting, job.restarts, job.logs_gone, id(job.spec))
        if self._known.get(job.key) == value:
            return False
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[job.key] = value
        return True

    def forget(self, key: JobKey) -> None:
        """Forget a deleted run."""
        self._known.pop(key, None)


def number(namespace: str, series: str, last: int) -> Note:
    """Return the note of an allocated run number."""
    return journal.NUMBER, (namespace, series), msgspec.msgpack.encode(last)


def take(put: Callable[[ChangeSet], None], entry: JournalEntry) -> bool:
    """Replay one entry. False for an entry that cannot be decoded; it is skipped."""
    try:
        changes = _changes(entry)
    except BAD as problem:
        log.warning("an entry of the journal about %s %s cannot be read: %s", entry.kind, "/".join(entry.key), problem)
        return False
    put(changes)
    return True


def number_of(entry: JournalEntry) -> int:
    """Return the run number of a note made by `number`."""
    return msgspec.msgpack.decode(entry.body or b"\0", type=int)


def _changes(entry: JournalEntry) -> ChangeSet:
    body = entry.body
    match entry.kind:
        case journal.JOB:
            return ChangeSet(deleted=(JobKey(*entry.key),)) if body is None else ChangeSet(jobs=(codec.unpack_job(body),))
        case journal.QUEUE:
            return ChangeSet(queues_deleted=entry.key) if body is None else ChangeSet(queues=(codec.unpack_queue(body),))
        case journal.SERVICE:
            deletion = ChangeSet(services_deleted=(ServiceKey(*entry.key),))
            return deletion if body is None else ChangeSet(services=(codec.unpack_service(body),))
        case journal.TRACKED if body is not None:
            kind = next(kind for kind in KINDS if kind.kind == entry.key[0])
            return ChangeSet(tracked=(codec.unpack_tracked(kind, body),))
    return ChangeSet()
