"""Commit object by object: what cannot be stored is a failure of one object only, and everything else is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairway.app.port.port import ChangeSet, MetricPoint, Store
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.task import Task

NOTE_LIMIT = 500
"""Maximum number of characters of a cause in its event."""


@dataclass(slots=True)
class RejectedChanges:
    """Changes that a store did not accept, each with its cause."""

    runs: dict[JobKey, Exception] = field(default_factory=dict)
    """Runs of which none of the changes was stored."""
    points: dict[JobKey, Exception] = field(default_factory=dict)
    """Runs of which everything except the metric points was stored; the points are dropped."""
    memory: Exception | None = None
    """Why the scheduler's memory was not stored."""
    rest: Exception | None = None
    """Why changes that belong to no run (queues, events of other objects) were not stored."""

    def __bool__(self) -> bool:
        """Return whether anything was rejected."""
        return bool(self.runs or self.points or self.memory or self.rest)


def commit_each(store: Store, changes: ChangeSet, now: float) -> RejectedChanges:
    """Store all changes at once or, if that fails, object by object.

    The changes of one run are stored together or not at all, except that metric points that cannot be stored are dropped. Raises
    the store's error if it accepts nothing at all: then the store is at fault, not an object.
    """
    first = _problem(store, changes)
    if first is None:
        return RejectedChanges()
    parts, rest = _split(changes)
    rejected = RejectedChanges()
    stored = [_commit_run(store, run, part, rejected) for run, part in parts.items()]
    if changes.memory is not None and not rejected.runs:
        # Otherwise the memory would contain starts that were not stored.
        rejected.memory = _problem(store, ChangeSet(memory=changes.memory))
        stored.append(rejected.memory is None)
    if rest != ChangeSet():
        rejected.rest = _problem(store, rest)
        stored.append(rejected.rest is None)
    if not any(stored):
        note = RunEvent(now, "store", "Rejected", str(first)[:NOTE_LIMIT])
        if _problem(store, ChangeSet(events=(note,))) is not None:
            # The store accepts nothing, for example because the disk is full.
            raise first
    return rejected


def _commit_run(store: Store, run: JobKey, part: ChangeSet, rejected: RejectedChanges) -> bool:
    """Store one run's changes, if necessary without its points. Return whether anything was stored."""
    problem = _problem(store, part)
    if problem is None:
        return True
    bare = replace(part, points=())
    if bare == ChangeSet():
        rejected.points[run] = problem
        return False
    if part.points and _problem(store, bare) is None:
        rejected.points[run] = problem
        return True
    rejected.runs[run] = problem
    return False


def _problem(store: Store, changes: ChangeSet) -> Exception | None:
    """Commit, and return the store's error; None on success."""
    try:
        store.commit(changes)
    except Exception as problem:  # noqa: BLE001 - whatever error one object causes, the others are stored.
        return problem
    return None


def _split(changes: ChangeSet) -> tuple[dict[JobKey, ChangeSet], ChangeSet]:
    """Return the changes of each run, in order, and the changes that belong to no run."""
    parts: dict[JobKey, dict[str, list[Any]]] = {}

    def add(run: JobKey, kind: str, value: object) -> None:
        parts.setdefault(run, {}).setdefault(kind, []).append(value)

    for job in changes.jobs:
        add(job.key, "jobs", job)
    for task in changes.tasks:
        add(task.key.run, "tasks", task)
    for point in changes.points:
        add(point[0], "points", point)
    for key in changes.deleted:
        add(key, "deleted", key)
    runs_by_name = {str(run): run for run in parts}
    others = []
    for event in changes.events:
        run = runs_by_name.get(event.run)
        if run is None:
            others.append(event)
        else:
            add(run, "events", event)
    rest = replace(changes, jobs=(), tasks=(), points=(), deleted=(), events=tuple(others), memory=None)
    return {run: _changes(**part) for run, part in parts.items()}, rest


def _changes(
    jobs: Sequence[JobState] = (),
    tasks: Sequence[Task] = (),
    points: Sequence[tuple[JobKey, MetricPoint]] = (),
    deleted: Sequence[JobKey] = (),
    events: Sequence[RunEvent] = (),
) -> ChangeSet:
    return ChangeSet(jobs=tuple(jobs), tasks=tuple(tasks), points=tuple(points), deleted=tuple(deleted), events=tuple(events))
