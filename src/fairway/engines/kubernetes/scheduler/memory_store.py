"""The scheduler's memory in a ConfigMap: read when a scheduler starts to lead, written rarely, bounded in size.

Placements are not in it: the pods show them. It holds the recent usage of queues, how long runs took, how long runs that wait
again have run, and the reservations of waiting runs.
"""

from __future__ import annotations

import base64
import logging
import zlib
from collections.abc import Collection

from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.plan.scheduling import scheduler_memory as core
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.job import JobKey

log = logging.getLogger("fairway.scheduler")

NAME = "fairway-scheduler-memory"
FIELD = "memory"
MANAGER = "fairway-scheduler"
MOST_BYTES = 512 * 1024
"""Limit of the text written: an object may have 1.5 MB."""
MOST_RUNS = 2_000
MOST_NAMES = 8
"""Shapes that name more nodes than that are valid only for a moment and are not kept."""
RETURNS_WITHIN = 3600.0
"""Seconds after which a run that left is not expected back."""


def forget(ledger: SchedulerState, present: Collection[JobKey], now: float) -> None:
    """Drop what is remembered of runs that left and are not expected back."""
    left = ledger.memory.left
    ledger.forget_others(lambda key: key in present or now - left.get(str(key), now) < RETURNS_WITHIN)


def worth_keeping(memory: SchedulerMemory) -> SchedulerMemory:
    """Return the part of the memory that a new scheduler cannot learn from the cluster."""
    latest = sorted(memory.left, key=lambda name: memory.left[name])[-MOST_RUNS:]
    return SchedulerMemory(
        usage=dict(memory.usage),
        ran={name: memory.ran[name] for name in latest if name in memory.ran},
        left={name: memory.left[name] for name in latest},
        reservations={
            name: reservation
            for name, reservation in memory.reservations.items()
            if all(len(seat.shape.where.nodes) <= MOST_NAMES for seat in reservation.seats)
        },
        futile=dict(memory.futile),
        history=memory.history,
        calibration=memory.calibration,
        started=[(shape, count) for shape, count in memory.started if len(shape.where.nodes) <= MOST_NAMES],
        lessons=memory.lessons,
        mix=memory.mix,
    )


def write(memory: SchedulerMemory) -> str:
    """Encode the memory as text of a bounded size: the least valuable parts are left out first."""
    memory_kept = worth_keeping(memory)
    for leave_out in ((), ("reservations", "futile"), ("started",), ("ran", "left")):
        for name in leave_out:
            setattr(memory_kept, name, type(getattr(memory_kept, name))())
        text = base64.b64encode(zlib.compress(memory_kept.encode())).decode()
        if len(text) <= MOST_BYTES:
            return text
    return ""


def read(text: str) -> SchedulerMemory:
    """Decode a written memory. Empty or unreadable text gives an empty memory."""
    try:
        return core.decode(zlib.decompress(base64.b64decode(text, validate=True))) if text else SchedulerMemory()
    except Exception as problem:  # noqa: BLE001 - the memory is an aid: without it the core learns again.
        log.warning("the memory of earlier schedulers cannot be decoded and is ignored: %r", problem)
        return SchedulerMemory()


def drop_stale(ledger: SchedulerState) -> None:
    """Drop the reservations of runs that do not wait any more."""
    for name in [name for name in ledger.memory.reservations if key_of(name) not in ledger.room]:
        ledger.unreserve(key_of(name))


class SchedulerMemoryStore:
    """Reads and writes the ConfigMap."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._written = ""

    async def recall(self) -> SchedulerMemory:
        """Return what the last leader wrote; an empty memory when there is none."""
        try:
            config_map = await self._client.get(api_resource.CONFIG_MAPS, NAME, self._namespace)
        except errors.NotFound:
            return SchedulerMemory()
        except Exception as error:  # noqa: BLE001 - as above.
            log.warning("the memory of earlier schedulers could not be read: %s", error)
            return SchedulerMemory()
        self._written = config_map.data.get(FIELD, "")
        return read(self._written)

    async def keep(self, memory: SchedulerMemory) -> None:
        """Write the memory if it has changed. Raises the error when that fails."""
        text = write(memory)
        if text == self._written:
            return
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": self._namespace},
            "data": {FIELD: text},
        }
        await self._client.apply(api_resource.CONFIG_MAPS, body, manager=MANAGER)
        self._written = text
