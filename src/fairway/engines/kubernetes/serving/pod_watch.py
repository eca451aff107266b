"""Watches whether replicas are ready, as the kubelet reports, and how busy they report to be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from fairway.app.port.port import Clock
from fairway.app.port.serving import ProbeResult, ProbeTarget
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.serving import naming, replica_assignment
from fairway.engines.kubernetes.serving.load_validation import checked_replica
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey
from fairway.state.serving.load import ReplicaLoad

log = logging.getLogger("fairway.operator")

ASK_EVERY = 1.0
"""Seconds between two load requests to a replica."""

AskLoad = Callable[[PodPeer, Clock], Awaitable[ReplicaLoad | None]]
"""Requests the load of a replica; returns None when it reports none."""


class PodWatch:
    """The `ReplicaWatch` port over pods."""

    def __init__(self, pods: Informer[Pod], clock: Clock, ask: AskLoad) -> None:
        self._pods = pods
        self._clock = clock
        self._ask = ask
        self._wake: Callable[[], None] = lambda: None
        self._targets: dict[str, ProbeTarget] = {}
        self._seen: dict[str, ProbeResult] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def start(self, wake: Callable[[], None]) -> None:
        """Start listening. The mirror must be complete."""
        self._wake = wake

        def told(_key: str, before: Pod | None, now: Pod | None) -> None:
            pod = now or before or Pod()
            run = pod.metadata.labels.get(annotation.REPLICA)
            if run is not None:
                self._note(str(JobKey(f"{pod.metadata.namespace}{OWN_NAMESPACE}", run)))

        self._pods.listen(told)

    def follow(self, targets: Mapping[str, ProbeTarget]) -> None:
        """Watch exactly these replicas from now on, by run."""
        for name in [name for name, target in self._targets.items() if targets.get(name) != target]:
            del self._targets[name]
            self._seen.pop(name, None)
            self._asking.pop(name).cancel()
        for name, target in targets.items():
            if name not in self._targets:
                self._targets[name] = target
                self._asking[name] = asyncio.create_task(self._ask_on(name, target))
                self._note(name)

    def _note(self, name: str) -> None:
        """Wake the waiter when a replica becomes ready or stops being so."""
        target, before = self._targets.get(name), self._seen.get(name)
        if target is None:
            return
        ready = self._is_ready(name, target)
        if before is None or before.ready != ready:
            self._seen[name] = ProbeResult(ready, self._clock.now(), before.load if before else None)
            if ready or before is not None:
                self._wake()

    def seen(self) -> Mapping[str, ProbeResult]:
        """Return the last state of each watched replica."""
        return self._seen

    def loads(self, key: ServiceKey) -> dict[str, ReplicaLoad]:
        """Return the loads that the replicas of a service report, by name."""
        start = f"{key.namespace}{OWN_NAMESPACE}/{key.name}-"
        seen = self.seen().items()
        return {
            name.removeprefix(start): sight.load
            for name, sight in seen
            if sight.load is not None and naming.service_of(JobKey(*name.split("/", 1))) == str(key)
        }

    async def close(self) -> None:
        """Stop watching."""
        asking = list(self._asking.values())
        self.follow({})
        await asyncio.gather(*asking, return_exceptions=True)

    def _is_ready(self, name: str, target: ProbeTarget) -> bool:
        return self._ready_pod(name, target) is not None

    def _ready_pod(self, name: str, target: ProbeTarget) -> Pod | None:
        run = JobKey(*name.split("/", 1))
        pods = self._pods.indexed(naming.BY_SERVICE, naming.service_of(run))
        own = (pod for pod in pods if pod.metadata.labels.get(annotation.REPLICA) == run.name)
        at = (pod for pod in own if target.address == f"{pod.status.pod_ip}:{naming.REPLICA_PORT}")
        return next((pod for pod in at if replica_assignment.is_ready(pod)), None)

    async def _ask_on(self, name: str, target: ProbeTarget) -> None:
        while target.tells_load:
            pod = self._ready_pod(name, target)
            if pod is not None:
                load, sight = await self._load(name, naming.load_peer(pod)), self.seen().get(name)
                if load is not None and sight is not None:
                    self._seen[name] = replace(sight, load=load)
            await asyncio.sleep(ASK_EVERY)

    async def _load(self, name: str, peer: PodPeer) -> ReplicaLoad | None:
        """Return the replica's load; None when it reports none, or an impossible one."""
        try:
            load = await self._ask(peer, self._clock)
            return checked_replica(load) if load is not None else None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            log.debug("the load that %s at %s reports cannot be used: %s", name, peer.address, error)
            return None
