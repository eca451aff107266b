"""What of a commit goes into the journal, and how an entry is taken back from it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from fairway.app.ports import Changes
from fairway.state.job import Job, JobKey
from fairway.state.service import ServiceKey
from fairway.state.tracking import KINDS
from fairway.stores.sqlite import codec, journal
from fairway.stores.sqlite.decoding import BAD
from fairway.stores.sqlite.journal import Entry, Note

_MOST = 20_000
log = logging.getLogger("fairway.store")


class Noted:
    """What the journal has of each run. Progress alone is no news: metrics and checkpoints lie in the run's folder."""

    def __init__(self) -> None:
        self._known: dict[JobKey, tuple[object, ...]] = {}

    def is_news(self, job: Job) -> bool:
        """Whether the journal must have this value of the run."""
        value = (job.phase, job.attempt, job.intent, job.ending, job.deleting, job.restarts, job.logs_gone, id(job.spec))
        if self._known.get(job.key) == value:
            return False
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[job.key] = value
        return True

    def forget(self, key: JobKey) -> None:
        """The run was deleted."""
        self._known.pop(key, None)


def number(namespace: str, series: str, last: int) -> Note:
    """The note that a run number was taken."""
    return journal.NUMBER, (namespace, series), msgspec.msgpack.encode(last)


def take(put: Callable[[Changes], None], entry: Entry) -> bool:
    """Carry one entry out again. False for one that cannot be decoded; it is left out."""
    try:
        changes = _changes(entry)
    except BAD as problem:
        log.warning("an entry of the journal about %s %s cannot be read: %s", entry.kind, "/".join(entry.key), problem)
        return False
    put(changes)
    return True


def number_of(entry: Entry) -> int:
    """The run number of a note that `number` made."""
    return msgspec.msgpack.decode(entry.body or b"\0", type=int)


def _changes(entry: Entry) -> Changes:
    body = entry.body
    match entry.kind:
        case journal.JOB:
            return Changes(deleted=(JobKey(*entry.key),)) if body is None else Changes(jobs=(codec.unpack_job(body),))
        case journal.QUEUE:
            return Changes(queues_deleted=entry.key) if body is None else Changes(queues=(codec.unpack_queue(body),))
        case journal.SERVICE:
            gone = Changes(services_deleted=(ServiceKey(*entry.key),))
            return gone if body is None else Changes(services=(codec.unpack_service(body),))
        case journal.TRACKED if body is not None:
            kind = next(kind for kind in KINDS if kind.kind == entry.key[0])
            return Changes(tracked=(codec.unpack_tracked(kind, body),))
    return Changes()
