"""Asks gangs to make room: the operator's by a mark, other pods by eviction, as their disruption budgets allow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from fairway.app.ports import Clock
from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler.follow import Room
from fairway.engines.kubernetes.times import stamp
from fairway.plan.scheduling import explain
from fairway.state.job import Leaving

log = logging.getLogger("fairway.scheduler")

PATIENCE = 30.0
"""Seconds beyond its grace after which a pod whose operator does nothing is deleted."""
DEFAULT_GRACE = 30
BUDGET_PAUSE = 10.0
"""Seconds until a pod that its disruption budget protects is asked again."""
BUDGET_TRIES = 30

Asked = Callable[[Sequence[Pod], Exception | None], None]
"""Told of pods that were asked to go, and of the problem where they could not be, or did not go."""


class Evictor:
    """Asks gangs to make room."""

    def __init__(self, client: Client, clock: Clock, asked: Asked) -> None:
        self._client = client
        self._clock = clock
        self._asked = asked

    async def make_room(self, room: Room) -> None:
        """Say it on every pod; the operator lets the run save and leave. Whoever cannot be asked stays, and that is told."""
        try:
            await self._make_room(room)
        except Exception as problem:  # noqa: BLE001 - the failure is the gang's.
            self._asked(room.pods, problem)

    async def _make_room(self, room: Room) -> None:
        words = explain.eviction(room.eviction)
        leaving = Leaving(room.eviction.cause.value, words, self._clock.now(), dict(room.eviction.sizes))
        ours = [pod for pod in room.pods if pod.metadata.labels.get(marks.MANAGED_BY) == marks.MANAGER]
        others = [pod for pod in room.pods if pod not in ours]
        if not room.pods:
            return
        problems = [await self._trying(self._mark(pod, leaving), pod) for pod in ours]
        problems += await asyncio.gather(*(self._trying(self._evict(pod, words), pod) for pod in others))
        self._asked(room.pods, problems[0] if all(problems) else None)
        await self._insist([pod for pod, problem in zip(ours, problems, strict=False) if problem is None])

    async def _trying(self, work: Awaitable[None], pod: Pod) -> Exception | None:
        """What went wrong; None when nothing did."""
        try:
            await work
        except errors.NotFound:
            return None  # It went by itself.
        except Exception as error:  # noqa: BLE001 - the other pods are asked all the same.
            log.warning("could not ask %s/%s to leave: %s", pod.metadata.namespace, pod.metadata.name, error)
            return error
        return None

    async def _mark(self, pod: Pod, leaving: Leaving) -> None:
        place = "/metadata/annotations/" + marks.LEAVE.replace("/", "~1")
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        change = {"op": "add", "path": place, "value": marks.write_leave(leaving)}
        await self._client.patch(kinds.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])

    async def _insist(self, pods: Sequence[Pod]) -> None:
        """An operator that does nothing about its pods is not waited for: they are deleted."""
        if not pods:
            return
        graces = [pod.spec.termination_grace_period_seconds for pod in pods]
        await asyncio.sleep(max(DEFAULT_GRACE if grace is None else grace for grace in graces) + PATIENCE)
        problems = [await self._trying(self._delete_if_it_stays(pod), pod) for pod in pods]
        for problem in problems:
            if problem is not None:
                raise problem

    async def _delete_if_it_stays(self, pod: Pod) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        found = await self._client.get(kinds.PODS, name, namespace)
        if found.metadata.uid == uid and found.metadata.deletion_timestamp is None and not found.over:
            log.warning("%s/%s was asked to leave and nobody let it go: it is deleted", namespace, name)
            await self._client.delete(kinds.PODS, name, namespace, uid=uid)

    async def _evict(self, pod: Pod, words: str) -> None:
        """Others go by eviction; while a disruption budget says no, they are asked again."""
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
        for left in reversed(range(BUDGET_TRIES)):
            try:
                await self._client.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
                break
            except errors.TooManyRequests:
                if not left:
                    raise
            await asyncio.sleep(BUDGET_PAUSE)
        try:
            # Said once it is true: whoever its budget protects is no target.
            await self._client.apply_status(kinds.PODS, body, manager="fairway-scheduler")
        except (errors.NotFound, errors.Conflict):
            return  # It is gone already.
        except Exception as error:  # noqa: BLE001 - it was evicted all the same.
            log.warning("could not say why %s/%s was evicted: %s", pod.metadata.namespace, pod.metadata.name, error)
