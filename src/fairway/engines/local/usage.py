"""What running tasks use of the machine: the processors and the memory of all their processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fairway.app.ports import TaskUsage
from fairway.engines.local.folders import ORDER, Home
from fairway.engines.local.supervision import descent, record
from fairway.engines.local.supervision.identity import Identity
from fairway.state.task import TaskKey

PAUSE = 0.5
"""Seconds between two looks; processor time is counted in hundredths, so less would be noise."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """One look at a task."""

    time: float
    cpu_seconds: float
    pids: tuple[int, ...]


async def look(home: Home, keys: Iterable[TaskKey], devices: Callable[[], Mapping[str, float]]) -> dict[TaskKey, TaskUsage]:
    """What the tasks among these use that run before and after the pause; `devices` says how busy each is."""
    first = {key: seen for key in keys if (seen := _see(home, key)) is not None}
    if not first:
        return {}
    await asyncio.sleep(PAUSE)
    busy = await asyncio.to_thread(devices)
    found = {}
    for key, before in first.items():
        after = _see(home, key)
        if after is None:
            continue
        # What ended and was not waited for in between takes its time along.
        used = max(0.0, after.cpu_seconds - before.cpu_seconds)
        memory = await asyncio.to_thread(descent.proportional_bytes, after.pids)
        found[key] = TaskUsage(used / (after.time - before.time), memory, _gpu(home, key, busy))
    return found


def _gpu(home: Home, key: TaskKey, busy: Mapping[str, float]) -> float | None:
    """The average over the devices that it was given and that say how busy they are."""
    if not busy:
        return None
    given = (record.read_record(str(home.attempt(key)), ORDER) or {}).get("devices")
    known = [busy[uuid] for uuid in given if isinstance(uuid, str) and uuid in busy] if isinstance(given, list) else []
    return sum(known) / len(known) if known else None


def _see(home: Home, key: TaskKey) -> _Sight | None:
    begun = record.read_record(str(home.attempt(key)), record.STARTED) or {}
    supervisor = Identity.from_dict(begun.get("supervisor"))
    if supervisor is None or not supervisor.alive:
        return None
    pids = tuple(descent.descendants(supervisor.pid))
    return _Sight(time.monotonic(), sum(map(_cpu_seconds, pids)), pids) if pids else None


def _cpu_seconds(pid: int) -> float:
    """Of a process and the children that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return 0.0
    fields = text[text.rfind(b")") + 2 :].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
