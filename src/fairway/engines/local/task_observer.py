"""Determines the state of a task from its folder alone: the same for the daemon that started it and for a later one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairway.app.port.port import Clock
from fairway.app.system import crash_point
from fairway.engines.local import file_lock
from fairway.engines.local.home import LOCK, ORDER, EngineHome
from fairway.engines.local.supervision import attempt_record
from fairway.engines.local.supervision.process import descendant
from fairway.engines.local.supervision.process.cgroup import Cgroup
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity, boot_id
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskExit, TaskKey, TaskReport
from fairway.units.quantity import show_bytes

HOST = "127.0.0.1"
LAST_WORDS = "supervisor.log"
"""The file with the error of a supervisor that failed."""
KILLED = "its supervisor was killed, so its exit status is unknown; its remaining processes were ended"
WENT_DOWN = "the machine went down while it ran, so its exit status is unknown"
BAD = "bad"
"""Marks an end record that replaces an unusable one."""
_HIGHEST_PORT = 65_535
_LONGEST_LINE = 500
_PATIENCE = 5.0
"""Seconds to wait for killed processes to end."""
_CLEAN_UP_PATIENCE = 60.0
"""Timeout of a clean-up command, in seconds."""


@dataclass(frozen=True, slots=True)
class TaskSight:
    """The observed state of one task."""

    report: TaskReport
    supervisor: ProcessIdentity | None = None
    """The process that supervises it, while it runs."""


class TaskObserver:
    """Reads the folders of attempts. It writes only to finish what a killed supervisor could not."""

    def __init__(self, home: EngineHome, clock: Clock) -> None:
        self._home = home
        self._clock = clock

    async def look(self, key: TaskKey) -> TaskSight:
        """Return the state of one task."""
        folder = self._home.attempt(key)
        # Test the lock first: a supervisor releases it only after it has written the end record.
        try:
            if file_lock.is_held(f"{folder}/{LOCK}"):
                return self._running(key, folder)
        except OSError as problem:
            return self._without_lock(key, folder, f"{folder}/{LOCK} cannot be used: {problem.strerror}")
        ended = read_end(folder)
        if (ended is None or BAD in ended) and os.path.lexists(f"{folder}/{attempt_record.STARTED}"):
            ended = await asyncio.to_thread(self._bury, folder)
            if ended is None:
                return self._running(key, folder, "its supervisor was killed; its remaining processes cannot be ended yet")
        if ended is not None:
            return TaskSight(over_report(key, ended))
        if folder.is_dir():
            return TaskSight(TaskReport(key, TaskPhase.PENDING))
        return TaskSight(TaskReport(key, TaskPhase.LOST, message="its state is unknown: its folder does not exist"))

    def _running(self, key: TaskKey, folder: Path, message: str = "") -> TaskSight:
        try:
            started_record = attempt_record.load_record(str(folder), attempt_record.STARTED)
        except attempt_record.InvalidRecordError as problem:
            # The supervisor holds its lock, so that the task runs, whatever has happened to its record.
            started_record, message = {}, message or f"{problem}; the task overwrote it"
        if started_record is None:
            # The supervisor waits for the go-ahead, perhaps of a daemon that died: nothing has been started, and may never be.
            return TaskSight(TaskReport(key, TaskPhase.PENDING))
        report = TaskReport(
            key,
            TaskPhase.RUNNING,
            started=attempt_record.time_of(started_record.get("started")),
            address=address_of(read_ports(folder)),
            message=message,
        )
        return TaskSight(report, ProcessIdentity.from_dict(started_record.get("supervisor")))

    def _without_lock(self, key: TaskKey, folder: Path, why: str) -> TaskSight:
        """Derive the state from supervisor and records when the task has replaced its lock file by something else."""
        sight = self._running(key, folder, why)
        if sight.supervisor is not None and sight.supervisor.alive:
            return sight
        return TaskSight(over_report(key, read_end(folder) or {"lost": why}))

    def _bury(self, folder: Path) -> dict[str, object] | None:
        """Clean up after a killed supervisor: end the processes left behind and record the task as lost."""
        lock = file_lock.take(folder / LOCK)
        if lock is None:
            return None
        try:
            # The end may have been recorded between the first look and taking the lock.
            ended = read_end(folder)
            if ended is not None and BAD not in ended:
                return ended
            started_record = attempt_record.read_record(str(folder), attempt_record.STARTED) or {}
            if not _end_leftovers(folder, started_record):
                return None
            if ended is not None:
                # The unusable record stays in place as evidence.
                return ended
            why = _why_lost(folder, started_record)
            started = attempt_record.time_of(started_record.get("started"))
            content: dict[str, object] = {"lost": why, "started": started, "finished": self._clock.now()}
            with crash_point.reach("engine.rename"):
                attempt_record.write_record(str(folder), attempt_record.EXIT, content)
            return content
        finally:
            file_lock.release(lock)


def read_end(folder: Path) -> dict[str, object] | None:
    """Return the end record of a task with every value checked; None when there is none.

    An unusable record reads as that of a lost task. It names the file and the value, and is marked with `BAD`.
    """
    try:
        ended = attempt_record.load_record(str(folder), attempt_record.EXIT)
        if ended is not None:
            attempt_record.check_exit(f"{folder}/{attempt_record.EXIT}", ended)
    except attempt_record.InvalidRecordError as problem:
        return {"lost": f"the record of its end cannot be used: {problem}", BAD: True}
    return ended


def over_report(key: TaskKey, ended: dict[str, object]) -> TaskReport:
    """Convert an end record to a report."""
    started, finished = attempt_record.time_of(ended.get("started")), attempt_record.time_of(ended.get("finished"))
    if ended.get("lost"):
        return TaskReport(key, TaskPhase.LOST, started=started, finished=finished, message=str(ended["lost"]))
    exit_ = TaskExit(
        code=attempt_record.step_of(ended.get("code")),
        signal=attempt_record.step_of(ended.get("signal")),
        rank=attempt_record.step_of(ended.get("rank")) or 0,
        out_of_memory=bool(ended.get("out_of_memory")),
        by_us=bool(ended.get("by_us")),
        interrupted=bool(ended.get("interrupted")),
        tail=str(ended.get("tail") or ""),
        traceback_digest=str(ended.get("traceback_digest") or ""),
        reached_step=attempt_record.step_of(ended.get("reached_step")),
        world=attempt_record.step_of(ended.get("world")) or 0,
        leads=bool(ended.get("leads")),
        error=str(ended.get("error") or ""),
        error_rank=attempt_record.step_of(ended.get("error_rank")),
        error_code=attempt_record.step_of(ended.get("error_code")),
        error_signal=attempt_record.step_of(ended.get("error_signal")),
    )
    if exit_.by_us:
        phase, message = TaskPhase.STOPPED, str(ended.get("said") or "")
    elif exit_.code == 0:
        phase, message = TaskPhase.SUCCEEDED, ""
    else:
        phase, message = TaskPhase.FAILED, _failure_words(key, ended)
    return TaskReport(key, phase, started=started, finished=finished, exit=exit_, message=message)


def address_of(ports: Sequence[int]) -> str | None:
    """Return `host:port` of a task with these ports; None without ports."""
    return f"{HOST}:{ports[0]}" if ports else None


def read_ports(folder: Path) -> tuple[int, ...]:
    """Return the ports of a task; none when it was not bound."""
    ports = (attempt_record.read_record(str(folder), ORDER) or {}).get("ports")
    if not isinstance(ports, list):
        return ()
    return tuple(port for port in ports if type(port) is int and 0 < port <= _HIGHEST_PORT)


def leftovers_of(begun: dict[str, object]) -> Iterable[ProcessIdentity]:
    """Yield the processes that a supervisor recorded."""
    processes = begun.get("processes")
    for entry in processes if isinstance(processes, list) else []:
        identity = ProcessIdentity.from_dict(entry)
        if identity is not None:
            yield identity


def _end_leftovers(folder: Path, begun: dict[str, object]) -> bool:
    group = begun.get("cgroup")
    cgroup = Cgroup(group) if isinstance(group, str) and group and "\0" not in group else None
    if cgroup is not None:
        cgroup.kill()
    _clean_up(folder)
    done = descendant.end_leftovers(str(folder), leftovers_of(begun), time.monotonic() + _PATIENCE)
    if cgroup is not None:
        cgroup.remove()
    return done


def _clean_up(folder: Path) -> None:
    """Run the clean-up commands of a task, such as removing a container, in place of its supervisor."""
    commands = (attempt_record.read_record(str(folder), ORDER) or {}).get("cleanup")
    for argv in commands if isinstance(commands, list) else []:
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            continue
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLEAN_UP_PATIENCE, check=False)


def _why_lost(folder: Path, begun: dict[str, object]) -> str:
    try:
        attempt_record.load_record(str(folder), attempt_record.STARTED)
    except attempt_record.InvalidRecordError as problem:
        return f"the record of its start cannot be used: {problem}"
    if begun.get("boot") != boot_id():
        return WENT_DOWN
    try:
        words = attempt_record.bounded_text(f"{folder}/{LAST_WORDS}").decode("utf-8", "replace").strip()
    except (OSError, attempt_record.InvalidRecordError):
        return KILLED
    last = words.splitlines()[-1][:_LONGEST_LINE] if words else ""
    return f"its supervisor failed, so its exit status is unknown; see {folder / LAST_WORDS}: {last}"


def _failure_words(key: TaskKey, ended: dict[str, object]) -> str:
    """Return the message for users; empty when the exit code and the last lines suffice."""
    words = str(ended.get("words") or "")
    if words:
        return f"{key.task}: {words}"
    held, limit = ended.get("held"), ended.get("memory_limit")
    if isinstance(held, int) and isinstance(limit, int):
        rank = attempt_record.step_of(ended.get("error_rank"))
        most = f", most of it rank {rank}" if rank is not None else ""
        return f"{key.task} held {show_bytes(held)}{most}, more than its limit of {show_bytes(limit)}"
    return ""
