"""Measures what running tasks use of the machine: the processors and the memory of all their processes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fairway.app.port.port import TaskUsage
from fairway.engines.local.home import ORDER, EngineHome
from fairway.engines.local.supervision import attempt_record
from fairway.engines.local.supervision.process import descendant as process_descendant
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity
from fairway.runtime import task_contract
from fairway.state.job import JobKey
from fairway.state.stall import RankSample
from fairway.state.task import TaskKey

LOOK_EVERY = 15.0
"""Seconds between two measurements of a run's ranks."""
_OURS = f"{task_contract.JAX_SIGN}={task_contract.NO_LAUNCHER}".encode()
_RANK = re.compile(rb"(?:RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|PMIX_RANK)=([0-9]{1,9})")
_BUSY = 0.05
"""The part of the time from which on a device counts as busy."""
PAUSE = 0.5
"""Seconds between the two measurements; processor time is counted in hundredths, so that less would be noise."""


@dataclass(frozen=True, slots=True)
class _UsageSample:
    """One measurement of a task."""

    time: float
    cpu_seconds: float
    pids: tuple[int, ...]


async def look(home: EngineHome, keys: Iterable[TaskKey], devices: Callable[[], Mapping[str, float]]) -> dict[TaskKey, TaskUsage]:
    """Return the usage of the tasks that run before and after the pause; `devices` returns how busy each device is."""
    first = {key: sight for key in keys if (sight := _see(home, key)) is not None}
    if not first:
        return {}
    await asyncio.sleep(PAUSE)
    busy = await asyncio.to_thread(devices)
    usages = {}
    for key, before in first.items():
        after = _see(home, key)
        if after is None:
            continue
        # A process that ended unreaped in between takes its time along.
        used = max(0.0, after.cpu_seconds - before.cpu_seconds)
        memory = await asyncio.to_thread(process_descendant.proportional_bytes, after.pids)
        usages[key] = TaskUsage(used / (after.time - before.time), memory, _gpu(home, key, busy))
    return usages


def _gpu(home: EngineHome, key: TaskKey, busy: Mapping[str, float]) -> float | None:
    """Return the average load of the task's devices whose load is known."""
    if not busy:
        return None
    uuids = (attempt_record.read_record(str(home.attempt(key)), ORDER) or {}).get("devices")
    loads = [busy[uuid] for uuid in uuids if isinstance(uuid, str) and uuid in busy] if isinstance(uuids, list) else []
    return sum(loads) / len(loads) if loads else None


def _see(home: EngineHome, key: TaskKey) -> _UsageSample | None:
    started_record = attempt_record.read_record(str(home.attempt(key)), attempt_record.STARTED) or {}
    supervisor = ProcessIdentity.from_dict(started_record.get("supervisor"))
    if supervisor is None or not supervisor.alive:
        return None
    pids = tuple(process_descendant.descendants(supervisor.pid))
    return _UsageSample(time.monotonic(), sum(map(_cpu_seconds, pids)), pids) if pids else None


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and of the children that it has reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return 0.0
    fields = text[text.rfind(b")") + 2 :].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _wakeups(pid: int) -> int:
    """Return how often the main thread of a process was scheduled; 0 where the kernel does not count it."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[2])
    except (OSError, IndexError, ValueError):
        return 0


class RankActivity:
    """Measures the ranks of running runs periodically: what they have used so far, and when they printed last."""

    def __init__(self, home: EngineHome) -> None:
        self._home = home
        self.every = LOOK_EVERY
        self._looked: dict[JobKey, float] = {}

    async def look(
        self, runs: Mapping[JobKey, list[TaskKey]], devices: Callable[[], Mapping[str, float]]
    ) -> dict[JobKey, tuple[RankSample, ...]]:
        """Return the ranks of the runs that are due; none of a run whose tasks have ended."""
        now = time.monotonic()
        due = {run: keys for run, keys in runs.items() if not keys or now >= self._looked.get(run, -self.every) + self.every}
        if not due:
            return {}
        self._looked |= dict.fromkeys(due, now)
        return await asyncio.to_thread(self._see, due, devices)

    def forget(self, run: JobKey) -> None:
        """Forget a finished run."""
        self._looked.pop(run, None)

    def _see(
        self, runs: Mapping[JobKey, list[TaskKey]], devices: Callable[[], Mapping[str, float]]
    ) -> dict[JobKey, tuple[RankSample, ...]]:
        busy = devices()
        return {run: tuple(sight for key in keys for sight in _ranks(self._home, key, busy)) for run, keys in runs.items()}


def _ranks(home: EngineHome, key: TaskKey, busy: Mapping[str, float]) -> list[RankSample]:
    folder = str(home.attempt(key))
    started_record = attempt_record.read_record(folder, attempt_record.STARTED) or {}
    processes = started_record.get("processes")
    computes = (_gpu(home, key, busy) or 0.0) >= _BUSY
    sights = []
    for number, entry in enumerate(processes if isinstance(processes, list) else []):
        process = ProcessIdentity.from_dict(entry)
        if process is None or not process.alive:
            continue
        name = f"{key.task}.{number}" if number else key.task
        printed = _written(os.path.join(folder, f"out-{number}.log"))
        pids = [process.pid, *process_descendant.descendants(process.pid)]
        for rank, members in (_by_rank(pids) or {"": pids}).items():
            seconds = sum(map(_cpu_seconds, members))
            named = f"{name} rank {rank}" if rank else name
            sights.append(RankSample(named, seconds, printed, computes, sum(map(_wakeups, members))))
    return sights


def _by_rank(pids: list[int]) -> dict[str, list[int]]:
    """Return the processes of each rank that a launcher among them started; none unless there are several."""
    if len(pids) < 3:
        return {}
    ranks = {pid: rank for pid in pids if (rank := _rank_of(pid))}
    if len(set(ranks.values())) < 2:
        return {}
    by_rank: dict[str, list[int]] = {}
    for pid, rank in ranks.items():
        # A launcher may have a rank of its own in its environment; what it uses belongs to no rank.
        if len({ranks[descendant] for descendant in process_descendant.descendants(pid) if descendant in ranks}) < 2:
            by_rank.setdefault(rank, []).append(pid)
    return dict(sorted(by_rank.items(), key=lambda item: int(item[0])))


def _rank_of(pid: int) -> str:
    variables = process_descendant.environment(pid)
    # The variable that Fairway sets for JAX resembles Open MPI's, and is the same in all processes of a task.
    ours = any(variable.startswith(_OURS) for variable in variables)
    for variable in variables:
        match = _RANK.fullmatch(variable) if not (ours and variable.startswith(b"OMPI_")) else None
        if match:
            return match[1].decode()
    return ""


def _written(path: str) -> float | None:
    """Return when a log was last written to; None when it is empty."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_mtime if state.st_size else None
