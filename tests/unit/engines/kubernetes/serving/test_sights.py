"""Readiness of replicas, as reported by their nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairway.app.ports import Clock
from fairway.app.service_ports import Watched
from fairway.app.system import SystemClock
from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.serving import naming
from fairway.engines.kubernetes.serving.sights import PodWatch
from fairway.runtime.secured.peer import Peer
from fairway.state.load import ReplicaLoad
from fairway.state.service import ServiceKey

KEY = ServiceKey("team", "adds")
RUN = "team.services/adds-r1-1"
TARGET = Watched("10.0.0.7:20000", "/", tells_load=True)


def pod(ready: bool, **more: Any) -> Pod:
    labels = naming.replica_labels(KEY, 1) | {marks.REPLICA: "adds-r1-1", marks.ATTEMPT: "0"}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    metadata = {"name": "a", "namespace": "team", "uid": "a", "labels": labels, **more}
    return msgspec.convert({"metadata": metadata, "status": {"podIP": "10.0.0.7", "conditions": conditions}}, Pod)


async def test_a_replica_is_ready_when_its_pod_is_and_not_when_somebody_ends_it() -> None:
    client: Any = None
    pods: Mirror[Pod] = Mirror(client, kinds.PODS, indexes={naming.BY_SERVICE: naming.by_service})
    asked = asyncio.Event()

    async def ask(peer: Peer, clock: Clock) -> ReplicaLoad:
        assert peer == Peer(TARGET.address)
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
