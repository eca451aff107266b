"""Carries decisions out: binds gangs whole, takes back what could not be, asks others to make room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from fairway.app.ports import Clock
from fairway.engines.kubernetes import gpus, marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler.follow import Bind, Room
from fairway.engines.kubernetes.scheduler.gangs import Place
from fairway.engines.kubernetes.times import stamp
from fairway.errors import FairwayError
from fairway.plan.scheduling import explain
from fairway.state.job import Leaving

log = logging.getLogger("fairway.scheduler")

IN_FLIGHT = 24
"""Bindings at a time: more only wait in the API server."""
TRIES = 3
GANG_TIMEOUT = 30.0
"""Seconds after which a gang that is bound in part is taken back."""

Gave = Callable[[Sequence[Pod]], None]
"""Told of pods whose bindings were given up."""
Bound = Callable[[Pod, Place], None]


class Binder:
    """Binds gangs."""

    def __init__(self, client: Client, gave_up: Gave, bound: Bound) -> None:
        self._client = client
        self._gave_up = gave_up
        self._bound = bound
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._turns = asyncio.Semaphore(IN_FLIGHT)
        """Gangs at a time: the time of one that waits for its turn has not begun, and none of its pods is bound."""

    async def bind(self, gang: Bind) -> bool:
        """Bind all pods of the gang. When one cannot be, those that were are deleted: no gang stays half."""
        async with self._turns:
            try:
                async with asyncio.timeout(GANG_TIMEOUT):
                    results = await asyncio.gather(*(self._bind(pod, place) for pod, place in gang.pods), return_exceptions=True)
            except TimeoutError:
                results = [TimeoutError(f"not all pods were bound within {GANG_TIMEOUT:g} s")] * len(gang.pods)
        failed = [result for result in results if isinstance(result, BaseException)]
        if not failed:
            return True
        log.warning("%s could not be bound: %s", gang.key, failed[0])
        await self._take_back([pod for pod, _ in gang.pods])
        return False

    async def _bind(self, pod: Pod, place: Place) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        chosen = gpus.chosen(place.devices, place.milli, place.part)
        async with self._slots:
            for left in reversed(range(TRIES)):
                try:
                    await self._client.bind(name, namespace, place.node, uid=uid, annotations=chosen)
                    break
                except errors.Conflict:
                    if await self._is_there(pod, place):
                        break
                    raise
                except (errors.Unavailable, errors.TooManyRequests):
                    if await self._is_there(pod, place):
                        break
                    if not left:
                        raise
        self._bound(pod, place)

    async def _is_there(self, pod: Pod, place: Place) -> bool:
        """Whether this very pod sits there already: the answer to an earlier try may have been lost."""
        try:
            found = await self._client.get(kinds.PODS, pod.metadata.name, pod.metadata.namespace)
        except FairwayError:
            return False
        return found.metadata.uid == pod.metadata.uid and found.spec.node_name == place.node

    async def _take_back(self, pods: Sequence[Pod]) -> None:
        """Nothing can be unbound, so that what was bound is deleted; whoever made it makes it again."""
        for pod in pods:
            try:
                found = await self._client.get(kinds.PODS, pod.metadata.name, pod.metadata.namespace)
                if found.metadata.uid == pod.metadata.uid and found.spec.node_name:
                    await self._client.delete(kinds.PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
            except errors.NotFound:
                continue
            except FairwayError as error:
                log.warning("%s/%s of a half bound gang is left: %s", pod.metadata.namespace, pod.metadata.name, error)
        self._gave_up(pods)


class Evictor:
    """Asks gangs to make room: the operator's by a mark, others by eviction."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def make_room(self, room: Room) -> None:
        """Say it on every pod; the operator lets the run save and leave."""
        words = explain.eviction(room.eviction)
        leaving = Leaving(room.eviction.cause.value, words, self._clock.now(), dict(room.eviction.sizes))
        for pod in room.pods:
            if pod.metadata.labels.get(marks.MANAGED_BY) == marks.MANAGER:
                await self._trying(self._mark(pod, leaving), pod)
            else:
                await self._trying(self._evict(pod, words), pod)

    async def _trying(self, work: Awaitable[None], pod: Pod) -> None:
        try:
            await work
        except FairwayError as error:
            log.warning("could not ask %s/%s to leave: %s", pod.metadata.namespace, pod.metadata.name, error)

    async def _mark(self, pod: Pod, leaving: Leaving) -> None:
        place = "/metadata/annotations/" + marks.LEAVE.replace("/", "~1")
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        change = {"op": "add", "path": place, "value": marks.write_leave(leaving)}
        await self._client.patch(kinds.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])

    async def _evict(self, pod: Pod, words: str) -> None:
        told = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": words,
            "lastTransitionTime": stamp(self._clock.now()),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "status": {"conditions": [told]},
        }
        await self._client.apply_status(kinds.PODS, body, manager="fairway-scheduler")
        await self._client.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
