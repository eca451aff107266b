"""Explanations of waiting runs over a fake engine: current, kept as long as they hold; and requested moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from fairway.app.application import Application
from fairway.app.port.port import Observation
from fairway.app.submission import Submission
from fairway.plan.scheduling import scheduler_memory, start_simulation
from fairway.spec.job import TrainingJob
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.state.task import TaskExit
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.testing.fake.memory_store import FakePeople, MemoryStore


class ManualClock:
    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


class NoSecrets:
    def names(self) -> list[str]:
        return []


class Keeper:
    async def receive(self, submission: Submission) -> SubmissionOrigin:
        return submission.origin

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []

    def keep(self, key: JobKey, submission: Submission) -> None:
        pass

    async def fingerprint(self, job: JobState) -> str:
        return ""


def node(name: str, gpus: int, kind: str = "A100") -> ClusterNode:
    return ClusterNode(name, 16.0, 64 << 30, tuple(NodeDevice(f"{name}-{index}", index, kind, 80 << 30) for index in range(gpus)))


class Nodes(FakeEngine):
    """An engine with several nodes."""

    def __init__(self, clock: ManualClock, *nodes: ClusterNode) -> None:
        super().__init__(FakeMachine(), clock)
        self.there = nodes

    async def nodes(self) -> tuple[ClusterNode, ...]:
        return self.there


@dataclass
class Desk:
    app: Application
    engine: Nodes
    clock: ManualClock

    async def submit(self, name: str, gpus: int, user: str = "ann", **more: Any) -> JobState:
        role = {
            "command": ["stay"],
            "resources": {"gpu": str(gpus), "cpu": "1", **more.pop("resources", {})},
            **more.pop("role", {}),
        }
        document = TrainingJob.model_validate({"metadata": {"name": name}, "spec": {"roles": {"worker": role}, **more}})
        job = await self.app.submit(Submission(document, SubmissionOrigin(user=user)))
        await self.settled()
        return self.now(job)

    async def settled(self) -> None:
        async with self.app.loop.lock:
            await self.app.loop.turn()

    def now(self, job: JobState) -> JobState:
        return self.app.find(job.key.namespace, job.key.name)

    async def save(self, job: JobState, step: int) -> None:
        """Report a checkpoint of the run."""
        self.clock.time += 2.0
        observation = Observation(job.key, (), checkpoint_step=step, checkpoint_time=self.clock.time)
        self.engine.machine.observations.append(observation)
        await self.settled()

    async def end(self, job: JobState) -> None:
        for key in [key for key in self.engine.machine.running if key.run == job.key]:
            self.engine.end(key, TaskExit(0))
        await self.settled()


@asynccontextmanager
async def desk(*nodes: ClusterNode) -> AsyncIterator[Desk]:
    clock = ManualClock()
    engine = Nodes(clock, *nodes)
    people = FakePeople(ann=("nlp",))
    app = Application(MemoryStore(), engine, clock, NoSecrets(), Keeper(), None, people)  # type: ignore[arg-type]
    await app.loop.start()
    try:
        yield Desk(app, engine, clock)
    finally:
        await app.loop.close()


async def test_a_waiting_run_is_told_its_place_when_it_starts_and_what_would_help() -> None:
    async with desk(node("a", 4), node("b", 4, "T4")) as here:
        await here.submit("first", 2, timeout="2h", resources={"gpu_type": ["A100"]})
        waits = await here.submit("second", 4, resources={"gpu_type": ["A100"]})
        answer = await here.app.waiting.answer(waits)
        assert answer is not None
        assert answer.hold.message == "needs 4 GPUs of type A100; 2 of 4 are free"
        assert (answer.view.queue, answer.view.position, answer.view.of) == ("default", 1, 1)
        assert answer.view.start.high is not None
        assert 0 < answer.view.start.high < 4 * 3600
        assert [change.words for change in answer.view.changes] == [
            "on GPUs of type T4: now",
            "with 2 GPUs: now",
            "with priority 1: after first-1 has made room",
            "when first-1 has ended: within 2h, when its timeout expires at the latest",
        ]


async def test_who_does_not_wait_is_told_nothing() -> None:
    async with desk(node("a", 4)) as here:
        running = await here.submit("first", 2)
        assert running.phase is JobPhase.RUNNING
        assert await here.app.waiting.answer(running) is None


async def test_asking_twice_is_free_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[JobKey] = []
    real = start_simulation.prospect

    def counting(start: start_simulation.SimulationState, *rest: Any) -> start_simulation.StartProspect:
        played.append(start.key)
        return real(start, *rest)

    monkeypatch.setattr(start_simulation, "prospect", counting)
    async with desk(node("a", 2)) as here:
        await here.submit("first", 2, timeout="2h")
        waits = await here.submit("second", 2)
        first = await here.app.waiting.answer(waits)
        assert await here.app.waiting.answer(waits) is first
        assert len(played) == 1
        await here.submit("third", 1)
        assert await here.app.waiting.answer(waits) is not first
        here.clock.time += 60
        await here.app.waiting.answer(waits)
        assert len(played) == 3, "what was true a minute ago is looked at again"


async def test_another_queue_is_named_only_if_it_takes_the_run() -> None:
    async with desk(node("a", 4)) as here:
        small = Queue("small", quota={"gpu": 1000}, borrow=False)
        await here.app.apply([], [small, Queue("closed", members=("user:bob",)), Queue("large")], "ann")
        await here.submit("first", 1, queue="small")
        waits = await here.submit("second", 1, queue="small")
        answer = await here.app.waiting.answer(waits)
        assert answer is not None
        assert answer.hold.reason == "quota"
        assert [change.value for change in answer.view.changes if change.kind == "queue"] in (["default"], ["large"])
        assert answer.view.changes[0].words.startswith("in queue ")


async def test_forecasts_are_held_against_what_happens() -> None:
    async with desk(node("a", 1)) as here:
        first = await here.submit("first", 1, timeout="2h")
        waits = await here.submit("second", 1)
        await here.app.waiting.answer(waits)
        here.clock.time += 1800
        await here.end(first)
        third = await here.submit("third", 1)
        await here.app.waiting.answer(third)
        kept = scheduler_memory.decode(here.app.loop.snapshot.memory)
        assert kept.calibration.seen == 1, "it is part of what is remembered"
        assert list(kept.said) == []
        assert list(here.app.loop.scheduler.ledger.memory.said) == [str(third.key)]


async def test_moves_are_planned_and_carried_out_when_asked_for() -> None:
    async with desk(node("a", 4), node("b", 4)) as here:
        left, filler = [await here.submit(name, 2, role={"placement": {"nodes": ["a"]}}) for name in ("left", "filler")]
        right = await here.submit("right", 2)
        await here.end(filler)
        for job in (left, right):
            await here.save(job, 100)
        wide = await here.submit("wide", 4)
        assert wide.phase is JobPhase.PENDING
        answer = await here.app.waiting.answer(wide)
        assert answer is not None
        assert "fairway defragment" in [change.command for change in answer.view.changes]
        plan = await here.app.loop.move(3, carry_out=False)
        assert plan is not None
        assert [move.key.name for move in plan.moves] == ["right-1"]
        await here.settled()
        assert here.now(wide).phase is JobPhase.PENDING, "nothing moves unless asked"
        await here.app.loop.move(3, carry_out=True)
        for _ in range(4):
            await here.settled()
        assert here.now(wide).phase is JobPhase.RUNNING
        moved = here.now(right)
        assert moved.phase is JobPhase.RUNNING
        assert {task.node for task in here.app.tasks(moved) if not task.phase.over} == {"a"}
        assert (moved.evictions, moved.restarts) == (1, 0)
        assert await here.app.loop.move(3, carry_out=True) is None
