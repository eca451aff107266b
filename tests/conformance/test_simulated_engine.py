"""The simulated engine keeps what the port promises, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairway.app.ports import Engine
from fairway.engines.simulated import behaviour
from fairway.engines.simulated.cluster import SimulatedCluster
from fairway.engines.simulated.engine import SimulatedEngine
from fairway.state.job import Job
from fairway.state.node import Node
from fairway.state.task import TaskKey
from fairway.testing.builders import a_job
from fairway.testing.engine_conformance import Behaviour, EngineConformance

SCRIPTS = {
    Behaviour.SUCCEEDS: behaviour.Behaviour(work=1.0, prints="hello\n"),
    Behaviour.FAILS: behaviour.Behaviour(work=1.0, exit_code=3),
    Behaviour.REQUEUES: behaviour.Behaviour(work=1.0, exit_code=75),
    Behaviour.STAYS: behaviour.Behaviour(leaves_after=0.1),
    Behaviour.STUBBORN: behaviour.Behaviour(leaves_after=float("inf")),
    Behaviour.BREEDS: behaviour.Behaviour(work=1.0),
    Behaviour.MISSING: behaviour.Behaviour(missing=True),
}


def by_command(job: Job, key: TaskKey) -> behaviour.Behaviour:
    return SCRIPTS[Behaviour(job.spec.roles[key.role].command[0])]


class SimulatedStage:
    def __init__(self) -> None:
        self._cluster = SimulatedCluster([Node("here", cpu=64.0, memory=64 << 30)], by_command)
        self.engine: Engine = SimulatedEngine(self._cluster)

    def job(self, name: str, behaviour: Behaviour, replicas: int = 1) -> Job:
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
