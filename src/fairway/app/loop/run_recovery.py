"""Recover runs of which an engine keeps more than the store has recorded.

The store may be older than the runs: it was lost, or a backup was restored. Nothing is removed because of that. A run whose
folder holds its record is adopted with its attempts, including running tasks; a folder that cannot be read is kept and reported.
Only runs whose deletion had begun, and the files of an unfinished submit, are removed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from fairway.app.port.port import ChangeSet, Clock, Engine, Store
from fairway.app.system import crash_point
from fairway.errors import ConflictError, NotFoundError
from fairway.plan import record_rebuild
from fairway.plan.action import ForgetJob
from fairway.plan.record_rebuild import RecordedAttempt
from fairway.state.database_recovery import DatabaseRecovery, UnknownFolder
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.observation import fold_report
from fairway.state.task import Task, TaskKey, TaskReport
from fairway.units import names

SUBJECT = "home"
"""The subject of recovery events."""
MOST_KEPT = 20
"""Maximum number of recoveries that are kept."""
_SHOWN = 10

log = logging.getLogger("fairway.recovery")

__all__ = ["KeptRuns", "RecordedAttempt", "RecoveryLog", "RunRecovery", "UnreadableRunError"]


class UnreadableRunError(ValueError):
    """The data that an engine keeps of a run does not suffice to rebuild its record."""


class KeptRuns(Protocol):
    """The data that an engine keeps of runs, readable without the store."""

    def path(self, key: JobKey) -> str:
        """Return the run's folder."""
        ...

    def job(self, key: JobKey) -> JobState:
        """Return the run; `UnreadableRunError` if its record is missing or cannot be read."""
        ...

    def keys(self) -> list[JobKey]:
        """Return runs that are known in addition to those of which the engine keeps data."""
        ...

    def attempts(self, key: JobKey) -> list[RecordedAttempt]:
        """Return every attempt that was created."""
        ...

    async def reports(self, keys: Sequence[TaskKey]) -> list[TaskReport]:
        """Return the outcomes of these tasks, without touching any other task."""
        ...

    def never_recorded(self, key: JobKey) -> bool:
        """Return whether only the files of an unfinished submit exist."""
        ...

    def running(self, key: JobKey) -> bool:
        """Return whether a task of the run is running."""
        ...

    def reread(self, key: JobKey) -> None:
        """Make the engine read the run's metrics from the start."""
        ...


class RecoveryLog:
    """The recoveries of this home, in a separate file: it must outlive the database."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> tuple[DatabaseRecovery, ...]:
        """Return all recoveries, newest first."""
        try:
            return tuple(msgspec.json.decode(self._path.read_bytes(), type=list[DatabaseRecovery]))
        except (OSError, msgspec.MsgspecError):
            return ()

    def add(self, recovery: DatabaseRecovery) -> None:
        """Record a recovery. A full disk must not keep the daemon from starting."""
        entries: list[dict[str, Any]] = [asdict(entry) for entry in (recovery, *self.all())][:MOST_KEPT]
        aside = self._path.with_name(f".{self._path.name}")
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1)
            with crash_point.reach("recovery.rename"):
                os.replace(aside, self._path)
        except OSError as error:
            log.warning("the recovery cannot be recorded in %s: %s", self._path, error)


class RunRecovery:
    """Reconciles the store with what the engine keeps, once, before the loop loads its snapshot."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        kept: KeptRuns,
        clock: Clock,
        recoveries: RecoveryLog,
        found: DatabaseRecovery | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._kept = kept
        self._clock = clock
        self._recoveries = recoveries
        self._found = found
        """What was repaired when the database was opened."""
        self.unknown: tuple[UnknownFolder, ...] = ()
        """Folders of runs that cannot be recovered."""
        self.settled: Callable[[], None] = lambda: None
        """Called when all consequences of a recovery are stored."""
        self._active: set[JobKey] = set()
        self._taken: list[str] = []
        self._cpu: float | None = None

    async def run(self) -> None:
        """Recover all runs that the engine keeps. Safe to repeat."""
        recorded = self._store.job_keys()
        self._active = {job.key for job in self._store.active_jobs()}
        broken = {JobKey(*bad.key) for bad in self._store.unreadable() if bad.kind == "job"}
        unknown: list[UnknownFolder] = []
        for key in sorted({*await self._engine.kept(), *self._kept.keys()}):
            self._keep_number(key)
            if self._store.was_deleted(key):
                await self._finish_deletion(key)
            elif key in recorded and key not in broken:
                await self._complete(key)
            elif self._found is None and key not in recorded and self._kept.never_recorded(key):
                log.info("removing the files of %s: its submission was interrupted", key)
                await self._engine.perform([ForgetJob(key)])
            else:
                try:
                    await self._put(self._kept.job(key), self._store.tasks_of(key))
                except UnreadableRunError as error:
                    unknown.append(UnknownFolder(str(key), self._kept.path(key), str(error), self._kept.running(key)))
        for key in recorded:
            if self._store.was_deleted(key) and self._store.has_job(key):
                await self._finish_deletion(key)
        self.unknown = tuple(unknown)
        self._tell()

    def look(self) -> tuple[UnknownFolder, ...]:
        """Return the folders that could not be recovered and still exist."""
        return tuple(folder for folder in self.unknown if os.path.isdir(folder.path))

    def set_aside(self, name: str) -> str:
        """Move a folder that could not be recovered out of the way. Nothing in it is deleted."""
        folder = next((entry for entry in self.look() if entry.key == name), None)
        if folder is None:
            message = f"{name} is not an unreadable folder of this home"
            raise NotFoundError(message, fix="`fairway doctor` lists them")
        if self._kept.running(JobKey(*name.split("/", 1))):
            message = f"a task of {name} still runs"
            raise ConflictError(message, fix="wait for its end, or end its processes")
        aside = Path(folder.path).parents[2] / "set-aside"
        aside.mkdir(mode=0o700, exist_ok=True)
        target, count = aside / name.replace("/", "."), 1
        while target.exists():
            count += 1
            target = aside / f"{name.replace('/', '.')}.{count}"
        with crash_point.reach("recovery.rename"):
            os.rename(folder.path, target)
        return str(target)

    async def _finish_deletion(self, key: JobKey) -> None:
        await self._engine.perform([ForgetJob(key)])
        self._store.commit(ChangeSet(deleted=(key,)))

    def _keep_number(self, key: JobKey) -> None:
        """Ensure that no run number is reused, even if only the folder of a run remains."""
        series, number = names.split_run(key.name)
        if number is not None:
            self._store.raise_number(key.namespace, series, number)

    async def _complete(self, key: JobKey) -> None:
        """Add attempts that are missing in the run's record. If the database was intact, only running runs are compared."""
        if self._found is None and key not in self._active:
            return
        tasks = self._store.tasks_of(key)
        if record_rebuild.missing(tasks, self._kept.attempts(key)):
            job = self._newer(self._store.get_job(key), key)
            if job is not None:
                await self._put(job, tasks)
        elif key not in self._active:
            await self._settle([task for task in tasks if not task.phase.over])

    async def _settle(self, stale: Sequence[Task]) -> None:
        """Record the ends of the tasks of a finished run; the record is older than these ends."""
        reports = {report.key: report for report in await self._kept.reports([task.key for task in stale])}
        folded = [fold_report(task, reports[task.key]) for task in stale if task.key in reports]
        self._store.commit(ChangeSet(tasks=tuple(folded)))

    def _newer(self, stored: JobState | None, key: JobKey) -> JobState | None:
        """Return the run from the store or from its folder, whichever has the later attempt."""
        try:
            from_folder = self._kept.job(key)
        except UnreadableRunError:
            return stored
        return from_folder if stored is None or from_folder.attempt > stored.attempt else stored

    async def _put(self, job: JobState, known: Sequence[Task]) -> None:
        """Write the record of a run with the attempts that it lacks."""
        if self._cpu is None:
            self._cpu = sum(node.cpu for node in await self._engine.nodes())
        attempts = record_rebuild.missing(known, self._kept.attempts(job.key))
        reports = {report.key: report for report in await self._kept.reports([attempt.key for attempt in attempts])}
        rebuilt = record_rebuild.tasks(job, attempts, reports, self._cpu)
        job = record_rebuild.job(job, [*known, *rebuilt])
        event = RunEvent(self._clock.now(), str(job.key), "TakenUp", "its record was rebuilt from its files")
        self._store.commit(ChangeSet(jobs=(job,), tasks=tuple(rebuilt), events=(event,)))
        self._taken.append(str(job.key))
        if not known:
            self._kept.reread(job.key)
            if job.phase.over:
                await self._measure(job)

    async def _measure(self, job: JobState) -> None:
        """Store the metrics of a finished run; the loop reads those of a running one."""
        measured = await self._engine.measure([job])
        for observation in measured:
            self._store.commit(ChangeSet(points=tuple((observation.key, point) for point in observation.points)))
        if measured:
            self._engine.release(job.key)

    def _tell(self) -> None:
        """Report what was recovered: in the log, as an event, and in the file that `fairway doctor` reads."""
        now, base, adopted = self._clock.now(), self._found, self._taken
        if adopted and base is None:
            base = DatabaseRecovery(now, "folders", "runs were found that are missing in the database")
        if base is None:
            return
        words = base.message
        if adopted:
            words += f"; {len(adopted)} runs were rebuilt from their files: {_listed(adopted)}"
        if self.unknown:
            words += (
                f"; {len(self.unknown)} folders cannot be read and are kept: {_listed([folder.key for folder in self.unknown])}"
            )
        recovery = replace(base, message=words, rebuilt=tuple(adopted))
        lost = f"; lost: {'; '.join(recovery.lost)}" if recovery.lost else ""
        where = f"; the database that was found is now {recovery.moved}" if recovery.moved else ""
        log.warning("%s%s%s (`fairway doctor` shows this)", words, where, lost)
        self._store.commit(ChangeSet(events=(RunEvent(now, SUBJECT, "Recovered", f"{words}{lost}"),)))
        self._recoveries.add(recovery)
        self.settled()


def _listed(found: Sequence[str]) -> str:
    shown = ", ".join(found[:_SHOWN])
    return shown if len(found) <= _SHOWN else f"{shown} and {len(found) - _SHOWN} more"
