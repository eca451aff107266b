"""What survives a scheduler process, and what does not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from scheduling_world import OURS, Cluster, node, pod

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import ConfigMap
from fairway.engines.kubernetes.scheduler import memory_store
from fairway.engines.kubernetes.scheduler.core_sync import CoreSync
from fairway.plan.scheduling.gang import TaskNodeSelector, TaskSeat, TaskShape
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory, SeatReservation
from fairway.state.job import JobKey


def test_use_and_durations_outlive_the_scheduler_and_pods_say_the_rest() -> None:
    cluster = Cluster(node("a", cpu="2"))
    cluster.pod(pod("x", labels=OURS, annotations={annotation.QUEUE: "red"}))
    assert cluster.decide() == {"x": "a"}
    cluster.now += 3600
    cluster.pod(pod("x", labels=OURS, annotations={annotation.QUEUE: "red"}, nodeName="a", phase="Succeeded"))
    cluster.decide()
    before = cluster.follower.scheduler.ledger
    kept = memory_store.read(memory_store.write(before.memory))
    assert kept.usage["red"][0] > 0
    assert kept.history.count == 1
    assert not kept.sitting
    again = CoreSync(Scheduler(kept))
    assert again.scheduler.ledger.accounts.recent("red", cluster.now) == before.accounts.recent("red", cluster.now)


def test_runs_that_do_not_come_back_are_forgotten() -> None:
    cluster = Cluster(node("a"))
    cluster.pod(pod("x", nodeName="a", phase="Running"))
    cluster.decide()
    cluster.gone(pod("x"))
    cluster.decide()
    kept = cluster.follower.scheduler.ledger.memory
    cluster.follower.forget(cluster.now)
    assert set(kept.left) == {"team/pod/x"}
    cluster.follower.forget(cluster.now + memory_store.RETURNS_WITHIN + 1)
    assert not kept.left
    assert not kept.ran


def test_places_kept_for_somebody_who_is_gone_are_free() -> None:
    seat = TaskSeat("pod", 0, TaskShape(cpu=4000), "a")
    follower = CoreSync(Scheduler(SchedulerMemory(reservations={"team/pod/gone": SeatReservation((seat,), 2000.0, 1000.0)})))
    one, waiting = node("a"), pod("x", cpu="4")
    follower.node("a", None, one)
    follower.pod("team/x", None, waiting)
    (bind,) = follower.decide(1001.0).binds
    assert bind.key == JobKey("team", "pod/x")


def test_it_stays_within_its_bounds(monkeypatch: Any) -> None:
    many = SchedulerMemory(
        left={f"team/{number}": float(number) for number in range(memory_store.MOST_RUNS + 10)},
        ran={f"team/{number}": (1.0, float(pow(number, 7, 1_000_003))) for number in range(memory_store.MOST_RUNS + 10)},
        started=[(TaskShape(where=TaskNodeSelector(nodes=tuple("abcdefghij"))), 1), (TaskShape(cpu=1), 2)],
    )
    kept = memory_store.read(memory_store.write(many))
    assert len(kept.left) == memory_store.MOST_RUNS
    assert "team/0" not in kept.left
    assert kept.started == [(TaskShape(cpu=1), 2)]
    monkeypatch.setattr(memory_store, "MOST_BYTES", 2_000)
    assert not memory_store.read(memory_store.write(many)).ran
    monkeypatch.setattr(memory_store, "MOST_BYTES", 10)
    assert memory_store.write(many) == ""


def test_what_cannot_be_read_is_an_empty_memory() -> None:
    assert memory_store.read("") == memory_store.read("%%%") == memory_store.read("aGVsbG8=") == SchedulerMemory()


def test_it_is_written_only_when_it_is_another() -> None:
    class Server:
        def __init__(self) -> None:
            self.kept: dict[str, str] | None = None
            self.writes = 0

        async def get(self, *_: object) -> ConfigMap:
            if self.kept is None:
                raise errors.NotFound("none", asked="get", http=404)
            return msgspec.convert({"data": self.kept}, ConfigMap)

        async def apply(self, _kind: object, body: dict[str, Any], **_: object) -> None:
            self.kept = body["data"]
            self.writes += 1

    async def scene() -> None:
        server = Server()
        keeper = memory_store.SchedulerMemoryStore(cast(ApiClient, server), "fairway-system")
        assert await keeper.recall() == SchedulerMemory()
        for _ in range(2):
            await keeper.keep(SchedulerMemory(usage={"red": (0.5, 1000.0)}))
        assert server.writes == 1
        assert (await memory_store.SchedulerMemoryStore(cast(ApiClient, server), "fairway-system").recall()).usage == {
            "red": (0.5, 1000.0)
        }

    asyncio.run(scene())
