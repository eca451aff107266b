"""Binds gangs as a whole, and rolls back gangs of which a pod could not be bound."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from fairway.engines.kubernetes import gpu_allocation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler.concurrency_limit import AdaptiveConcurrencyLimit
from fairway.engines.kubernetes.scheduler.core_sync import GangBinding
from fairway.engines.kubernetes.scheduler.gang import PodPlacement
from fairway.engines.kubernetes.scheduler.volume_binder import VolumeClaimBinder

log = logging.getLogger("fairway.scheduler")

IN_FLIGHT = 24
"""Gangs bound at a time."""
TRIES = 3
PAUSES = (1.0, 2.0, 4.0)
"""Seconds between attempts to roll a pod back. If none succeeds, the rollback of its gang is repeated later."""
GANG_TIMEOUT = 30.0
"""Seconds after which a partly bound gang is rolled back."""

Gave = Callable[[Sequence[Pod], BaseException | None], None]
"""Called with the pods whose bindings were given up, and the cause."""
Bound = Callable[[Pod, PodPlacement], None]


class PodGangBinder:
    """Binds gangs with bounded concurrency."""

    def __init__(self, client: ApiClient, gave_up: Gave, bound: Bound, volumes: VolumeClaimBinder | None = None) -> None:
        self._client = client
        self._volumes = volumes
        self._gave_up = gave_up
        self._bound = bound
        self._pace = AdaptiveConcurrencyLimit()
        self._turns = asyncio.Semaphore(IN_FLIGHT)
        """Limits the gangs in flight. A gang's timeout starts when it has entered; none of its pods is bound before."""

    async def bind(self, gang: GangBinding) -> bool:
        """Bind all pods of the gang; return whether that succeeded.

        When one pod cannot be bound, those that were bound are deleted: no gang stays half bound.
        """
        if gang.claims and self._volumes is not None:
            try:
                await self._volumes.bind(gang.claims)
            except Exception as error:  # noqa: BLE001 - the failure concerns this gang only.
                log.warning("%s could not be bound: %s", gang.key, error)
                self._gave_up([pod for pod, _ in gang.pods], error)
                return False
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
        await self.take_back([pod for pod, _ in gang.pods], failed[0])
        return False

    async def _bind(self, pod: Pod, place: PodPlacement) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        chosen = gpu_allocation.chosen(place.devices, place.milli, place.part)
        async with self._pace.turn():
            for retries_left in reversed(range(TRIES)):
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
                    if not retries_left:
                        raise
        self._bound(pod, place)

    async def _is_there(self, pod: Pod, place: PodPlacement) -> bool:
        """Return whether this pod is bound to the place already: the response to an earlier try may have been lost."""
        try:
            current = await self._client.get(api_resource.PODS, pod.metadata.name, pod.metadata.namespace)
        except Exception:  # noqa: BLE001 - then it is not known to be bound.
            return False
        return current.metadata.uid == pod.metadata.uid and current.spec.node_name == place.node

    async def take_back(self, pods: Sequence[Pod], problem: BaseException | None = None) -> None:
        """Delete those of the pods that were bound: a binding cannot be undone. The pods' controller creates them anew."""
        remaining = list(pods)
        for pause in (*PAUSES, 0.0):
            remaining = [pod for pod in remaining if not await self._is_taken_back(pod)]
            if not remaining:
                break
            await asyncio.sleep(pause)
        self._gave_up(pods, problem)

    async def _is_taken_back(self, pod: Pod) -> bool:
        try:
            current = await self._client.get(api_resource.PODS, pod.metadata.name, pod.metadata.namespace)
            if current.metadata.uid == pod.metadata.uid and current.spec.node_name:
                await self._client.delete(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except errors.NotFound:
            return True
        except Exception as error:  # noqa: BLE001 - the other pods are rolled back all the same.
            log.warning("could not delete %s/%s of a half-bound gang: %s", pod.metadata.namespace, pod.metadata.name, error)
            return False
        return True
