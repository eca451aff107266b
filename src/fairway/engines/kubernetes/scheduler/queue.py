"""JobQueue objects: parses them for the core and writes their statuses."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fairway.app.loop.fault_register import FaultRegister
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import CustomObject
from fairway.errors import FairwayError
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.spec.queue import JobQueue
from fairway.spec.text.document import read_data
from fairway.state.job import JobKey, WaitReason
from fairway.state.queue import Queue, queue_of

log = logging.getLogger("fairway.scheduler")

MANAGER = "fairway-scheduler-status"
MOST_REASONS = 5
STATUS = "write status"


def described(name: str, found: CustomObject) -> Queue | None:
    """Return the queue that an object describes; None when the document is invalid: such a queue is not used."""
    head = {"kind": "JobQueue", "apiVersion": api_resource.JOB_QUEUES.api_version, "metadata": {"name": name}}
    try:
        document = read_data({**head, "spec": found.spec_data()})
    except FairwayError as error:
        log.warning("the queue %s is not used: %s", name, error)
        return None
    assert isinstance(document, JobQueue)
    return queue_of(document)


def statuses(
    ledger: SchedulerState,
    holds: Mapping[JobKey, WaitReason],
    held_back: Mapping[JobKey, str] = MappingProxyType({}),
    closed: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """Return the status of each queue that is described, and of each that is `closed` because it fails.

    `held_back` are gangs that are withheld from the core.
    """
    waiting = {name: [request.key for request in ledger.room.requests(name)] for name in ledger.room.queues()}
    for key, name in held_back.items():
        waiting.setdefault(name, []).append(key)
    running = Counter(running_gang.request.queue for running_gang in ledger.running.values())
    by_queue = {}
    for name in {**ledger.queues, **closed}:
        used = ledger.accounts.used.get(name, {})
        dominant, share = ledger.accounts.dominant(name)
        fault = [{"reason": "fault", "count": len(waiting.get(name, ())), "message": closed[name]}] if name in closed else []
        by_queue[name] = {
            "running": running[name],
            "waiting": len(waiting.get(name, ())),
            "used": {what: wait_explanation.number(what, count) for what, count in sorted(used.items()) if count},
            "share": f"{share:.0%} of {dominant}" if dominant else "",
            "reasons": fault or _reasons([holds[key] for key in waiting.get(name, ()) if key in holds]),
        }
    return by_queue


def _reasons(holds: list[WaitReason]) -> list[dict[str, Any]]:
    """Return the reasons for which its runs wait, the most common first, each with one run's message."""
    counts = Counter(hold.reason for hold in holds)
    words = {hold.reason: hold.message for hold in holds}
    return [{"reason": reason, "count": count, "message": words[reason]} for reason, count in counts.most_common(MOST_REASONS)]


class QueueStatusWriter:
    """Writes queue statuses that have changed."""

    def __init__(self, client: ApiClient, faults: FaultRegister) -> None:
        self._client = client
        self._faults = faults
        self._told: dict[str, dict[str, Any]] = {}

    async def tell(self, found: Mapping[str, dict[str, Any]]) -> bool:
        """Write the statuses that differ from those written last. Return False when a write is still due."""
        for name in [name for name in self._told if name not in found]:
            del self._told[name]
        for name, status in found.items():
            if self._told.get(name) == status or not self._faults.due(f"queue:{name}", STATUS):
                continue
            kind = api_resource.JOB_QUEUES
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "status": status}
            with self._faults.contain(f"queue:{name}", STATUS):
                await self._client.apply_status(kind, body, manager=MANAGER)
                self._told[name] = status
        return all(self._told.get(name) == status for name, status in found.items())
