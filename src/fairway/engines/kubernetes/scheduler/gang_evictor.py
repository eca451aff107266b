"""Evicts gangs: pods of the operator by an annotation, other pods by the eviction API, as their disruption budgets allow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from fairway.app.port.port import Clock
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler.core_sync import GangEviction
from fairway.engines.kubernetes.timestamp import stamp
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.state.job import RunEviction

log = logging.getLogger("fairway.scheduler")

PATIENCE = 30.0
"""Seconds beyond its grace period after which a pod is deleted whose operator does not react."""
DEFAULT_GRACE = 30
BUDGET_PAUSE = 10.0
"""Seconds between eviction attempts for a pod that its disruption budget protects."""
BUDGET_TRIES = 30

Asked = Callable[[Sequence[Pod], Exception | None], None]
"""Called with the pods that were to leave, and with the problem if they could not be evicted or did not leave."""


class PodGangEvictor:
    """Makes gangs leave their nodes."""

    def __init__(self, client: ApiClient, clock: Clock, asked: Asked) -> None:
        self._client = client
        self._clock = clock
        self._asked = asked

    async def make_room(self, room: GangEviction) -> None:
        """Evict all pods of the gang; the operator lets a run save before it leaves.

        Pods that cannot be evicted stay, and the callback gets the problem.
        """
        try:
            await self._make_room(room)
        except Exception as problem:  # noqa: BLE001 - the failure concerns this gang only.
            self._asked(room.pods, problem)

    async def _make_room(self, room: GangEviction) -> None:
        words = wait_explanation.eviction(room.eviction)
        leaving = RunEviction(room.eviction.cause.value, words, self._clock.now(), dict(room.eviction.sizes))
        ours = [pod for pod in room.pods if pod.metadata.labels.get(annotation.MANAGED_BY) == annotation.MANAGER]
        others = [pod for pod in room.pods if pod not in ours]
        if not room.pods:
            return
        problems = [await self._trying(self._mark(pod, leaving), pod) for pod in ours]
        problems += await asyncio.gather(*(self._trying(self._evict(pod, words), pod) for pod in others))
        self._asked(room.pods, problems[0] if all(problems) else None)
        await self._insist([pod for pod, problem in zip(ours, problems, strict=False) if problem is None])

    async def _trying(self, work: Awaitable[None], pod: Pod) -> Exception | None:
        """Await the work; return the exception, or None when there was none."""
        try:
            await work
        except errors.NotFound:
            return None  # It left by itself.
        except Exception as error:  # noqa: BLE001 - the other pods are evicted all the same.
            log.warning("could not evict %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
            return error
        return None

    async def _mark(self, pod: Pod, leaving: RunEviction) -> None:
        place = "/metadata/annotations/" + annotation.LEAVE.replace("/", "~1")
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        change = {"op": "add", "path": place, "value": annotation.write_leave(leaving)}
        await self._client.patch(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])

    async def _insist(self, pods: Sequence[Pod]) -> None:
        """Delete marked pods that still run after their grace period: the operator did not react."""
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
        current = await self._client.get(api_resource.PODS, name, namespace)
        if current.metadata.uid == uid and current.metadata.deletion_timestamp is None and not current.over:
            log.warning(
                "%s/%s still runs after its grace period, and the operator has not deleted it: deleting it now", namespace, name
            )
            await self._client.delete(api_resource.PODS, name, namespace, uid=uid)

    async def _evict(self, pod: Pod, words: str) -> None:
        """Evict a pod by the eviction API; retry while its disruption budget forbids it."""
        condition = {
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
            "status": {"conditions": [condition]},
        }
        for retries_left in reversed(range(BUDGET_TRIES)):
            try:
                await self._client.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
                break
            except errors.TooManyRequests:
                if not retries_left:
                    raise
            await asyncio.sleep(BUDGET_PAUSE)
        try:
            # Written only after the eviction: a pod that its budget protects is no disruption target.
            await self._client.apply_status(api_resource.PODS, body, manager="fairway-scheduler")
        except (errors.NotFound, errors.Conflict):
            return  # It is removed already.
        except Exception as error:  # noqa: BLE001 - the pod was evicted all the same.
            log.warning(
                "could not write the reason for the eviction of %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error
            )
