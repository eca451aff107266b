"""The store on one SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from fairway.app.port.port import ChangeSet, JobFilter, JobPage, MetricPoint
from fairway.app.port.tracking import Kind
from fairway.app.system import crash_point
from fairway.errors import UnavailableError
from fairway.plan import retention
from fairway.state.database_recovery import UnreadableRecord
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.mlflow_record import TrackingRecord
from fairway.state.phase import JOB_OVER, JobPhase
from fairway.state.queue import Queue
from fairway.state.request_receipt import LIFE, MOST, RequestReceipt
from fairway.state.service import ServiceRecord
from fairway.state.task import Task
from fairway.stores.sqlite import codec, job_query, journal, journal_entry, schema
from fairway.stores.sqlite.error import explain, is_damage
from fairway.stores.sqlite.journal import Note, StoreJournal
from fairway.stores.sqlite.metric import MetricCurves
from fairway.stores.sqlite.row_decoder import RowDecoder

_ACTIVE = tuple(phase.value for phase in JobPhase if phase not in JOB_OVER)
_BUSY_MILLISECONDS = 5000
_NEWEST_EVENTS = 2000
"""Number of newest events, of all namespaces, in which the events of one are looked for first."""
# The plus signs keep SQLite from using the index of runs: it reads from the newest event on, and stops at the limit.
_NEWEST_IN = f"""
SELECT time, subject, reason, message FROM event WHERE id > (SELECT MAX(id) FROM event) - {_NEWEST_EVENTS}
    AND ((+run >= ? AND +run < ?) OR (+run >= ? AND +run < ?)) ORDER BY id DESC LIMIT ?
"""
_ALL_IN = """
SELECT time, subject, reason, message FROM event WHERE id IN (
    SELECT id FROM event WHERE run >= ? AND run < ? UNION ALL SELECT id FROM event WHERE run >= ? AND run < ?
    ORDER BY id DESC LIMIT ?
) ORDER BY id DESC
"""


class SqliteStore:
    """Implements the guarantees of the `Store` port in one file that only its owner can read.

    One connection, used by one thread at a time. WAL with synchronous=NORMAL: the death of the process loses nothing; the death
    of the machine may lose the last moments, never the order. A full disk or a damaged file raises `UnavailableError` and changes
    nothing. A record that cannot be decoded is left out of every list and reported by `unreadable`. Data that exists only in this
    file is also written to a journal beside it.
    """

    def __init__(self, path: Path | str, *, before_migration: Callable[[int], None] | None = None) -> None:
        self._path = Path(path)
        self._before_migration = before_migration
        self.damaged: Callable[[str], None] = lambda _cause: None
        """Called when damage of the file is detected while it is in use."""
        self._decoding = RowDecoder(str(self._path))
        self._noted = journal_entry.JournaledRuns()
        self._notes: list[Note] = []
        with self._explained():
            self._connection = _connect(self._path)
            try:
                self._prepare()
                self.journal = StoreJournal(journal_of(self._path))
            except BaseException:  # Whatever it was, the file must not stay open.
                self._connection.close()
                raise
            self._catch_up_journal()
        self._curves = MetricCurves(self._connection)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        version = schema.version_of(self._connection)
        if version > schema.VERSION:
            message = f"{self._path} was written by a newer Fairway (format {version}; this one knows {schema.VERSION})"
            raise UnavailableError(message, fix="upgrade fairway, or set FAIRWAY_HOME to another folder")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("PRAGMA temp_store = MEMORY")
        execute("PRAGMA journal_size_limit = 67108864")
        if self._before_migration is not None and 0 < version < schema.VERSION:
            self._before_migration(version)
        schema.migrate(self._connection)
        self._numbered = bool(execute("SELECT 1 FROM sqlite_master WHERE name = 'journal'").fetchone())

    def _catch_up_journal(self) -> None:
        """Restart a journal that was removed, or lost its end, after the last entry of the database."""
        if self._numbered and self.journal_number() > self.journal.last:
            self.journal.begin_after(self.journal_number())

    def journal_number(self) -> int:
        """Return the number of the last journal entry that the file contains."""
        return int(self._rows("SELECT last FROM journal")[0][0]) if self._numbered else 0

    def change_count(self) -> int:
        """Return a number that increases with every change made through this connection."""
        return self._connection.total_changes

    def close(self) -> None:
        """Close all files. Harmless when repeated."""
        self._connection.close()
        self.journal.close()

    def replay(self, entries: Sequence[journal.JournalEntry]) -> int:
        """Update the file from the journal; return how many entries could be applied."""
        applied = 0
        with self._transaction("store.commit"):
            for entry in entries:
                if entry.kind == journal.NUMBER:
                    self._raise_number(entry.key[0], entry.key[1], journal_entry.number_of(entry))
                applied += journal_entry.take(self._put, entry)
            self._connection.execute("UPDATE journal SET last = MAX(last, ?)", (self.journal.last,))
            self._notes = []  # The journal already contains them.
        return applied

    def _put(self, changes: ChangeSet) -> None:
        """Write changes within the caller's transaction."""
        for job in changes.jobs:
            self._put_job(job)
        for record in changes.tracked:
            self._put_tracked(record)
        for key in changes.deleted:
            self._delete_job(key)
        self._put_queues(changes)
        self._put_services(changes)

    def mark_deleted(self, keys: Sequence[JobKey]) -> None:
        """Record durably, before anything is removed, that these runs are being deleted, so that they are not recovered."""
        with self._transaction("store.commit"):
            self._notes += [(journal.JOB, (key.namespace, key.name), None) for key in keys]
            self._number_notes()
        self._write_notes(sync=True)

    def was_deleted(self, key: JobKey) -> bool:
        """Return whether the run was deleted, as far back as the journal reaches."""
        return self.journal.was_deleted(journal.JOB, (key.namespace, key.name))

    def raise_number(self, namespace: str, series: str, number: int) -> None:
        """Make the next run number of a series greater than this one."""
        rows = self._rows("SELECT last FROM series WHERE namespace = ? AND series = ?", (namespace, series))
        if rows and rows[0][0] >= number:
            return
        with self._transaction("store.number"):
            self._raise_number(namespace, series, number)

    def _raise_number(self, namespace: str, series: str, number: int) -> None:
        self._connection.execute(
            "INSERT INTO series VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET last = MAX(last, excluded.last)",
            (namespace, series, number),
        )

    def unreadable(self) -> list[UnreadableRecord]:
        """Return the records that cannot be decoded."""
        return self._decoding.unreadable()

    def next_number(self, namespace: str, series: str) -> int:
        """Allocate the next run number of a series, permanently."""
        with self._transaction("store.number"):
            row = self._connection.execute(
                "INSERT INTO series VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last",
                (namespace, series),
            ).fetchone()
            self._notes.append(journal_entry.number(namespace, series, row[0]))
            self._number_notes()
        self._write_notes()
        number: int = row[0]
        return number

    def commit(self, changes: ChangeSet) -> None:
        """Store all changes, or raise and store nothing.

        A delete takes precedence over other changes of the same run, except its events, which record the deletion. Tasks and
        points of a missing run are dropped.
        """
        if changes == ChangeSet():
            return
        with self._transaction("store.commit"):
            for job in changes.jobs:
                self._put_job(job)
            for task in changes.tasks:
                self._put_task(task)
            for record in changes.tracked:
                self._put_tracked(record)
            if changes.points:
                self._curves.add(changes.points)
            for key in changes.deleted:
                self._delete_job(key)
            self._put_queues(changes)
            self._put_services(changes)
            self._put_receipts(changes.receipts)
            self._connection.executemany(
                "INSERT INTO event (time, run, subject, reason, message) VALUES (?, ?, ?, ?, ?)",
                [(event.time, _run_of(event.subject), event.subject, event.reason, event.message) for event in changes.events],
            )
            self._number_notes()
        self._write_notes()

    def _number_notes(self) -> None:
        if self._notes and self._numbered:
            self._connection.execute("UPDATE journal SET last = ?", (self.journal.last + len(self._notes),))

    def _write_notes(self, *, sync: bool = False) -> None:
        """Write the notes to the journal after the commit, so that it contains only what has happened."""
        if self._notes and self._numbered:
            self.journal.append(self._notes, sync=sync)
        self._notes = []

    def _delete_job(self, key: JobKey) -> None:
        self._connection.execute("DELETE FROM job WHERE namespace = ? AND name = ?", (key.namespace, key.name))
        self._connection.execute("DELETE FROM event WHERE run = ?", (str(key),))
        self._connection.execute("DELETE FROM tracked WHERE owner = ?", (str(key),))
        self._decoding.forget(journal.JOB, (key.namespace, key.name))
        self._noted.forget(key)
        self._notes.append((journal.JOB, (key.namespace, key.name), None))

    def _put_job(self, job: JobState) -> None:
        labels = json.dumps(job.labels, sort_keys=True) if job.labels else "{}"
        body = codec.pack(job)
        if self._noted.is_news(job):
            self._notes.append((journal.JOB, (job.key.namespace, job.key.name), body))
        until = retention.deadlines(job)
        changed = self._connection.execute(
            "UPDATE job SET phase = ?, labels = ?, body = ?, logs_until = ?, record_until = ? WHERE namespace = ? AND name = ?",
            (job.phase.value, labels, body, until.logs, until.record, job.key.namespace, job.key.name),
        )
        if changed.rowcount == 0:
            self._connection.execute(
                "INSERT INTO job (namespace, name, series, number, phase, labels, body, logs_until, record_until)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    job.key.namespace,
                    job.key.name,
                    job.series,
                    job.number,
                    job.phase.value,
                    labels,
                    body,
                    until.logs,
                    until.record,
                ),
            )

    def _put_task(self, task: Task) -> None:
        key = task.key
        self._connection.execute(
            "INSERT OR REPLACE INTO task SELECT id, ?, ?, ?, ? FROM job WHERE namespace = ? AND name = ?",
            (key.role, key.index, key.attempt, codec.pack(task), key.namespace, key.job),
        )

    def _put_tracked(self, record: TrackingRecord) -> None:
        body = codec.pack(record)
        self._connection.execute(
            "INSERT INTO tracked (kind, namespace, name, grp, owner, body) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET grp = excluded.grp, owner = excluded.owner, body = excluded.body",
            (record.kind, record.namespace, record.name, record.group, record.owner, body),
        )
        self._notes.append((journal.TRACKED, (record.kind, record.namespace, record.name), body))

    def _put_queues(self, changes: ChangeSet) -> None:
        for queue in changes.queues:
            body = codec.pack(queue)
            self._connection.execute("INSERT OR REPLACE INTO queue VALUES (?, ?)", (queue.name, body))
            self._notes.append((journal.QUEUE, (queue.name,), body))
        for name in changes.queues_deleted:
            self._connection.execute("DELETE FROM queue WHERE name = ?", (name,))
            self._decoding.forget(journal.QUEUE, (name,))
            self._notes.append((journal.QUEUE, (name,), None))
        if changes.memory is not None:
            self._connection.execute("INSERT OR REPLACE INTO memory VALUES (1, ?)", (changes.memory,))

    def _put_services(self, changes: ChangeSet) -> None:
        for record in changes.services:
            key, body = record.service.key, codec.pack(record)
            self._connection.execute("INSERT OR REPLACE INTO service VALUES (?, ?, ?)", (key.namespace, key.name, body))
            self._notes.append((journal.SERVICE, (key.namespace, key.name), body))
        for key in changes.services_deleted:
            self._connection.execute("DELETE FROM service WHERE namespace = ? AND name = ?", (key.namespace, key.name))
            self._decoding.forget(journal.SERVICE, (key.namespace, key.name))
            self._notes.append((journal.SERVICE, (key.namespace, key.name), None))

    def _put_receipts(self, receipts: Sequence[RequestReceipt]) -> None:
        for receipt in receipts:
            self._connection.execute(
                "INSERT INTO receipt (id, time, body) VALUES (?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET time = excluded.time, body = excluded.body",
                (receipt.id, receipt.time, codec.pack(receipt)),
            )
            self._connection.execute("DELETE FROM receipt WHERE time <= ?", (receipt.time - LIFE,))
            self._connection.execute("DELETE FROM receipt WHERE seq <= (SELECT max(seq) FROM receipt) - ?", (MOST,))

    def receipt(self, id: str) -> RequestReceipt | None:
        """Return the receipt of the request with that id; None if it is unknown or has expired."""
        rows = self._rows("SELECT body FROM receipt WHERE id = ?", (id,))
        try:
            return codec.unpack_receipt(rows[0][0]) if rows else None
        except msgspec.DecodeError as problem:
            message = f"the record of request {id} in {self._path} cannot be read: {problem}"
            raise UnavailableError(message, fix="send the request with another key") from problem

    def active_jobs(self) -> list[JobState]:
        """Return the unfinished runs, oldest first."""
        marks = ", ".join("?" * len(_ACTIVE))
        rows = self._rows(f"SELECT id, namespace, name, body FROM job WHERE phase IN ({marks})", _ACTIVE)
        return self._decoding.jobs(row[1:] for row in sorted(rows))

    def tasks_of(self, key: JobKey) -> list[Task]:
        """Return every attempt of every task of a run, in order of role, index and attempt."""
        rows = self._rows(
            'SELECT task.role, task."index", task.attempt, task.body FROM job JOIN task ON task.job = job.id'
            ' WHERE job.namespace = ? AND job.name = ? ORDER BY task.role, task."index", task.attempt',
            (key.namespace, key.name),
        )
        return self._decoding.tasks(key, rows)

    def job_keys(self) -> set[JobKey]:
        """Return the keys of all runs."""
        return {JobKey(*row) for row in self._rows("SELECT namespace, name FROM job")}

    def has_job(self, key: JobKey) -> bool:
        """Return whether the run has a record, readable or not."""
        return bool(self._rows("SELECT 1 FROM job WHERE namespace = ? AND name = ?", (key.namespace, key.name)))

    def get_job(self, key: JobKey) -> JobState | None:
        """Return one run. Raises `UnavailableError` for a record that cannot be decoded."""
        rows = self._rows("SELECT namespace, name, body FROM job WHERE namespace = ? AND name = ?", (key.namespace, key.name))
        return self._decoding.job(rows[0]) if rows else None

    def newest(self, namespace: str, series: str) -> JobState | None:
        """Return the newest run of a series that can be read."""
        numbers = "SELECT number FROM job WHERE namespace = ? AND series = ? AND number < ? ORDER BY number DESC LIMIT 1"
        sql = f"SELECT namespace, name, body, number FROM job WHERE namespace = ? AND series = ? AND number = ({numbers})"
        below = 1 << 62
        while rows := self._rows(sql, (namespace, series, namespace, series, below)):
            jobs = self._decoding.jobs(row[:3] for row in rows)
            if jobs:
                return jobs[-1]
            below = rows[0][3]
        return None

    def list_jobs(self, filter: JobFilter) -> JobPage:
        """List runs, newest first."""
        page = job_query.page(filter)
        rows = self._rows(*page)
        jobs = tuple(self._decoding.jobs(row[1:] for row in rows[: filter.limit]))
        following = str(rows[filter.limit - 1][0]) if len(rows) > filter.limit > 0 else ""
        total = self._rows(*job_query.total(filter))[0][0]
        return JobPage(jobs, following, total)

    def events_of(self, subject: str, limit: int = 1000) -> list[RunEvent]:
        """Return events of a run and its tasks, or of everything if the subject is empty; oldest first, the newest `limit`."""
        where, values = _events_where(subject)
        rows = self._rows(
            f"SELECT time, subject, reason, message FROM event {where} ORDER BY id DESC LIMIT ?", (*values, max(0, limit))
        )
        return [RunEvent(*row) for row in reversed(rows)]

    def events_in(self, namespace: str, limit: int = 1000) -> list[RunEvent]:
        """Return events of the runs, tasks and services of a namespace; oldest first, the newest `limit`."""
        limit = max(0, limit)
        values = (f"{namespace}/", f"{namespace}0", f"service:{namespace}/", f"service:{namespace}0")  # '0' follows '/'.
        # The newest events of all namespaces often suffice: then the cost does not grow with the events of this one.
        rows = self._rows(_NEWEST_IN, (*values, limit))
        if len(rows) < limit:
            rows = self._rows(_ALL_IN, (*values, limit))
        return [RunEvent(*row) for row in reversed(rows)]

    def points_of(self, key: JobKey, metric: str = "", limit: int = 2000) -> list[MetricPoint]:
        """Return metric points of a run in order of time; thinned evenly to at most `limit`.

        Each task's curve is thinned separately, rare ones last: two evaluations remain beside a million training steps.
        """
        with self._explained():
            return self._curves.read(key, metric, limit)

    def expired(self, now: float, limit: int) -> tuple[list[JobState], list[JobState]]:
        """Return runs whose logs have expired, and runs that have expired completely; at most `limit` of each."""
        logs = self._rows("SELECT namespace, name, body FROM job WHERE logs_until <= ? LIMIT ?", (now, limit))
        records = self._rows("SELECT namespace, name, body FROM job WHERE record_until <= ? LIMIT ?", (now, limit))
        return self._decoding.jobs(logs), self._decoding.jobs(records)

    def series_names(self, namespace: str) -> list[str]:
        """Return the names of all series that have runs."""
        rows = self._rows(
            "SELECT DISTINCT series FROM job_count WHERE namespace = ? AND series > '' AND n > 0 ORDER BY series", (namespace,)
        )
        return [row[0] for row in rows]

    def queues(self) -> list[Queue]:
        """Return the stored queues, in order of name."""
        return self._decoding.queues(self._rows("SELECT name, body FROM queue ORDER BY name"))

    def memory(self) -> bytes | None:
        """Return the scheduler's memory as last committed; None if there is none."""
        rows = self._rows("SELECT body FROM memory")
        return bytes(rows[0][0]) if rows else None

    def services(self) -> list[ServiceRecord]:
        """Return the stored services, in order of namespace and name."""
        rows = self._rows("SELECT namespace, name, body FROM service ORDER BY namespace, name")
        return self._decoding.services(rows)

    def tracked(self, kind: type[Kind], namespace: str, name: str) -> Kind | None:
        """Return the tracked record of that name."""
        sql = "SELECT name, body FROM tracked WHERE kind = ? AND namespace = ? AND name = ?"
        rows = self._rows(sql, (kind.kind, namespace, name))
        records = self._decoding.tracked(kind, namespace, rows)
        return records[0] if records else None

    def all_tracked(self, kind: type[Kind], namespace: str, group: str = "") -> list[Kind]:
        """Return all records of a kind, or those of one group; newest first."""
        where, values = ("AND grp = ?", (group,)) if group else ("", ())
        sql = f"SELECT name, body FROM tracked WHERE kind = ? AND namespace = ? {where} ORDER BY id DESC"
        return self._decoding.tracked(kind, namespace, self._rows(sql, (kind.kind, namespace, *values)))

    def _rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self, point: str) -> Iterator[None]:
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                with crash_point.reach(point):
                    self._connection.execute("COMMIT")
            except BaseException:  # All or nothing, also when the caller is cancelled.
                self._notes = []
                # SQLite rolls back by itself after some errors, such as a full disk.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as problem:
            if is_damage(problem):
                self.damaged(str(problem))
            raise explain(problem, self._path) from problem


def journal_of(path: Path) -> Path:
    """Return the path of a database's journal."""
    return path.with_suffix(".journal")


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file and make it readable only by its owner; SQLite gives the WAL the same mode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)


def _run_of(subject: str) -> str:
    """Return the run of a subject: `default/mnist-7/worker-0#1` belongs to `default/mnist-7`."""
    return "/".join(subject.split("/", 2)[:2])


def _events_where(subject: str) -> tuple[str, tuple[str, ...]]:
    if not subject:
        return "", ()
    run = _run_of(subject)
    if run == subject:
        return "WHERE run = ?", (run,)
    # A task without an attempt means all its attempts; '$' follows '#'.
    return "WHERE run = ? AND (subject = ? OR (subject > ? AND subject < ?))", (run, subject, f"{subject}#", f"{subject}$")
