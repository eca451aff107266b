"""Says on pods why they wait, and records what happened as Events; never in the way of a binding."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

from fairway.app.ports import Clock
from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.leader import micro_time
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.times import stamp
from fairway.errors import FairwayError
from fairway.state.job import Hold

log = logging.getLogger("fairway.scheduler")

CAPACITY = frozenset({"cpu", "memory", "gpu", "tasks", "nodes", "placement", "rack"})
"""Reasons that more nodes would help with: node autoscalers look for them."""
MOST_UNSAID = 20_000
"""Events that wait to be written; older ones are dropped."""
WRITERS = 8
MANAGER = "fairway-scheduler"


class Telling:
    """Writes conditions and Events in the background."""

    def __init__(self, client: Client, clock: Clock, identity: str) -> None:
        self._client = client
        self._clock = clock
        self._identity = identity
        self._unsaid: deque[Mapping[str, Any]] = deque(maxlen=MOST_UNSAID)
        self._something = asyncio.Event()
        self._told: dict[str, str] = {}
        """By uid of the pod: why it waits, as it was told."""
        self._number = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def bound(self, pod: Pod, node: str) -> None:
        """A pod got its place."""
        self._told.pop(pod.metadata.uid, None)
        words = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
        self._event(pod, "Normal", "Scheduled", "Binding", words)

    async def waits(self, pod: Pod, hold: Hold) -> None:
        """A pod waits for this reason; said once for each reason."""
        if self._told.get(pod.metadata.uid) == hold.message:
            return
        self._told[pod.metadata.uid] = hold.message
        reason = "Unschedulable" if hold.reason in CAPACITY or "/" in hold.reason else "FairwayQueue"
        told = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "UnsupportedConstraint" if hold.reason == "unsupported" else reason,
            "message": hold.message,
            "lastTransitionTime": stamp(self._clock.now()),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "status": {"conditions": [told]},
        }
        try:
            await self._client.apply_status(kinds.PODS, body, manager=MANAGER)
        except FairwayError as error:
            self._told.pop(pod.metadata.uid, None)
            log.debug("could not say why %s waits: %s", pod.metadata.name, error)
            return
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", hold.message)

    def forget(self, pod: Pod) -> None:
        """The pod is gone."""
        self._told.pop(pod.metadata.uid, None)

    def make_way(self, *, busy: bool) -> None:
        """While pods are being bound, Events take little of what the API server can do."""
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
            body = self._unsaid.popleft()
            try:
                await self._client.create(kinds.EVENTS, body, body["metadata"]["namespace"])
            except FairwayError as error:
                log.debug("an event is lost: %s", error)

    def _event(self, pod: Pod, kind: str, reason: str, action: str, words: str) -> None:
        self._number += 1
        now = self._clock.now()
        self._unsaid.append(
            {
                "apiVersion": kinds.EVENTS.api_version,
                "kind": kinds.EVENTS.kind,
                "metadata": {
                    "name": f"{pod.metadata.name}.{int(now * 1000):x}{self._number:x}",
                    "namespace": pod.metadata.namespace,
                },
                "eventTime": micro_time(now),
                "reportingController": marks.SCHEDULER,
                "reportingInstance": self._identity,
                "type": kind,
                "reason": reason,
                "action": action,
                "note": words[:1000],
                "regarding": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": pod.metadata.namespace,
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                },
            }
        )
        self._something.set()
