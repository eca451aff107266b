"""Rows to values. A row that cannot be decoded is left out and remembered, so that it stops nothing but itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from fairway.app.tracking_ports import Kind
from fairway.errors import UnavailableError
from fairway.state.job import Job, JobKey
from fairway.state.queue import Queue
from fairway.state.recovery import Unreadable
from fairway.state.service import ServiceRecord
from fairway.state.task import Task
from fairway.stores.sqlite import codec

JOB, TASK, QUEUE, SERVICE, TRACKED = "job", "task", "queue", "service", "tracked"
BAD = (msgspec.MsgspecError, ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""What decoders raise for bytes that are not what they should be."""

Value = TypeVar("Value")
log = logging.getLogger("fairway.store")


class Decoding:
    """Decodes rows of one file, and knows which could not be decoded."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._unreadable: dict[tuple[str, tuple[str, ...]], Unreadable] = {}

    def unreadable(self) -> list[Unreadable]:
        """The records that could not be decoded when they were last read."""
        return [self._unreadable[place] for place in sorted(self._unreadable)]

    def forget(self, kind: str, key: tuple[str, ...]) -> None:
        """The record was replaced or deleted."""
        if self._unreadable:
            self._unreadable.pop((kind, key), None)

    def jobs(self, rows: Iterable[Sequence[Any]]) -> list[Job]:
        """Runs of rows (namespace, name, body); those that cannot be decoded are left out."""
        found = []
        for namespace, name, body in rows:
            job = self._tried(JOB, (namespace, name), f"{namespace}/{name}", lambda data: codec.unpack_job(data), body)
            if job is not None:
                found.append(job)
        return found

    def job(self, row: Sequence[Any]) -> Job:
        """One run that was asked for by name; raises when it cannot be decoded."""
        found = self.jobs([row])
        if not found:
            raise self._problem(self._unreadable[JOB, (row[0], row[1])])
        return found[0]

    def tasks(self, key: JobKey, rows: Iterable[Sequence[Any]]) -> list[Task]:
        """Tasks of rows (role, index, attempt, body)."""
        found = []
        for role, index, attempt, body in rows:
            place = (key.namespace, key.name, role, str(index), str(attempt))
            task = self._tried(TASK, place, f"{key}/{role}-{index}#{attempt}", codec.unpack_task, body)
            if task is not None:
                found.append(task)
        return found

    def queues(self, rows: Iterable[Sequence[Any]]) -> list[Queue]:
        """Queues of rows (name, body)."""
        found = (self._tried(QUEUE, (name,), f"queue:{name}", codec.unpack_queue, body) for name, body in rows)
        return [queue for queue in found if queue is not None]

    def services(self, rows: Iterable[Sequence[Any]]) -> list[ServiceRecord]:
        """Services of rows (namespace, name, body)."""
        found = []
        for namespace, name, body in rows:
            record = self._tried(SERVICE, (namespace, name), f"service:{namespace}/{name}", codec.unpack_service, body)
            if record is not None:
                found.append(record)
        return found

    def tracked(self, kind: type[Kind], namespace: str, rows: Iterable[Sequence[Any]]) -> list[Kind]:
        """Tracked records of rows (name, body)."""
        found = []
        for name, body in rows:
            subject = f"{kind.kind}:{namespace}/{name}"
            record = self._tried(
                TRACKED, (kind.kind, namespace, name), subject, lambda data: codec.unpack_tracked(kind, data), body
            )
            if record is not None:
                found.append(record)
        return found

    def _tried(
        self, kind: str, key: tuple[str, ...], subject: str, decode: Callable[[bytes], Value], body: bytes
    ) -> Value | None:
        try:
            found = decode(body)
        except BAD as problem:
            if (kind, key) not in self._unreadable:
                log.warning("the record of %s in %s cannot be read: %s", subject, self._path, problem)
            self._unreadable[kind, key] = Unreadable(kind, key, subject, str(problem).splitlines()[0] if str(problem) else "")
            return None
        self.forget(kind, key)
        return found

    def _problem(self, what: Unreadable) -> UnavailableError:
        message = f"the record of {what.subject} in {self._path} cannot be read: {what.cause}"
        name = what.key[-1]
        return UnavailableError(
            message,
            fix=f"use the version of fairway that wrote it (its files are kept), or remove run and files: fairway delete {name}",
        )
