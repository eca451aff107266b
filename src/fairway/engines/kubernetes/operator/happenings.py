"""What happened to a run or a service, as Events of its object: `kubectl describe` shows them.

Written in the background; some may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import deque
from collections.abc import Iterable

from fairway.app.ports import Clock
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.leader import micro_time
from fairway.engines.kubernetes.objects import Custom, Manifest
from fairway.errors import FairwayError
from fairway.state.event import Event

log = logging.getLogger("fairway.operator")

WAITING = 1000
"""Events that wait to be written; older ones are dropped."""
RECENT = 3600.0
"""Seconds for which a cluster keeps Events; what is older is not told again after a restart."""
LONGEST = 1000
"""Characters of a note."""
CONTROLLER = "fairway-operator"
_BAD = frozenset({"Failed", "Restarting", "Refused", "HalfGang", "RolledBack", "Fault", "ReportRefused"})


class Happenings:
    """Tells each event of a run once; the same event has the same name, so that a second operator tells nothing twice."""

    def __init__(self, client: Client, identity: str, clock: Clock) -> None:
        self._client = client
        self._identity = identity
        self._clock = clock
        self._told: dict[str, float] = {}
        """The time of the last event told, by the uid of the object."""
        self._unsaid: deque[Manifest] = deque(maxlen=WAITING)
        self._something = asyncio.Event()

    def tell(self, found: Custom, events: Iterable[Event], kind: Resource[Custom] = kinds.TRAINING_JOBS) -> None:
        """Queue what is new of an object of this kind."""
        last = self._told.get(found.metadata.uid, self._clock.now() - RECENT)
        fresh = [event for event in events if event.time > last]
        if fresh:
            self._told[found.metadata.uid] = max(event.time for event in fresh)
            self._unsaid.extend(event_of(found, event, self._identity, kind) for event in fresh)
            self._something.set()

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._told.pop(uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._something.wait()
            self._something.clear()
            while self._unsaid:
                await self._write(self._unsaid.popleft())

    async def _write(self, body: Manifest) -> None:
        try:
            with contextlib.suppress(errors.AlreadyExists):
                await self._client.create(kinds.EVENTS, body, body["metadata"]["namespace"])
        except FairwayError as error:
            log.debug("an event is lost: %s", error)
        except Exception:  # One event that cannot be written must not end the writing of others.
            log.exception("an event of %s is lost", body["metadata"]["name"])


def event_of(found: Custom, event: Event, identity: str, kind: Resource[Custom] = kinds.TRAINING_JOBS) -> Manifest:
    """The Event that says so."""
    words = f"{event.time} {event.reason} {event.message}"
    return {
        "apiVersion": kinds.EVENTS.api_version,
        "kind": kinds.EVENTS.kind,
        "metadata": {
            "name": f"{found.metadata.name}.{hashlib.sha256(words.encode()).hexdigest()[:16]}",
            "namespace": found.metadata.namespace,
        },
        "eventTime": micro_time(event.time),
        "reportingController": CONTROLLER,
        "reportingInstance": identity,
        "type": "Warning" if event.reason in _BAD else "Normal",
        "reason": event.reason,
        "action": event.reason,
        "note": event.message[:LONGEST],
        "regarding": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": found.metadata.namespace,
            "name": found.metadata.name,
            "uid": found.metadata.uid,
        },
    }
