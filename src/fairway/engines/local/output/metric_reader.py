"""Collects the metrics of running jobs: from their reports, their TensorBoard files and their printed lines."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from fairway.app.port.port import MetricPoint, Observation
from fairway.app.system import crash_point
from fairway.engines.local.home import EngineHome
from fairway.engines.local.output.log_index import LogIndex
from fairway.engines.local.output.metric_detection import MetricDetector
from fairway.engines.local.output.pattern import compile_pattern
from fairway.engines.local.output.refusal import CHECKPOINT, MetricRefusals
from fairway.errors import UsageError
from fairway.runtime import checkpoint_folder, number, task_contract
from fairway.runtime.appended_file import AppendedFile, PolledFolder
from fairway.runtime.event_folder import AUTO, LOG, REPORT, SOURCES, TENSORBOARD, EventFolder, joined
from fairway.runtime.line_pattern import LinePattern, numbers
from fairway.runtime.metrics import parse
from fairway.runtime.regular_file import read_regular
from fairway.state.job import JobKey, JobState
from fairway.state.metric import MOST_METRICS

MEMORY_FILE = "meter.json"
"""File in the run's folder: the positions up to which points were handed over."""

LOOK_LIMIT = 8 << 20
"""Limit of bytes of reports, or of logs, read of one run at a time; the rest waits, so that other runs get their turn."""
EVENT_LOOK_LIMIT = 1 << 20
"""The same for event files, which take far longer to decode."""
DETECT_LIMIT = 1 << 20
"""The same for lines searched for metrics without a pattern."""
MOST_FILES = 1024
"""Limit of files read per attempt: one per process."""
MOST_SETS = 1000
"""Limit of different sets of names that a run may report; the store keeps one curve per set.

Further reports are split by name.
"""
_MEMORY_LIMIT = 64 << 20

_ATTEMPT = re.compile(r"(?P<task>[\w.-]+-[0-9]+)-(?P<attempt>[0-9]+)", re.ASCII)
_FILE = re.compile(r"(?P<kind>metrics|out)-(?P<rank>[0-9]{1,9})\.(jsonl|log)")
_BESIDE = 10.0
"""Seconds; a run that was measured within this time counts as running beside others."""
_IDLE = 300.0
"""Seconds after which a run that is no longer measured is dropped from memory."""

log = logging.getLogger("fairway.metrics")
_Read = TypeVar("_Read")


class MetricReader:
    """Measures runs of one home.

    Promises:

    1. Each point is handed over once, also across restarts of the daemon; after a crash some of the
       last call may come twice.
    2. A call for runs that wrote nothing costs a few stats per task.
    3. A file that is cut, damaged or half written gives what is whole in it, and no error.
    4. Every point that is handed over can be stored. What is refused is named in the observation, once per kind.
    5. Whatever a run wrote, the others are measured; one call reads a bounded part of it, and never waits.
    """

    def __init__(self, home: EngineHome) -> None:
        self._home = home
        self._runs: dict[JobKey, _RunMetricReader] = {}
        self._failed: set[JobKey] = set()

    def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return what is new of these runs, without those that have nothing new."""
        now = time.monotonic()
        observations = []
        for job in jobs:
            try:
                observation = self._measure(job, now)
            except Exception as error:  # A failure with one run must not hide the reports of the others.
                observation = None
                if job.key not in self._failed:
                    self._failed.add(job.key)
                    log.exception("the reports of %s cannot be read", job.key)
                    why = f"report refused: what the run wrote cannot be read ({type(error).__name__}: {error})"
                    observation = Observation(job.key, refused=(why,))
            if observation is not None:
                observations.append(observation)
        for key in [key for key, run in self._runs.items() if now - run.asked > _IDLE]:
            self._runs.pop(key).remember()
        return observations

    def _measure(self, job: JobState, now: float) -> Observation | None:
        run = self._runs.get(job.key)
        if run is None:
            run = self._runs[job.key] = _RunMetricReader(self._home.job(job.key), job)
        run.asked = now
        for other in self._runs.values():
            if other is not run and other.work == run.work and now - other.asked < _BESIDE:
                other.share()
                run.share()
        return run.measure(job.key)

    def forget(self, key: JobKey) -> None:
        """Drop the state of a run, for example because its folder is deleted."""
        self._runs.pop(key, None)
        self._failed.discard(key)

    def close(self) -> None:
        """Save the positions of every run."""
        for run in self._runs.values():
            run.remember()
        self._runs.clear()


@dataclass(slots=True)
class _AttemptFiles:
    """The folder of one attempt of one task."""

    folder: PolledFolder
    task: str
    reports: dict[str, AppendedFile]
    logs: dict[str, AppendedFile]


class _RunMetricReader:
    """The read positions of one run."""

    def __init__(self, folder: Path, job: JobState) -> None:
        self.asked = 0.0
        self.work = _work_folder(folder, job)
        """The working folder of the program."""
        self._folder = folder
        self._attempts_folder = PolledFolder(folder / "attempts")
        self._attempts: dict[str, _AttemptFiles] = {}
        self._tensorboard = EventFolder(_tensorboard_folder(folder, job), job.created)
        self._checkpoints = PolledFolder(folder / "checkpoints")
        self._checkpoint: tuple[int, float] | None = None
        self._pattern = _pattern(job)
        self._best = len(SOURCES)
        self._offsets: dict[str, int] = {}
        self._handed: dict[str, int] = {}
        self._refusals = MetricRefusals()
        self._names = set(job.progress.metrics)
        self._sets: set[frozenset[str]] = set()
        self._looks = 0
        self._load()
        self._detected = MetricDetector(job, self.work, self._offset) if job.spec.metrics.auto else None

    def measure(self, key: JobKey) -> Observation | None:
        """Return what is new since the last call, whose results the caller is taken to have stored."""
        self.remember()
        self._looks += 1
        self._look_for_attempts()
        points = self._points()
        checkpoint = next(iter(self._contained(CHECKPOINT, self._new_checkpoint)), None)
        self._handed = self._positions()
        refused = self._refusals.take()
        if not points and checkpoint is None and not refused:
            return None
        step, moment = checkpoint or (None, None)
        return Observation(key, tuple(sorted(points, key=lambda point: point.time)), step, moment, refused)

    def remember(self) -> None:
        """Save the positions up to which the calls before this one handed points over."""
        if self._handed == self._offsets or not self._folder.is_dir():
            return
        aside = self._folder / f".{MEMORY_FILE}"
        try:
            # Do not follow a link or open a pipe that the program may have put there.
            handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump({"best": self._best, "offsets": self._handed, "refused": sorted(self._refusals.kinds)}, file)
            with crash_point.reach("engine.rename"):
                os.replace(aside, self._folder / MEMORY_FILE)
        except OSError:
            # The disk is full: some points may be handed over twice after a restart, which is the lesser harm.
            return
        self._offsets = self._handed

    def _load(self) -> None:
        try:
            document = json.loads(read_regular(self._folder / MEMORY_FILE, _MEMORY_LIMIT))
            best, offsets = number.count(document["best"]), document["offsets"]
            positions = {str(name): place for name, offset in offsets.items() if (place := number.count(offset)) is not None}
            refused = [kind for kind in document.get("refused", ()) if isinstance(kind, str)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
        if best is None:
            return
        self._best = min(best, len(SOURCES))
        self._offsets = self._handed = positions
        self._refusals.remember(refused)

    def _positions(self) -> dict[str, int]:
        files: list[AppendedFile] = [*self._tensorboard.files.values()]
        for attempt in self._attempts.values():
            files += [*attempt.reports.values(), *attempt.logs.values()]
        detected = self._detected.positions() if self._detected else {}
        places = {**detected, **{file.path: file.offset for file in files}}
        return {self._name(path): offset for path, offset in places.items() if offset}

    def _offset(self, path: Path) -> int:
        return self._offsets.get(self._name(path), 0)

    def share(self) -> None:
        """Ignore found files from now on: another run has the same working folder, so that their owner is unknown."""
        if self._detected:
            self._detected.leave_files()

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else str(path)

    def _opened(self, path: Path) -> AppendedFile:
        return AppendedFile(path, self._offset(path))

    def _look_for_attempts(self) -> None:
        if self._attempts_folder.changed():
            for name in self._attempts_folder.names():
                match = _ATTEMPT.fullmatch(name)
                if match and name not in self._attempts:
                    self._attempts[name] = _AttemptFiles(PolledFolder(self._attempts_folder.path / name), match["task"], {}, {})
        for attempt in self._attempts.values():
            if attempt.folder.changed():
                self._look_for_files(attempt)

    def _look_for_files(self, attempt: _AttemptFiles) -> None:
        for name in attempt.folder.names():
            match = _FILE.fullmatch(name)
            if match is None:
                continue
            rank = int(match["rank"])
            task = f"{attempt.task}.{rank}" if rank else attempt.task
            files = attempt.reports if match["kind"] == "metrics" else attempt.logs
            if task in files or not (files is attempt.reports or self._pattern or self._detected):
                continue
            if len(files) >= MOST_FILES:
                self._refusals.add(REPORT, "files", f"{name} is not read; an attempt has at most {MOST_FILES:,} such files", task)
                return
            files[task] = self._opened(attempt.folder.path / name)

    def _points(self) -> list[MetricPoint]:
        """Return the points of the best source that has data, and of lesser sources until a better one has some."""
        readers = (self._reported, self._from_tensorboard, self._printed, self._from_habits)
        points: list[MetricPoint] = []
        for rank, read in enumerate(readers):
            if rank > self._best:
                break
            points_found = [part for point in self._contained(SOURCES[rank], read) for part in self._limited(point)]
            points += points_found
            if points_found:
                self._best = rank
        return points

    def _contained(self, source: str, read: Callable[[], Iterator[_Read]]) -> list[_Read]:
        """Return what one source yields until it fails. The failure is recorded, and the other sources are read."""
        items: list[_Read] = []
        try:
            items.extend(read())
        except Exception as error:  # A program can write what no reader has foreseen.
            if self._refusals.add(source, "failed", f"it cannot be read ({type(error).__name__}: {error})"):
                log.exception("%s: the source %s cannot be read", self._folder, source)
        return items

    def _limited(self, point: MetricPoint) -> list[MetricPoint]:
        """Return the point without names beyond the limit of a run, split by name beyond the limit of sets."""
        new = point.metrics.keys() - self._names
        if new:
            room = MOST_METRICS - len(self._names)
            left_out = sorted(new)[room:] if room > 0 else sorted(new)
            if left_out:
                reason = f"metric {number.shown(left_out[0])} is left out; a run has at most {MOST_METRICS:,} metrics"
                self._refusals.add(point.source, "many", reason, point.task)
                metrics = {name: value for name, value in point.metrics.items() if name not in left_out}
                if not metrics:
                    return []
                point = replace(point, metrics=metrics)
            self._names |= point.metrics.keys()
        names = frozenset(point.metrics)
        if names in self._sets or len(self._sets) < MOST_SETS:
            self._sets.add(names)
            return [point]
        return [replace(point, metrics={name: value}) for name, value in point.metrics.items()]

    def _turns(self, files: Iterable[tuple[str, AppendedFile]], limit: int) -> Iterator[tuple[str, AppendedFile]]:
        """Yield the files, starting with another one at every call, until the limit of bytes is reached."""
        listed = list(files)
        first = self._looks % len(listed) if listed else 0
        read = 0
        for task, file in listed[first:] + listed[:first]:
            before = file.offset
            yield task, file
            read += max(0, file.offset - before)
            if read >= limit:
                return

    def _reported(self) -> Iterator[MetricPoint]:
        files = ((task, file) for attempt in self._attempts.values() for task, file in attempt.reports.items())
        for task, file in self._turns(files, LOOK_LIMIT):
            refuse = self._refusals.of(REPORT, task)
            for _, line in file.new_lines(refuse):
                entry = parse(line, refuse)
                if entry:
                    yield MetricPoint(entry[0], entry[1], entry[2], task, REPORT)

    def _from_tensorboard(self) -> Iterator[MetricPoint]:
        self._tensorboard.look(self._offset)
        files = self._tensorboard.files
        for name, _ in self._turns(((str(path), file) for path, file in files.items()), EVENT_LOOK_LIMIT):
            path = Path(name)
            run = path.parent.name
            task = run if any(attempt.task == run for attempt in self._attempts.values()) else ""
            for moment, step, values in joined(files[path], self._tensorboard.prefix(path), self._refusals.of(TENSORBOARD)):
                yield MetricPoint(moment, step, values, task, TENSORBOARD)

    def _printed(self) -> Iterator[MetricPoint]:
        if self._pattern is None:
            return
        files = ((task, file) for attempt in self._attempts.values() for task, file in attempt.logs.items())
        for task, file in self._turns(files, LOOK_LIMIT):
            index = LogIndex(file.path.with_suffix(".index"))
            refuse = self._refusals.of(LOG, task)
            for offset, line in file.new_lines(refuse):
                step, metrics = numbers(self._pattern, line, refuse)
                if metrics or step is not None:
                    entry = number.point(index.time_of(offset) or file.written, step, dict(metrics), refuse)
                    if entry:
                        yield MetricPoint(entry[0], entry[1], entry[2], task, LOG)

    def _from_habits(self) -> Iterator[MetricPoint]:
        if self._detected is None:
            return
        yield from self._detected.from_files(self._refusals.of(AUTO))
        if self._pattern is None:
            files = ((task, file) for attempt in self._attempts.values() for task, file in attempt.logs.items())
            for task, file in self._turns(files, DETECT_LIMIT):
                yield from self._detected.from_log(task, file, self._refusals.of(AUTO, task))

    def _new_checkpoint(self) -> Iterator[tuple[int, float]]:
        if not self._checkpoints.changed():
            return
        # A partly written checkpoint does not count: the program would skip it, so that it must not be reported.
        checkpoints = [
            (path, manifest)
            for path, manifest in checkpoint_folder.finished(self._checkpoints.path, self._refusals.of(CHECKPOINT))
            if checkpoint_folder.matches(path, manifest, deep=False)
        ]
        if not checkpoints:
            return
        path, manifest = max(checkpoints, key=lambda pair: int(pair[1]["sequence"]))
        try:
            written = (path / task_contract.MANIFEST).stat().st_mtime
        except OSError:
            # Pruned meanwhile; the next call sees its successor.
            return
        newest = int(manifest["step"]), written
        if newest != self._checkpoint and number.moment(written) is not None:
            self._checkpoint = newest
            yield newest


def _work_folder(folder: Path, job: JobState) -> Path:
    return Path(job.origin.folder, job.spec.code.path) if job.spec.code.in_place else folder / "code"


def _tensorboard_folder(folder: Path, job: JobState) -> Path:
    return _work_folder(folder, job) / job.spec.tensorboard.dir if job.spec.tensorboard.dir else folder / "tensorboard"


def _pattern(job: JobState) -> LinePattern | None:
    if not job.spec.metrics.pattern:
        return None
    try:
        return compile_pattern(job.spec.metrics.pattern)
    except UsageError:
        # Patterns are validated when a document is accepted; a run from before that check has no such metrics.
        return None
