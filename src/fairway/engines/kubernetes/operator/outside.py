"""Whoever else queues and places: pods are made as they read them, and why a gang waits is read from their objects.

Where nobody does, nothing is asked. A neighbour that goes away takes only its words with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from fairway.engines.kubernetes import neighbours
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.neighbours import Gang, Manifest
from fairway.engines.kubernetes.objects import Custom, Pod
from fairway.plan.action import BindGang

log = logging.getLogger("fairway.operator")

MANAGER = "fairway-operator"
LOOK_AGAIN = 60.0
"""Seconds until a neighbour that was not there is looked for again."""


class Outside:
    """One neighbour, or none."""

    def __init__(self, reading: Client, acting: Client, queueing: str) -> None:
        self._reading = reading
        self._acting = acting
        self._queueing = queueing
        self._told: Mirror[Custom] | None = None
        self.changed: Callable[[], None] = lambda: None
        """Called when they may have said something new."""

    async def run(self) -> None:
        """Follow what they say, for ever."""
        if not self._queueing:
            return
        while True:
            try:
                known = await self._reading.resource(*neighbours.TELLING[self._queueing])
            except errors.ApiError as error:
                log.warning("%s is not there: %s", self._queueing, error.message)
                await asyncio.sleep(LOOK_AGAIN)
                continue
            resource = Resource(Custom, known.group, known.version, known.plural, known.kind, known.namespaced)
            self._told = Mirror(self._reading, resource)
            self._told.listen(lambda _key, _before, _now: self.changed())
            await self._told.run()

    def dressed(self, action: BindGang, pods: Sequence[Manifest], owner: Manifest | None) -> list[Manifest]:
        """The pods that are made now as the neighbour reads them."""
        gang = _gang(action, owner)
        return [neighbours.dressed(pod, gang, self._queueing) for pod in pods]

    async def make_group(self, action: BindGang, owner: Manifest | None) -> None:
        """Say that the pods are a gang, where that is an object of its own."""
        body = neighbours.group_of(_gang(action, owner), self._queueing)
        if body is not None:
            resource = await self._reading.resource(body["apiVersion"], body["kind"])
            await self._acting.apply(resource, body, manager=MANAGER)

    def why(self, pod: Pod) -> str:
        """Why a pod waits, in their words; empty when nobody says."""
        if self._told is None or pod.spec.node_name:
            return ""
        group = neighbours.group_named(pod.metadata.labels, pod.metadata.annotations)
        told = self._told.get(f"{pod.metadata.namespace}/{group}") if group else None
        return neighbours.reason(self._queueing, {"status": told.status}) if told is not None else ""


def _gang(action: BindGang, owner: Manifest | None) -> Gang:
    """One that starts again while its peers go on stays in their group: the first attempt names it."""
    job, members = action.job, (*action.tasks, *action.peers)
    attempt = min(member.key.attempt for member in members)
    return Gang(job.key.name, job.key.namespace, attempt, len(members), job.spec.queue, owner)
