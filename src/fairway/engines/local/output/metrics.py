"""The metrics of running jobs: what they report, what they write for TensorBoard, what they print."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairway.app import crash
from fairway.app.ports import MetricPoint, Observation
from fairway.engines.local.folders import Home
from fairway.engines.local.output.logindex import LogIndex
from fairway.engines.local.output.pattern import compile_pattern
from fairway.errors import UsageError
from fairway.runtime import contract, folders
from fairway.runtime.eventfolder import LOG, REPORT, SOURCES, TENSORBOARD, EventFolder, joined
from fairway.runtime.growing import GrowingFile, GrowingFolder
from fairway.runtime.metrics import parse
from fairway.runtime.pattern import LinePattern, numbers
from fairway.state.job import Job, JobKey

MEMORY_FILE = "meter.json"
"""In the run's folder: how far its files were read and the points handed over."""

_ATTEMPT = re.compile(r"(?P<task>.+-\d+)-(?P<attempt>\d+)")
_FILE = re.compile(r"(?P<kind>metrics|out)-(?P<rank>\d+)\.(jsonl|log)")
_IDLE = 300.0
"""Seconds after which a run that nobody asks about is put out of memory."""


class Meter:
    """Measures runs of one home.

    Promises:

    1. Each point is handed over once, also across restarts of the daemon; after a crash some of the
       last call may come twice.
    2. A call for runs that wrote nothing costs a few stats a task.
    3. A file that is cut, damaged or half written gives what is whole in it, and no error.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._runs: dict[JobKey, _RunMeter] = {}

    def measure(self, jobs: Iterable[Job]) -> list[Observation]:
        """What is new of these runs; nothing for those where nothing is."""
        now = time.monotonic()
        found = []
        for job in jobs:
            run = self._runs.get(job.key)
            if run is None:
                run = self._runs[job.key] = _RunMeter(self._home.job(job.key), job)
            run.asked = now
            seen = run.measure(job.key)
            if seen is not None:
                found.append(seen)
        for key in [key for key, run in self._runs.items() if now - run.asked > _IDLE]:
            self._runs.pop(key).remember()
        return found

    def forget(self, key: JobKey) -> None:
        """Drop what is known of a run, for example because its folder is deleted."""
        self._runs.pop(key, None)

    def close(self) -> None:
        """Remember how far every run was read."""
        for run in self._runs.values():
            run.remember()
        self._runs.clear()


@dataclass(slots=True)
class _Attempt:
    """The folder of one attempt of one task."""

    folder: GrowingFolder
    task: str
    reports: dict[str, GrowingFile]
    logs: dict[str, GrowingFile]


class _RunMeter:
    """How far one run was read."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.asked = 0.0
        self._folder = folder
        self._attempts_folder = GrowingFolder(folder / "attempts")
        self._attempts: dict[str, _Attempt] = {}
        self._tensorboard = EventFolder(_tensorboard_folder(folder, job), job.created)
        self._checkpoints = GrowingFolder(folder / "checkpoints")
        self._checkpoint: tuple[int, float] | None = None
        self._pattern = _pattern(job)
        self._best = len(SOURCES)
        self._offsets: dict[str, int] = {}
        self._handed: dict[str, int] = {}
        self._load()

    def measure(self, key: JobKey) -> Observation | None:
        """What is new since the last call, which is taken to have been remembered by whoever called."""
        self.remember()
        self._look_for_attempts()
        points = self._points()
        checkpoint = self._new_checkpoint()
        self._handed = self._positions()
        if not points and checkpoint is None:
            return None
        step, moment = checkpoint or (None, None)
        return Observation(key, tuple(sorted(points, key=lambda point: point.time)), step, moment)

    def remember(self) -> None:
        """Note on disk how far the points were handed over by the call before this one."""
        if self._handed == self._offsets or not self._folder.is_dir():
            return
        aside = self._folder / f".{MEMORY_FILE}"
        try:
            aside.write_text(json.dumps({"best": self._best, "offsets": self._handed}))
            with crash.reach("engine.rename"):
                os.replace(aside, self._folder / MEMORY_FILE)
        except OSError:
            # A full disk: some points may be handed over twice after a restart, which is the lesser harm.
            return
        self._offsets = self._handed

    def _load(self) -> None:
        try:
            found = json.loads((self._folder / MEMORY_FILE).read_bytes())
            self._best = int(found["best"])
            self._offsets = {str(name): int(offset) for name, offset in found["offsets"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        self._handed = self._offsets

    def _positions(self) -> dict[str, int]:
        files: list[GrowingFile] = [*self._tensorboard.files.values()]
        for attempt in self._attempts.values():
            files += [*attempt.reports.values(), *attempt.logs.values()]
        return {self._name(file.path): file.offset for file in files if file.offset}

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else str(path)

    def _opened(self, path: Path) -> GrowingFile:
        return GrowingFile(path, self._offsets.get(self._name(path), 0))

    def _look_for_attempts(self) -> None:
        if self._attempts_folder.changed():
            for name in self._attempts_folder.names():
                match = _ATTEMPT.fullmatch(name)
                if match and name not in self._attempts:
                    self._attempts[name] = _Attempt(GrowingFolder(self._attempts_folder.path / name), match["task"], {}, {})
        for attempt in self._attempts.values():
            if attempt.folder.changed():
                self._look_for_files(attempt)

    def _look_for_files(self, attempt: _Attempt) -> None:
        for name in attempt.folder.names():
            match = _FILE.fullmatch(name)
            if match is None:
                continue
            rank = int(match["rank"])
            task = f"{attempt.task}.{rank}" if rank else attempt.task
            files = attempt.reports if match["kind"] == "metrics" else attempt.logs
            if task not in files and (files is attempt.reports or self._pattern):
                files[task] = self._opened(attempt.folder.path / name)

    def _points(self) -> list[MetricPoint]:
        """From the best source that has spoken, and on the way up from lesser ones."""
        readers = (self._reported, self._from_tensorboard, self._printed)
        points: list[MetricPoint] = []
        for rank, read in enumerate(readers):
            if rank > self._best:
                break
            found = list(read())
            points += found
            if found:
                self._best = rank
        return points

    def _reported(self) -> Iterator[MetricPoint]:
        for attempt in self._attempts.values():
            for task, file in attempt.reports.items():
                for _, line in file.new_lines():
                    entry = parse(line)
                    if entry:
                        yield MetricPoint(entry[0], entry[1], entry[2], task, REPORT)

    def _from_tensorboard(self) -> Iterator[MetricPoint]:
        self._tensorboard.look(lambda path: self._offsets.get(self._name(path), 0))
        for path, file in self._tensorboard.files.items():
            run = path.parent.name
            task = run if any(attempt.task == run for attempt in self._attempts.values()) else ""
            for moment, step, values in joined(file, self._tensorboard.prefix(path)):
                yield MetricPoint(moment, step, values, task, TENSORBOARD)

    def _printed(self) -> Iterator[MetricPoint]:
        if self._pattern is None:
            return
        for attempt in self._attempts.values():
            for task, file in attempt.logs.items():
                index = LogIndex(file.path.with_suffix(".index"))
                for offset, line in file.new_lines():
                    step, metrics = numbers(self._pattern, line)
                    if metrics or step is not None:
                        yield MetricPoint(index.time_of(offset) or file.written, step, metrics, task, LOG)

    def _new_checkpoint(self) -> tuple[int, float] | None:
        if not self._checkpoints.changed():
            return None
        # A half-written one is none: the program would pass it over, so we must not promise it.
        found = [
            (path, manifest)
            for path, manifest in folders.finished(self._checkpoints.path)
            if folders.matches(path, manifest, deep=False)
        ]
        if not found:
            return None
        path, manifest = max(found, key=lambda one: int(one[1]["sequence"]))
        try:
            newest = int(manifest["step"]), (path / contract.MANIFEST).stat().st_mtime
        except OSError:
            # Pruned between the two looks; the next call sees what took its place.
            return None
        if newest == self._checkpoint:
            return None
        self._checkpoint = newest
        return newest


def _tensorboard_folder(folder: Path, job: Job) -> Path:
    asked = job.spec.tensorboard.dir
    if not asked:
        return folder / "tensorboard"
    work = Path(job.origin.folder, job.spec.code.path) if job.spec.code.in_place else folder / "code"
    return work / asked


def _pattern(job: Job) -> LinePattern | None:
    if not job.spec.metrics.pattern:
        return None
    try:
        return compile_pattern(job.spec.metrics.pattern)
    except UsageError:
        # Documents are checked when they are taken; a run from before that check just has no such metrics.
        return None
