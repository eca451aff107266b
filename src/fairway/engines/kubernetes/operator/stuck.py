"""Pods that have a node and do not begin: what was told of them as Events is read, since they do not say it themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from fairway.engines.kubernetes import causes
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.times import seconds
from fairway.errors import FairwayError

log = logging.getLogger("fairway.operator")

AFTER = 20.0
"""Seconds that a pod may take to begin before one asks why."""
EVERY = 15.0
MOST = 20
"""So many pods are asked about at a time: what keeps one usually keeps its peers."""


class Stuck:
    """Why pods do not begin, by their uids."""

    def __init__(self, client: Client, pods: Callable[[], Iterable[Pod]], now: Callable[[], float]) -> None:
        self._client = client
        self._pods = pods
        self._now = now
        self._words: dict[str, str] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called when something else is known than before."""

    def why(self, pod: Pod) -> str:
        """Why it does not begin; empty when nobody says."""
        return self._words.get(pod.metadata.uid, "")

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look()
            except FairwayError as error:
                log.debug("could not ask why pods do not begin: %s", error)

    async def look(self) -> None:
        """Ask about those that take too long."""
        late = [pod for pod in self._pods() if self._is_late(pod)][:MOST]
        found = {pod.metadata.uid: words for pod in late if (words := await self._ask(pod))}
        if found != self._words:
            self._words = found
            self.changed()

    def _is_late(self, pod: Pod) -> bool:
        begun = seconds(pod.status.start_time) or seconds(pod.metadata.creation_timestamp)
        waits = pod.status.phase == "Pending" and pod.spec.node_name and pod.metadata.deletion_timestamp is None
        return bool(waits and begun is not None and self._now() - begun > AFTER and causes.of_pod(pod) is None)

    async def _ask(self, pod: Pod) -> str:
        told = await self._client.list(kinds.EVENTS, pod.metadata.namespace, fields=f"regarding.uid={pod.metadata.uid}")
        cause = causes.of_events(told.items)
        return cause.message if cause is not None else ""
