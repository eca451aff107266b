"""Fakes of the ports, for tests of the layers above them. Each passes the conformance suite of its port."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.app.port.port import ChangeSet, JobFilter, JobPage, MetricPoint
from fairway.app.port.tracking import Kind
from fairway.errors import UsageError
from fairway.plan.retention import deadlines
from fairway.state.database_recovery import UnreadableRecord
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.mlflow_record import TrackedRun, TrackingRecord
from fairway.state.queue import Queue
from fairway.state.request_receipt import LIFE, MOST, RequestReceipt
from fairway.state.service import ServiceKey, ServiceRecord
from fairway.state.task import Task, TaskKey


class MemoryStore:
    """The `Store` port in memory; the data is lost when the process ends."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._jobs: dict[JobKey, JobState] = {}
        self._order: dict[JobKey, int] = {}
        self._arrivals = 0
        self._tasks: dict[JobKey, dict[TaskKey, Task]] = {}
        self._events: list[RunEvent] = []
        self._points: dict[JobKey, list[MetricPoint]] = {}
        self._queues: dict[str, Queue] = {}
        self._services: dict[ServiceKey, ServiceRecord] = {}
        self._memory: bytes | None = None
        self._tracked: dict[tuple[str, str, str], TrackingRecord] = {}
        self._deleted: set[JobKey] = set()
        self._receipts: dict[str, RequestReceipt] = {}

    def close(self) -> None:
        """Do nothing."""

    def next_number(self, namespace: str, series: str) -> int:
        """Allocate and return the next run number of a series."""
        number = self._numbers.get((namespace, series), 0) + 1
        self._numbers[namespace, series] = number
        return number

    def commit(self, changes: ChangeSet) -> None:
        """Store all changes."""
        for job in changes.jobs:
            if job.key not in self._order:
                self._arrivals += 1
                self._order[job.key] = self._arrivals
            self._jobs[job.key] = job
        for task in changes.tasks:
            if task.key.run in self._jobs:
                self._tasks.setdefault(task.key.run, {})[task.key] = task
        self._tracked.update(((record.kind, record.namespace, record.name), record) for record in changes.tracked)
        for key, point in changes.points:
            if key in self._jobs or (TrackedRun.kind, key.namespace, key.name) in self._tracked:
                self._points.setdefault(key, []).append(point)
        for key in changes.deleted:
            self._forget(key)
        self._queues.update((queue.name, queue) for queue in changes.queues)
        for name in changes.queues_deleted:
            self._queues.pop(name, None)
        self._services.update((record.service.key, record) for record in changes.services)
        for service_key in changes.services_deleted:
            self._services.pop(service_key, None)
        self._memory = self._memory if changes.memory is None else changes.memory
        self._events.extend(changes.events)
        self._put_receipts(changes.receipts)

    def _put_receipts(self, receipts: tuple[RequestReceipt, ...]) -> None:
        for receipt in receipts:
            self._receipts[receipt.id] = receipt
            kept = [item for item in self._receipts.values() if item.time > receipt.time - LIFE]
            self._receipts = {item.id: item for item in kept[-MOST:]}

    def receipt(self, id: str) -> RequestReceipt | None:
        """Return the receipt of the request with this id; None when it is unknown or expired."""
        return self._receipts.get(id)

    def _forget(self, key: JobKey) -> None:
        self._deleted.add(key)
        for table in (self._jobs, self._order, self._tasks, self._points):
            table.pop(key, None)
        removed = [place for place, record in self._tracked.items() if record.owner == str(key)]
        for _, namespace, name in removed:
            self._points.pop(JobKey(namespace, name), None)
        self._tracked = {place: record for place, record in self._tracked.items() if place not in removed}
        self._events = [event for event in self._events if not _is_about(event, str(key))]

    def active_jobs(self) -> list[JobState]:
        """Return the unfinished runs, oldest first."""
        return [job for job in sorted(self._jobs.values(), key=self._place) if not job.phase.over]

    def tasks_of(self, key: JobKey) -> list[Task]:
        """Return every attempt of every task of a run."""
        tasks = self._tasks.get(key, {})
        return [tasks[name] for name in sorted(tasks)]

    def job_keys(self) -> set[JobKey]:
        """Return the keys of all runs."""
        return set(self._jobs)

    def has_job(self, key: JobKey) -> bool:
        """Return whether the run is recorded."""
        return key in self._jobs

    def get_job(self, key: JobKey) -> JobState | None:
        """Return a run; None if it is unknown."""
        return self._jobs.get(key)

    def mark_deleted(self, keys: Sequence[JobKey]) -> None:
        """Record that these runs are being deleted."""
        self._deleted.update(keys)

    def was_deleted(self, key: JobKey) -> bool:
        """Return whether the run was deleted."""
        return key in self._deleted and key not in self._jobs

    def raise_number(self, namespace: str, series: str, number: int) -> None:
        """Make the next run number of a series higher than this one."""
        self._numbers[namespace, series] = max(number, self._numbers.get((namespace, series), 0))

    def unreadable(self) -> list[UnreadableRecord]:
        """Return an empty list: nothing is encoded."""
        return []

    def newest(self, namespace: str, series: str) -> JobState | None:
        """Return the newest run of a series."""
        runs = [job for job in self._jobs.values() if job.key.namespace == namespace and job.series == series]
        return max(runs, key=lambda job: job.number, default=None)

    def list_jobs(self, filter: JobFilter) -> JobPage:
        """Return a page of runs, newest first."""
        if filter.before and not filter.before.isdigit():
            message = f"before={filter.before!r} is not a cursor"
            raise UsageError(message, fix="take it from `next` of the page before")
        matching = [job for job in sorted(self._jobs.values(), key=self._place, reverse=True) if _matches(job, filter)]
        rest = [job for job in matching if not filter.before or self._place(job) < int(filter.before)]
        page = rest[: filter.limit]
        following = str(self._place(page[-1])) if page and len(rest) > len(page) else ""
        return JobPage(tuple(page), following, len(matching))

    def events_of(self, subject: str, limit: int = 1000) -> list[RunEvent]:
        """Return the newest `limit` events of a run and its tasks, oldest first; an empty subject selects all events."""
        events = [event for event in self._events if not subject or _is_about(event, subject)]
        return events[max(0, len(events) - limit) :]

    def events_in(self, namespace: str, limit: int = 1000) -> list[RunEvent]:
        """Events of the runs, tasks and services of a namespace; oldest first, the newest `limit`."""
        events = [event for event in self._events if event.subject.startswith((f"{namespace}/", f"service:{namespace}/"))]
        return events[max(0, len(events) - limit) :]

    def points_of(self, key: JobKey, metric: str = "", limit: int = 2000) -> list[MetricPoint]:
        """Return the metric points of a run in order of time, thinned evenly to at most `limit`."""
        points = sorted(
            (point for point in self._points.get(key, []) if not metric or metric in point.metrics), key=lambda point: point.time
        )
        if len(points) <= limit:
            return points
        return [points[index * (len(points) - 1) // max(1, limit - 1)] for index in range(limit)]

    def expired(self, now: float, limit: int) -> tuple[list[JobState], list[JobState]]:
        """Return the runs with expired logs, and the runs with expired records; at most `limit` of each."""
        until = {job.key: deadlines(job) for job in self._jobs.values()}
        logs = [job for job in self._jobs.values() if (at := until[job.key].logs) is not None and at <= now]
        records = [job for job in self._jobs.values() if (at := until[job.key].record) is not None and at <= now]
        return logs[:limit], records[:limit]

    def series_names(self, namespace: str) -> list[str]:
        """Return the names of all series with runs."""
        return sorted({job.series for job in self._jobs.values() if not namespace or job.key.namespace == namespace})

    def services(self) -> list[ServiceRecord]:
        """Return the stored services, in order of namespace and name."""
        return [self._services[key] for key in sorted(self._services)]

    def queues(self) -> list[Queue]:
        """Return the stored queues, in order of name."""
        return [self._queues[name] for name in sorted(self._queues)]

    def memory(self) -> bytes | None:
        """Return the scheduler's memory as committed last; None if it never was."""
        return self._memory

    def tracked(self, kind: type[Kind], namespace: str, name: str) -> Kind | None:
        """Return the tracked record of this kind and name; None if there is none."""
        record = self._tracked.get((kind.kind, namespace, name))
        return record if isinstance(record, kind) else None

    def all_tracked(self, kind: type[Kind], namespace: str, group: str = "") -> list[Kind]:
        """Return all records of a kind, or those of one group; newest first."""
        records = [record for record in reversed(self._tracked.values()) if isinstance(record, kind)]
        return [record for record in records if record.namespace == namespace and group in ("", record.group)]

    def _place(self, job: JobState) -> int:
        return self._order[job.key]


def _is_about(event: RunEvent, subject: str) -> bool:
    return event.subject == subject or event.subject.startswith((f"{subject}/", f"{subject}#"))


def _matches(job: JobState, filter: JobFilter) -> bool:
    return (
        filter.namespace in ("", job.key.namespace)
        and filter.series in ("", job.series)
        and (not filter.phases or job.phase.value in filter.phases)
        and all(job.labels.get(name) == value for name, value in filter.labels.items())
    )


class FakePeople:
    """The `People` port with prepared users and groups."""

    def __init__(self, **groups: tuple[str, ...]) -> None:
        self.groups = groups

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Return the groups of a user; empty for an unknown user."""
        return self.groups.get(user, ())
