"""Events of a run or a service as Kubernetes Events of its object, which `kubectl describe` shows.

They are written in the background; some may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import deque
from collections.abc import Iterable

from fairway.app.port.port import Clock
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.leader_election import micro_time
from fairway.engines.kubernetes.objects import CustomObject, Manifest
from fairway.errors import FairwayError
from fairway.state.event import RunEvent

log = logging.getLogger("fairway.operator")

WAITING = 1000
"""Maximum number of Events that wait to be written; older ones are dropped."""
RECENT = 3600.0
"""Seconds for which a cluster keeps Events; older ones are not written again after a restart."""
LONGEST = 1000
"""Maximum number of characters of a note."""
CONTROLLER = "fairway-operator"
_BAD = frozenset({"Failed", "Restarting", "Refused", "HalfGang", "RolledBack", "Fault", "ReportRefused"})


class EventRecorder:
    """Writes each event of a run once. The same event has the same object name, so a second operator writes no duplicates."""

    def __init__(self, client: ApiClient, identity: str, clock: Clock) -> None:
        self._client = client
        self._identity = identity
        self._clock = clock
        self._told: dict[str, float] = {}
        """The time of the last event that was queued, by the uid of the object."""
        self._unsaid: deque[Manifest] = deque(maxlen=WAITING)
        self._something = asyncio.Event()

    def tell(
        self, found: CustomObject, events: Iterable[RunEvent], kind: ApiResource[CustomObject] = api_resource.TRAINING_JOBS
    ) -> None:
        """Queue the new events of an object of this kind."""
        last = self._told.get(found.metadata.uid, self._clock.now() - RECENT)
        fresh = [event for event in events if event.time > last]
        if fresh:
            self._told[found.metadata.uid] = max(event.time for event in fresh)
            self._unsaid.extend(event_of(found, event, self._identity, kind) for event in fresh)
            self._something.set()

    def forget(self, uid: str) -> None:
        """Forget an object that was deleted."""
        self._told.pop(uid, None)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._something.wait()
            self._something.clear()
            while self._unsaid:
                await self._write(self._unsaid.popleft())

    async def _write(self, body: Manifest) -> None:
        try:
            with contextlib.suppress(errors.AlreadyExists):
                await self._client.create(api_resource.EVENTS, body, body["metadata"]["namespace"])
        except FairwayError as error:
            log.debug("an event is lost: %s", error)
        except Exception:  # A failure to write one Event must not stop the writing of others.
            log.exception("an event of %s is lost", body["metadata"]["name"])


def event_of(
    found: CustomObject, event: RunEvent, identity: str, kind: ApiResource[CustomObject] = api_resource.TRAINING_JOBS
) -> Manifest:
    """Return the Kubernetes Event for an event."""
    words = f"{event.time} {event.reason} {event.message}"
    return {
        "apiVersion": api_resource.EVENTS.api_version,
        "kind": api_resource.EVENTS.kind,
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
