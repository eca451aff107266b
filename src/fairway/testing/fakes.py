"""Fakes of the ports, for tests of what stands on them. Each passes the suite of its port."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.app.ports import Changes, JobFilter, JobPage, MetricPoint
from fairway.app.tracking_ports import Kind
from fairway.errors import UsageError
from fairway.plan.retention import deadlines
from fairway.state.event import Event
from fairway.state.job import Job, JobKey
from fairway.state.queue import Queue
from fairway.state.receipt import LIFE, MOST, Receipt
from fairway.state.recovery import Unreadable
from fairway.state.service import ServiceKey, ServiceRecord
from fairway.state.task import Task, TaskKey
from fairway.state.tracking import Tracked, TrackedRun


class MemoryStore:
    """The `Store` port in dictionaries: remembers until the process ends."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._jobs: dict[JobKey, Job] = {}
        self._order: dict[JobKey, int] = {}
        self._arrivals = 0
        self._tasks: dict[JobKey, dict[TaskKey, Task]] = {}
        self._events: list[Event] = []
        self._points: dict[JobKey, list[MetricPoint]] = {}
        self._queues: dict[str, Queue] = {}
        self._services: dict[ServiceKey, ServiceRecord] = {}
        self._memory: bytes | None = None
        self._tracked: dict[tuple[str, str, str], Tracked] = {}
        self._deleted: set[JobKey] = set()
        self._receipts: dict[str, Receipt] = {}

    def close(self) -> None:
        """Nothing to let go of."""

    def next_number(self, namespace: str, series: str) -> int:
        """Take the next run number of a series, for good."""
        number = self._numbers.get((namespace, series), 0) + 1
        self._numbers[namespace, series] = number
        return number

    def commit(self, changes: Changes) -> None:
        """Remember all of it."""
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
        for gone in changes.services_deleted:
            self._services.pop(gone, None)
        self._memory = self._memory if changes.memory is None else changes.memory
        self._events.extend(changes.events)
        self._put_receipts(changes.receipts)

    def _put_receipts(self, receipts: tuple[Receipt, ...]) -> None:
        for receipt in receipts:
            self._receipts[receipt.id] = receipt
            kept = [each for each in self._receipts.values() if each.time > receipt.time - LIFE]
            self._receipts = {each.id: each for each in kept[-MOST:]}

    def receipt(self, id: str) -> Receipt | None:
        """What the request of that id did; None when it is not known, or no longer."""
        return self._receipts.get(id)

    def _forget(self, key: JobKey) -> None:
        self._deleted.add(key)
        for known in (self._jobs, self._order, self._tasks, self._points):
            known.pop(key, None)
        gone = [place for place, record in self._tracked.items() if record.owner == str(key)]
        for _, namespace, name in gone:
            self._points.pop(JobKey(namespace, name), None)
        self._tracked = {place: record for place, record in self._tracked.items() if place not in gone}
        self._events = [event for event in self._events if not _is_about(event, str(key))]

    def active_jobs(self) -> list[Job]:
        """The runs that are not over, oldest first."""
        return [job for job in sorted(self._jobs.values(), key=self._place) if not job.phase.over]

    def tasks_of(self, key: JobKey) -> list[Task]:
        """Every attempt of every task of a run."""
        found = self._tasks.get(key, {})
        return [found[name] for name in sorted(found)]

    def job_keys(self) -> set[JobKey]:
        """The names of all runs."""
        return set(self._jobs)

    def has_job(self, key: JobKey) -> bool:
        """Whether there is a record of the run."""
        return key in self._jobs

    def get_job(self, key: JobKey) -> Job | None:
        """One run."""
        return self._jobs.get(key)

    def mark_deleted(self, keys: Sequence[JobKey]) -> None:
        """Note that these runs are being deleted."""
        self._deleted.update(keys)

    def was_deleted(self, key: JobKey) -> bool:
        """Whether the run was deleted."""
        return key in self._deleted and key not in self._jobs

    def raise_number(self, namespace: str, series: str, number: int) -> None:
        """Let the next run number of a series be above this one."""
        self._numbers[namespace, series] = max(number, self._numbers.get((namespace, series), 0))

    def unreadable(self) -> list[Unreadable]:
        """None: nothing is encoded."""
        return []

    def newest(self, namespace: str, series: str) -> Job | None:
        """The newest run of a series."""
        runs = [job for job in self._jobs.values() if job.key.namespace == namespace and job.series == series]
        return max(runs, key=lambda job: job.number, default=None)

    def list_jobs(self, filter: JobFilter) -> JobPage:
        """Runs, newest first."""
        if filter.before and not filter.before.isdigit():
            message = f"before={filter.before!r} is not a cursor"
            raise UsageError(message, fix="take it from `next` of the page before")
        matching = [job for job in sorted(self._jobs.values(), key=self._place, reverse=True) if _matches(job, filter)]
        rest = [job for job in matching if not filter.before or self._place(job) < int(filter.before)]
        page = rest[: filter.limit]
        following = str(self._place(page[-1])) if page and len(rest) > len(page) else ""
        return JobPage(tuple(page), following, len(matching))

    def events_of(self, subject: str, limit: int = 1000) -> list[Event]:
        """Events of a run and of its tasks, or of everything when the subject is empty; oldest first, the newest `limit`."""
        found = [event for event in self._events if not subject or _is_about(event, subject)]
        return found[max(0, len(found) - limit) :]

    def events_in(self, namespace: str, limit: int = 1000) -> list[Event]:
        """Events of the runs, tasks and services of a namespace; oldest first, the newest `limit`."""
        events = [event for event in self._events if event.subject.startswith((f"{namespace}/", f"service:{namespace}/"))]
        return events[max(0, len(events) - limit) :]

    def points_of(self, key: JobKey, metric: str = "", limit: int = 2000) -> list[MetricPoint]:
        """Metric points of a run in order of time; thinned evenly to at most `limit`."""
        found = sorted(
            (point for point in self._points.get(key, []) if not metric or metric in point.metrics), key=lambda point: point.time
        )
        if len(found) <= limit:
            return found
        return [found[place * (len(found) - 1) // max(1, limit - 1)] for place in range(limit)]

    def expired(self, now: float, limit: int) -> tuple[list[Job], list[Job]]:
        """Runs whose logs, and runs of which everything, has stayed its time; so many of each at most."""
        until = {job.key: deadlines(job) for job in self._jobs.values()}
        logs = [job for job in self._jobs.values() if (at := until[job.key].logs) is not None and at <= now]
        records = [job for job in self._jobs.values() if (at := until[job.key].record) is not None and at <= now]
        return logs[:limit], records[:limit]

    def series_names(self, namespace: str) -> list[str]:
        """The names of all series that have runs."""
        return sorted({job.series for job in self._jobs.values() if not namespace or job.key.namespace == namespace})

    def services(self) -> list[ServiceRecord]:
        """The services that were put and not deleted, in order of namespace and name."""
        return [self._services[key] for key in sorted(self._services)]

    def queues(self) -> list[Queue]:
        """The queues that were put and not deleted, in order of name."""
        return [self._queues[name] for name in sorted(self._queues)]

    def memory(self) -> bytes | None:
        """What the scheduler remembers, as committed last; None when it never was."""
        return self._memory

    def tracked(self, kind: type[Kind], namespace: str, name: str) -> Kind | None:
        """What was tracked under that name."""
        found = self._tracked.get((kind.kind, namespace, name))
        return found if isinstance(found, kind) else None

    def all_tracked(self, kind: type[Kind], namespace: str, group: str = "") -> list[Kind]:
        """Everything of a kind, or what belongs to one group; the newest first."""
        records = [record for record in reversed(self._tracked.values()) if isinstance(record, kind)]
        return [record for record in records if record.namespace == namespace and group in ("", record.group)]

    def _place(self, job: Job) -> int:
        return self._order[job.key]


def _is_about(event: Event, subject: str) -> bool:
    return event.subject == subject or event.subject.startswith((f"{subject}/", f"{subject}#"))


def _matches(job: Job, filter: JobFilter) -> bool:
    return (
        filter.namespace in ("", job.key.namespace)
        and filter.series in ("", job.series)
        and (not filter.phases or job.phase.value in filter.phases)
        and all(job.labels.get(name) == value for name, value in filter.labels.items())
    )


class FakePeople:
    """The `People` port: users and their groups as a test says."""

    def __init__(self, **groups: tuple[str, ...]) -> None:
        self.groups = groups

    def groups_of(self, user: str) -> tuple[str, ...]:
        """The groups of a user; none when nobody is called so."""
        return self.groups.get(user, ())
