"""The simulated engine keeps the port's contract, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairway.app.port.port import Engine
from fairway.engines.simulated import task_behaviour
from fairway.engines.simulated.cluster import SimulatedCluster
from fairway.engines.simulated.engine import SimulatedEngine
from fairway.state.job import JobState
from fairway.state.node import ClusterNode
from fairway.state.task import TaskKey
from fairway.testing.builder.job_builder import a_job
from fairway.testing.conformance.engine_conformance import ConformanceBehaviour, EngineConformance

SCRIPTS = {
    ConformanceBehaviour.SUCCEEDS: task_behaviour.TaskBehaviour(work=1.0, prints="hello\n"),
    ConformanceBehaviour.FAILS: task_behaviour.TaskBehaviour(work=1.0, exit_code=3),
    ConformanceBehaviour.REQUEUES: task_behaviour.TaskBehaviour(work=1.0, exit_code=75),
    ConformanceBehaviour.STAYS: task_behaviour.TaskBehaviour(leaves_after=0.1),
    ConformanceBehaviour.STUBBORN: task_behaviour.TaskBehaviour(leaves_after=float("inf")),
    ConformanceBehaviour.BREEDS: task_behaviour.TaskBehaviour(work=1.0),
    ConformanceBehaviour.MISSING: task_behaviour.TaskBehaviour(missing=True),
}


def by_command(job: JobState, key: TaskKey) -> task_behaviour.TaskBehaviour:
    return SCRIPTS[ConformanceBehaviour(job.spec.roles[key.role].command[0])]


class SimulatedStage:
    def __init__(self) -> None:
        self._cluster = SimulatedCluster([ClusterNode("here", cpu=64.0, memory=64 << 30)], by_command)
        self.engine: Engine = SimulatedEngine(self._cluster)

    def job(self, name: str, behaviour: ConformanceBehaviour, replicas: int = 1) -> JobState:
        return a_job([behaviour.value], name=name, replicas=replicas)

    def starts(self, key: TaskKey) -> int:
        return self._cluster.starts[key]

    def left(self, key: TaskKey) -> Sequence[str]:
        return [str(key)] if self._cluster.room.holds(key) else []

    async def another(self) -> Engine:
        engine = SimulatedEngine(self._cluster)
        await engine.start(lambda: None)
        return engine

    async def pass_time(self) -> None:
        self._cluster.pass_to(self._cluster.clock.now() + 0.05)
        await asyncio.sleep(0)


class TestSimulatedEngine(EngineConformance):
    @pytest.fixture
    async def stage(self) -> SimulatedStage:
        stage = SimulatedStage()
        await stage.engine.start(lambda: None)
        return stage
