"""An external queueing system: pods are created as it expects them, and its objects report why a gang waits.

Without such a system, no requests are made. When the system is removed, only its messages disappear.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from fairway.engines.kubernetes import cluster_component
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.cluster_component import Manifest, QueuedGang
from fairway.engines.kubernetes.objects import CustomObject, Pod
from fairway.plan.action import BindGang

log = logging.getLogger("fairway.operator")

MANAGER = "fairway-operator"
LOOK_AGAIN = 60.0
"""Seconds until a queueing system that was not found is looked up again."""


class QueueingSystemClient:
    """One external queueing system, or none."""

    def __init__(self, reading: ApiClient, acting: ApiClient, queueing: str) -> None:
        self._reading = reading
        self._acting = acting
        self._queueing = queueing
        self._told: Informer[CustomObject] | None = None
        self.changed: Callable[[], None] = lambda: None
        """Called when the system's objects have changed."""

    async def run(self) -> None:
        """Watch the system's objects until cancelled."""
        if not self._queueing:
            return
        while True:
            try:
                discovered = await self._reading.resource(*cluster_component.TELLING[self._queueing])
            except errors.ApiError as error:
                log.warning("%s is not available: %s", self._queueing, error.message)
                await asyncio.sleep(LOOK_AGAIN)
                continue
            resource = ApiResource(
                CustomObject, discovered.group, discovered.version, discovered.plural, discovered.kind, discovered.namespaced
            )
            self._told = Informer(self._reading, resource)
            self._told.listen(lambda _key, _before, _now: self.changed())
            await self._told.run()

    def dressed(self, action: BindGang, pods: Sequence[Manifest], owner: Manifest | None) -> list[Manifest]:
        """Return the pods with the labels and annotations of the queueing system."""
        gang = _gang(action, owner)
        return [cluster_component.dressed(pod, gang, self._queueing) for pod in pods]

    async def make_group(self, action: BindGang, owner: Manifest | None) -> None:
        """Create the object that groups the pods into a gang, where the system needs one."""
        body = cluster_component.group_of(_gang(action, owner), self._queueing)
        if body is not None:
            resource = await self._reading.resource(body["apiVersion"], body["kind"])
            await self._acting.apply(resource, body, manager=MANAGER)

    def why(self, pod: Pod) -> str:
        """Return why a pod waits, as the system reports it; empty when it reports nothing."""
        if self._told is None or pod.spec.node_name:
            return ""
        group = cluster_component.group_named(pod.metadata.labels, pod.metadata.annotations)
        group_object = self._told.get(f"{pod.metadata.namespace}/{group}") if group else None
        return cluster_component.reason(self._queueing, {"status": group_object.status}) if group_object is not None else ""


def _gang(action: BindGang, owner: Manifest | None) -> QueuedGang:
    """Describe the gang. A task that restarts while its peers keep running stays in their group: the first attempt names it."""
    job, members = action.job, (*action.tasks, *action.peers)
    attempt = min(member.key.attempt for member in members)
    return QueuedGang(job.key.name, job.key.namespace, attempt, len(members), job.spec.queue, owner)
