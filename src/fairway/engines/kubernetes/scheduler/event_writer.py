"""Writes on pods why they wait, and records Events; both give way to bindings."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

from fairway.app.loop.fault_register import SCHEDULER, FaultRegister
from fairway.app.port.port import Clock
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.leader_election import micro_time
from fairway.engines.kubernetes.objects import KubernetesObject, Pod, key_of
from fairway.engines.kubernetes.timestamp import stamp
from fairway.state.fault import FIRST_RETRY, LONGEST_RETRY
from fairway.state.job import WaitReason

log = logging.getLogger("fairway.scheduler")

CAPACITY = frozenset({"cpu", "memory", "gpu", "tasks", "nodes", "placement", "rack"})
"""Reasons that more nodes would resolve: node autoscalers look for them."""
REASONS = {"unsupported": "UnsupportedConstraint", "fault": "SchedulerError"}
"""Condition reasons for holds that concern neither queues nor capacity."""
MOST_UNSAID = 20_000
"""Limit of Events waiting to be written; beyond it the oldest are dropped."""
WRITERS = 8
MOST_TRIES = 8
"""Attempts to write an Event before it is dropped."""
STATUS = "write status"
MANAGER = "fairway-scheduler"


class PodEventWriter:
    """Writes pod conditions, and Events in the background."""

    def __init__(self, client: ApiClient, clock: Clock, identity: str, faults: FaultRegister) -> None:
        self._faults = faults
        self._client = client
        self._clock = clock
        self._identity = identity
        self._unsaid: deque[tuple[Mapping[str, Any], int]] = deque(maxlen=MOST_UNSAID)
        """Each with the number of attempts so far."""
        self._something = asyncio.Event()
        self._told: dict[str, str] = {}
        """By uid of the pod: the reason that was written last."""
        self._number = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def bound(self, pod: Pod, node: str) -> None:
        """Record that a pod was bound."""
        self._told.pop(pod.metadata.uid, None)
        words = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
        self._event(pod, "Normal", "Scheduled", "Binding", words)

    async def waits(self, pod: Pod, hold: WaitReason) -> bool:
        """Write why a pod waits, once for each reason. Return False when the write is still due."""
        if self._told.get(pod.metadata.uid) == hold.message:
            return True
        subject = f"pod:{key_of(pod)}"
        if not self._faults.due(subject, STATUS):
            return False
        with self._faults.contain(subject, STATUS):
            await self._say_why(pod, hold)
            self._told[pod.metadata.uid] = hold.message
        return self._told.get(pod.metadata.uid) == hold.message

    async def _say_why(self, pod: Pod, hold: WaitReason) -> None:
        reason = "Unschedulable" if hold.reason in CAPACITY or "/" in hold.reason else "FairwayQueue"
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": REASONS.get(hold.reason, reason),
            "message": hold.message,
            "lastTransitionTime": stamp(self._clock.now()),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "status": {"conditions": [condition]},
        }
        try:
            await self._client.apply_status(api_resource.PODS, body, manager=MANAGER)
        except (errors.NotFound, errors.Conflict) as error:
            log.debug("%s was deleted, or replaced by a pod of the same name: %s", pod.metadata.name, error)
            return
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", hold.message)

    def happened(self, resource: ApiResource[Any], thing: KubernetesObject, reason: str, words: str) -> None:
        """Record an Event about the scheduler's own work on an object: it fails, or has recovered."""
        kind = "Normal" if reason == "Recovered" else "Warning"
        self._event(thing, kind, reason, "Scheduling", words, resource)

    def forget(self, pod: Pod) -> None:
        """Forget a removed pod."""
        self._told.pop(pod.metadata.uid, None)

    def make_way(self, *, busy: bool) -> None:
        """Slow Events down while pods are being bound, so that they take little of the API server's capacity."""
        if busy:
            self._quiet.clear()
        else:
            self._quiet.set()

    async def run(self) -> None:
        """Write Events until cancelled."""
        always = asyncio.Event()
        always.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write(always))
            for _ in range(WRITERS - 1):
                group.create_task(self._write(self._quiet))

    async def _write(self, when: asyncio.Event) -> None:
        while True:
            await when.wait()
            while not self._unsaid:
                self._something.clear()
                await self._something.wait()
                await when.wait()
            body, tries = self._unsaid.popleft()
            try:
                await self._client.create(api_resource.EVENTS, body, body["metadata"]["namespace"])
            except errors.AlreadyExists:
                continue  # The response to an earlier try was lost.
            except Exception as problem:  # noqa: BLE001 - the failure concerns this Event only.
                self._faults.fail(SCHEDULER, "create event", problem)
                self._write_later(body, tries + 1, problem)
            else:
                self._faults.clear(SCHEDULER, "create event")

    def _write_later(self, body: Mapping[str, Any], tries: int, problem: Exception) -> None:
        lasting = isinstance(problem, errors.ApiError) and not isinstance(problem, errors.Unavailable | errors.TooManyRequests)
        if tries >= MOST_TRIES or lasting:
            log.debug("dropped an event: %s", problem)
            return
        delay = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** (tries - 1))
        asyncio.get_running_loop().call_later(delay, self._put, body, tries)

    def _put(self, body: Mapping[str, Any], tries: int) -> None:
        self._unsaid.append((body, tries))
        self._something.set()

    def _event(
        self,
        thing: KubernetesObject,
        kind: str,
        reason: str,
        action: str,
        words: str,
        resource: ApiResource[Any] = api_resource.PODS,
    ) -> None:
        self._number += 1
        now = self._clock.now()
        namespace = thing.metadata.namespace or "default"
        body = {
            "apiVersion": api_resource.EVENTS.api_version,
            "kind": api_resource.EVENTS.kind,
            "metadata": {"name": f"{thing.metadata.name}.{int(now * 1000):x}{self._number:x}", "namespace": namespace},
            "eventTime": micro_time(now),
            "reportingController": annotation.SCHEDULER,
            "reportingInstance": self._identity,
            "type": kind,
            "reason": reason,
            "action": action,
            "note": words[:1000],
            "regarding": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "namespace": thing.metadata.namespace,
                "name": thing.metadata.name,
                "uid": thing.metadata.uid,
            },
        }
        self._put(body, 0)
