"""Readiness of replicas, as reported by their nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairway.app.port.port import Clock
from fairway.app.port.serving import ProbeTarget
from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.serving import naming
from fairway.engines.kubernetes.serving.pod_watch import PodWatch
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.state.service import ServiceKey
from fairway.state.serving.load import ReplicaLoad

KEY = ServiceKey("team", "adds")
RUN = "team.services/adds-r1-1"
TARGET = ProbeTarget("10.0.0.7:20000", "/", tells_load=True)


def pod(ready: bool, **more: Any) -> Pod:
    labels = naming.replica_labels(KEY, 1) | {annotation.REPLICA: "adds-r1-1", annotation.ATTEMPT: "0"}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    metadata = {"name": "a", "namespace": "team", "uid": "a", "labels": labels, **more}
    return msgspec.convert({"metadata": metadata, "status": {"podIP": "10.0.0.7", "conditions": conditions}}, Pod)


async def test_a_replica_is_ready_when_its_pod_is_and_not_when_somebody_ends_it() -> None:
    client: Any = None
    pods: Informer[Pod] = Informer(client, api_resource.PODS, indexes={naming.BY_SERVICE: naming.by_service})
    asked = asyncio.Event()

    async def ask(peer: PodPeer, clock: Clock) -> ReplicaLoad:
        assert peer == PodPeer(TARGET.address)
        asked.set()
        return ReplicaLoad(clock.now(), served=3)

    watch, woken = PodWatch(pods, SystemClock(), ask), []
    watch.start(lambda: woken.append(1))
    pods.put(pod(ready=False))
    watch.follow({RUN: TARGET})
    assert not watch.seen()[RUN].ready
    pods.put(pod(ready=True))
    assert watch.seen()[RUN].ready
    assert len(woken) == 1
    watch.follow({RUN: TARGET, "team.services/adds-r1-2": TARGET})
    assert not watch.seen()["team.services/adds-r1-2"].ready
    watch.follow({})
    watch.follow({RUN: TARGET})
    assert watch.seen()[RUN].ready
    await asyncio.wait_for(asked.wait(), 10)
    while not watch.loads(KEY):
        await asyncio.sleep(0)
    assert watch.loads(KEY)["r1-1"].served == 3
    pods.put(pod(ready=True, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert not watch.seen()[RUN].ready
    await watch.close()
    assert watch.seen() == {}
