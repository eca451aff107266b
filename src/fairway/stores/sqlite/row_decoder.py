"""Decode rows to values. A row that cannot be decoded is skipped and recorded, so that it does not affect others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from fairway.app.port.tracking import Kind
from fairway.errors import UnavailableError
from fairway.state.database_recovery import UnreadableRecord
from fairway.state.job import JobKey, JobState
from fairway.state.queue import Queue
from fairway.state.service import ServiceRecord
from fairway.state.task import Task
from fairway.stores.sqlite import codec

JOB, TASK, QUEUE, SERVICE, TRACKED = "job", "task", "queue", "service", "tracked"
BAD = (msgspec.MsgspecError, ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""Exceptions of decoders for invalid bytes."""

Value = TypeVar("Value")
log = logging.getLogger("fairway.store")


class RowDecoder:
    """Decodes rows of one file, and records which could not be decoded."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._unreadable: dict[tuple[str, tuple[str, ...]], UnreadableRecord] = {}

    def unreadable(self) -> list[UnreadableRecord]:
        """Return the records that could not be decoded when they were last read."""
        return [self._unreadable[key] for key in sorted(self._unreadable)]

    def forget(self, kind: str, key: tuple[str, ...]) -> None:
        """Forget a record that was replaced or deleted."""
        if self._unreadable:
            self._unreadable.pop((kind, key), None)

    def jobs(self, rows: Iterable[Sequence[Any]]) -> list[JobState]:
        """Decode runs from rows (namespace, name, body); undecodable ones are skipped."""
        decoded = []
        for namespace, name, body in rows:
            job = self._tried(JOB, (namespace, name), f"{namespace}/{name}", lambda data: codec.unpack_job(data), body)
            if job is not None:
                decoded.append(job)
        return decoded

    def job(self, row: Sequence[Any]) -> JobState:
        """Decode one run; raise if it cannot be decoded."""
        decoded = self.jobs([row])
        if not decoded:
            raise self._problem(self._unreadable[JOB, (row[0], row[1])])
        return decoded[0]

    def tasks(self, key: JobKey, rows: Iterable[Sequence[Any]]) -> list[Task]:
        """Decode tasks from rows (role, index, attempt, body)."""
        decoded = []
        for role, index, attempt, body in rows:
            record_key = (key.namespace, key.name, role, str(index), str(attempt))
            task = self._tried(TASK, record_key, f"{key}/{role}-{index}#{attempt}", codec.unpack_task, body)
            if task is not None:
                decoded.append(task)
        return decoded

    def queues(self, rows: Iterable[Sequence[Any]]) -> list[Queue]:
        """Decode queues from rows (name, body)."""
        decoded = (self._tried(QUEUE, (name,), f"queue:{name}", codec.unpack_queue, body) for name, body in rows)
        return [queue for queue in decoded if queue is not None]

    def services(self, rows: Iterable[Sequence[Any]]) -> list[ServiceRecord]:
        """Decode services from rows (namespace, name, body)."""
        decoded = []
        for namespace, name, body in rows:
            record = self._tried(SERVICE, (namespace, name), f"service:{namespace}/{name}", codec.unpack_service, body)
            if record is not None:
                decoded.append(record)
        return decoded

    def tracked(self, kind: type[Kind], namespace: str, rows: Iterable[Sequence[Any]]) -> list[Kind]:
        """Decode tracked records from rows (name, body)."""
        decoded = []
        for name, body in rows:
            subject = f"{kind.kind}:{namespace}/{name}"
            record = self._tried(
                TRACKED, (kind.kind, namespace, name), subject, lambda data: codec.unpack_tracked(kind, data), body
            )
            if record is not None:
                decoded.append(record)
        return decoded

    def _tried(
        self, kind: str, key: tuple[str, ...], subject: str, decode: Callable[[bytes], Value], body: bytes
    ) -> Value | None:
        try:
            value = decode(body)
        except BAD as problem:
            if (kind, key) not in self._unreadable:
                log.warning("the record of %s in %s cannot be read: %s", subject, self._path, problem)
            self._unreadable[kind, key] = UnreadableRecord(
                kind, key, subject, str(problem).splitlines()[0] if str(problem) else ""
            )
            return None
        self.forget(kind, key)
        return value

    def _problem(self, what: UnreadableRecord) -> UnavailableError:
        message = f"the record of {what.subject} in {self._path} cannot be read: {what.cause}"
        name = what.key[-1]
        return UnavailableError(
            message,
            fix=f"use the version of fairway that wrote it (its files are kept), or remove run and files: fairway delete {name}",
        )
