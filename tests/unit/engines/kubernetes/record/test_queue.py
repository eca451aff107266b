"""Synchronizing the operator's queues with their objects, whichever changes first."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from fairway.app.application import Application
from fairway.app.port.port import ChangeSet
from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client.api import ObjectList
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.record.queue import QueueReconciler
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.testing.fake.memory_store import MemoryStore


def named(name: str) -> CustomObject:
    return msgspec.convert({"metadata": {"name": name}, "spec": msgspec.Raw(b"{}")}, CustomObject)


class ApiServer:
    """The objects of the API server; the mirror may not have all of them yet."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    async def list(self, _resource: Any) -> ObjectList[CustomObject]:
        return ObjectList(tuple(map(named, self.names)), "1")


async def test_a_queue_stays_whose_object_is_there_and_not_seen_yet_and_goes_with_its_object() -> None:
    clock, unused = SystemClock(), cast("Any", None)
    engine = FakeEngine(FakeMachine(ClusterNode("here", cpu=1.0, memory=1 << 30)), clock)
    application = Application(MemoryStore(), engine, clock, unused, unused, unused)
    application.queues.take(ChangeSet(queues=(Queue("research"),)))
    server, seen = ApiServer("research", "other"), [named("other")]
    objects = QueueReconciler(server, application, seen)  # type: ignore[arg-type]
    await objects.look("other")
    assert [queue.name for queue in application.queues.all()] == ["default", "other", "research"]
    server.names.remove("research")
    await objects.look("other")
    assert [queue.name for queue in application.queues.all()] == ["default", "other"]
