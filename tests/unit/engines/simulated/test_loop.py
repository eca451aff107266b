"""A day of a busy cluster in the real loop: preemption, shrink, grow, reclaim, failures, lost tasks and a lost node."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from fairway.app.loop import loop as loops
from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet
from fairway.engines.simulated.cluster import SimulatedCluster
from fairway.engines.simulated.engine import SimulatedEngine
from fairway.engines.simulated.task_behaviour import TaskBehaviour
from fairway.plan.action import Action, EvictTask
from fairway.spec.job import RoleReplicas, TaskRole
from fairway.spec.resource import ResourceAmounts
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.state.task import TaskKey, TaskReport
from fairway.testing.builder.job_builder import a_job, a_queue
from fairway.testing.fake.memory_store import MemoryStore

HOUR = 3600.0
INTERVAL = 300.0
"""Seconds between two checkpoints."""
LOOK_EVERY = 150.0
MOST_EVICTIONS = 20
"""Limit of evictions per run: some in a busy day, but not again and again."""
TICK = 0.001
"""Least number of seconds by which the clock advances between turns."""


def some_nodes(count: int = 4, gpus: int = 8) -> list[ClusterNode]:
    return [
        ClusterNode(
            f"n{number}", cpu=64.0, memory=256 << 30, devices=tuple(NodeDevice(f"n{number}/{at}", at) for at in range(gpus))
        )
        for number in range(count)
    ]


class Watched(SimulatedEngine):
    """Counts the causes of evictions."""

    causes: Counter[str]

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        self.causes.update(action.reason for action in actions if isinstance(action, EvictTask))
        return await super().perform(actions)


@dataclass
class Theatre:
    """The loop over simulated machines, with a clock that jumps from one event to the next."""

    cluster: SimulatedCluster
    store: MemoryStore = field(default_factory=MemoryStore)
    turns: int = 0

    def __post_init__(self) -> None:
        engine = Watched(self.cluster)
        self.causes = engine.causes = Counter()
        self.loop = ReconcileLoop(self.store, engine, self.cluster.clock)
        self.to_come: list[JobState] = []

    async def play(self, jobs: list[JobState], queues: list[Queue], until: float) -> None:
        """Submit each job at its creation time, and continue until all have finished."""
        self.store.commit(ChangeSet(queues=tuple(queues)))
        self.to_come = sorted(jobs, key=lambda job: job.created, reverse=True)
        await self.loop.start()
        await self.go_on(until)

    async def go_on(self, until: float) -> None:
        while self.to_come or self.loop.snapshot.jobs:
            wake_at = await self.loop.turn()
            self.turns += 1
            times = [wake_at, self.cluster.next_change(), self.to_come[-1].created if self.to_come else None]
            ahead = [time for time in times if time is not None]
            if not self.loop.snapshot.jobs and not self.to_come:
                return
            assert ahead, f"nothing will ever happen, and these wait: {[str(key) for key in self.loop.snapshot.jobs]}"
            now = self.cluster.clock.now()
            self.cluster.pass_to(max(now + TICK, min(ahead)))
            if self.cluster.clock.now() >= until:
                return
            while self.to_come and self.to_come[-1].created <= self.cluster.clock.now():
                job = self.to_come.pop()
                self.store.commit(ChangeSet(jobs=(job,)))
                self.loop.snapshot.put_job(job)

    def job(self, key: JobKey) -> JobState:
        found = self.store.get_job(key)
        assert found is not None
        return found


@pytest.fixture(autouse=True)
def slow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure less often: measuring every second would take most of the test's time."""
    monkeypatch.setattr(loops, "MEASURE_EVERY", LOOK_EVERY)
    monkeypatch.setattr(loops, "NODES_EVERY", LOOK_EVERY)


def worker(gpus: int = 1, least: int = 1, most: int = 1) -> dict[str, TaskRole]:
    resources = ResourceAmounts(gpu=str(gpus), cpu="1")
    return {"worker": TaskRole(command=("train",), replicas=RoleReplicas(min=least, max=most), resources=resources)}


def a_day(chance: random.Random, count: int) -> tuple[list[JobState], dict[JobKey, TaskBehaviour]]:
    """Return jobs of all kinds, and the behaviour of each."""
    jobs: list[JobState] = []
    behaviours: dict[JobKey, TaskBehaviour] = {}
    for number in range(1, count + 1):
        kind = chance.choices(("single", "gang", "elastic", "urgent", "owner"), (50, 15, 15, 8, 12))[0]
        roles = {
            "single": worker(),
            "gang": worker(gpus=2, least=chance.choice((2, 4)), most=4) if chance.random() < 0.5 else worker(gpus=8),
            "elastic": worker(least=1, most=6),
            "urgent": worker(gpus=8, least=2, most=2),
            "owner": worker(gpus=4),
        }[kind]
        job = a_job(
            name=f"{kind}-{number}",
            roles=roles,
            priority=10 if kind == "urgent" else 0,
            queue="research" if kind == "owner" else "default",
            grace="30s",
        )
        jobs.append(replace(job, created=chance.uniform(0.0, 20 * HOUR)))
        behaviours[job.key] = TaskBehaviour(
            work=chance.lognormvariate(7.2, 1.0),
            checkpoint_every=INTERVAL,
            leaves_after=chance.choice((0.0, 5.0, 60.0)),
            saves_on_leaving=chance.random() < 0.5,
            preparing=chance.choice((0.0, 3.0)),
        )
    return jobs, behaviours


async def test_a_day_ends_and_nothing_is_lost() -> None:
    chance = random.Random(7)
    jobs, behaviours = a_day(chance, 200)
    failing = {job.key for job in jobs if chance.random() < 0.05}
    losing = {job.key for job in jobs if chance.random() < 0.03} - failing

    def script(job: JobState, key: TaskKey) -> TaskBehaviour:
        own = behaviours[job.key]
        if key.attempt == 0 and key.index == 0 and job.key in failing:
            return replace(own, fails_after=own.work / 2)
        if key.attempt == 0 and key.index == 0 and job.key in losing:
            return replace(own, lost_after=own.work / 3)
        return own

    cluster = SimulatedCluster(some_nodes(), script)
    theatre = Theatre(cluster)
    queues = [a_queue("research", quota={"gpu": "8"}), a_queue("default", quota={"gpu": "24"})]
    await theatre.play(jobs, queues, until=20 * 24 * HOUR)

    assert [str(job.key) for job in jobs if theatre.job(job.key).phase is not JobPhase.SUCCEEDED] == []
    assert cluster.refusals == []
    assert not any(cluster.room.holds(key) for run in cluster.runs.values() for key in run.lives)
    assert set(cluster.starts.values()) == {1}
    assert max(theatre.job(job.key).evictions for job in jobs) <= MOST_EVICTIONS, "two runs take the same places from each other"
    assert {"priority", "reclaim", "shrink", "grow", "GangRestart"} <= set(theatre.causes), theatre.causes
    assert cluster.losses
    assert max(loss.seconds for loss in cluster.losses) <= INTERVAL + 1e-6


async def test_a_lost_node_costs_one_checkpoint_interval_at_most() -> None:
    jobs = [replace(a_job(name=f"train-{number}", roles=worker(gpus=4)), created=0.0) for number in range(1, 7)]
    cluster = SimulatedCluster(some_nodes(2), lambda _job, _key: TaskBehaviour(work=2 * HOUR, checkpoint_every=INTERVAL))
    theatre = Theatre(cluster)
    await theatre.play(jobs, [], until=HOUR + 100.0)
    cluster.lose_node("n1")
    await theatre.go_on(until=2 * HOUR)
    assert len(cluster.losses) == 2
    assert max(loss.seconds for loss in cluster.losses) <= INTERVAL
    cluster.put_node(some_nodes(2)[1])
    await theatre.go_on(until=100 * HOUR)
    assert [theatre.job(job.key).phase for job in jobs] == [JobPhase.SUCCEEDED] * 6
    assert sorted(theatre.job(job.key).restarts for job in jobs) == [0, 0, 0, 0, 1, 1]


async def test_a_gang_that_fails_forever_ends_as_failed() -> None:
    job = replace(a_job(name="broken-1", replicas=3), created=0.0)
    cluster = SimulatedCluster(
        some_nodes(1), lambda _job, key: TaskBehaviour(fails_after=5.0 if key.index == 1 else float("inf"))
    )
    theatre = Theatre(cluster)
    await theatre.play([job], [], until=HOUR)
    ended = theatre.job(job.key)
    assert (ended.phase, ended.restarts) == (JobPhase.FAILED, job.spec.restart.max)
    assert not any(cluster.room.holds(key) for key in cluster.runs[job.key].lives)


async def test_a_restarted_loop_goes_on() -> None:
    job = replace(a_job(name="train-1", roles=worker()), created=0.0)
    cluster = SimulatedCluster(some_nodes(1), lambda _job, _key: TaskBehaviour(work=HOUR))
    first = Theatre(cluster)
    await first.play([job], [], until=600.0)
    second = Theatre(cluster, first.store)
    await second.play([], [], until=2 * HOUR)
    assert second.job(job.key).phase is JobPhase.SUCCEEDED
    assert set(cluster.starts.values()) == {1}
