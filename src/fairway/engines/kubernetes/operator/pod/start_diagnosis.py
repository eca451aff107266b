"""Finds out why placed pods do not start: from their Events, since the cause is not in their status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from fairway.engines.kubernetes import pod_cause
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.timestamp import seconds
from fairway.errors import FairwayError

log = logging.getLogger("fairway.operator")

AFTER = 20.0
"""Seconds that a pod may take to start before its Events are read."""
EVERY = 15.0
MOST = 20
"""Maximum number of pods examined at a time: what blocks one usually blocks its peers."""


class PodStartDiagnosis:
    """Why pods do not start, by their uids."""

    def __init__(self, client: ApiClient, pods: Callable[[], Iterable[Pod]], now: Callable[[], float]) -> None:
        self._client = client
        self._pods = pods
        self._now = now
        self._words: dict[str, str] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called when the known causes have changed."""

    def why(self, pod: Pod) -> str:
        """Return why the pod does not start; empty when that is unknown."""
        return self._words.get(pod.metadata.uid, "")

    async def run(self) -> None:
        """Examine pods periodically until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look()
            except FairwayError as error:
                log.debug("could not read why pods do not start: %s", error)

    async def look(self) -> None:
        """Read the Events of pods that take too long to start."""
        late = [pod for pod in self._pods() if self._is_late(pod)][:MOST]
        causes_ = {pod.metadata.uid: words for pod in late if (words := await self._ask(pod))}
        if causes_ != self._words:
            self._words = causes_
            self.changed()

    def _is_late(self, pod: Pod) -> bool:
        created = seconds(pod.status.start_time) or seconds(pod.metadata.creation_timestamp)
        waits = pod.status.phase == "Pending" and pod.spec.node_name and pod.metadata.deletion_timestamp is None
        return bool(waits and created is not None and self._now() - created > AFTER and pod_cause.of_pod(pod) is None)

    async def _ask(self, pod: Pod) -> str:
        events = await self._client.list(api_resource.EVENTS, pod.metadata.namespace, fields=f"regarding.uid={pod.metadata.uid}")
        cause = pod_cause.of_events(events.items)
        return cause.message if cause is not None else ""
