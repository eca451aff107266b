"""The local engine keeps the port's contract, with real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fairway.app.port.port import Engine
from fairway.engines.local.engine import LocalEngine
from fairway.engines.local.supervision.process import descendant
from fairway.state.job import JobState
from fairway.state.task import TaskKey
from fairway.testing.builder.job_builder import a_job
from fairway.testing.conformance.engine_conformance import ConformanceBehaviour, EngineConformance
from fairway.testing.local_engine_fixture import close_and_end_everything, make_local_engine

SAY = 'echo hello; echo x >> "$FAIRWAY_ATTEMPT_DIR/starts"; '
COMMANDS = {
    ConformanceBehaviour.SUCCEEDS: SAY + "exit 0",
    ConformanceBehaviour.FAILS: SAY + "exit 3",
    ConformanceBehaviour.REQUEUES: SAY + "exit 75",
    ConformanceBehaviour.STAYS: SAY + "exec sleep 600",
    ConformanceBehaviour.STUBBORN: "trap '' TERM INT HUP; " + SAY + "while :; do sleep 600 & wait; done",
    ConformanceBehaviour.BREEDS: SAY
    + "trap '' TERM; sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600 & sleep 600' &) ; exit 0",
}


class LocalStage:
    def __init__(self, engine: LocalEngine, folder: Path) -> None:
        self.engine: Engine = engine
        self._folder = folder
        self._home = folder / "home"

    def job(self, name: str, behaviour: ConformanceBehaviour, replicas: int = 1) -> JobState:
        command = ["sh", "-c", COMMANDS[behaviour]] if behaviour in COMMANDS else ["no-such-program"]
        return a_job(command, name=name, replicas=replicas)

    def starts(self, key: TaskKey) -> int:
        file = self._attempt(key) / "starts"
        return len(file.read_text().split()) if file.exists() else 0

    def left(self, key: TaskKey) -> Sequence[str]:
        return [str(identity.pid) for identity in descendant.find_leftovers(str(self._attempt(key)), [])]

    async def another(self) -> Engine:
        engine = make_local_engine(self._folder)
        await engine.start(lambda: None)
        return engine

    async def pass_time(self) -> None:
        await asyncio.sleep(0.005)

    def _attempt(self, key: TaskKey) -> Path:
        return self._home / "jobs" / key.namespace / key.job / "attempts" / f"{key.role}-{key.index}-{key.attempt}"


class TestLocalEngine(EngineConformance):
    @pytest.fixture
    async def stage(self, tmp_path: Path) -> AsyncIterator[LocalStage]:
        engine = make_local_engine(tmp_path)
        await engine.start(lambda: None)
        yield LocalStage(engine, tmp_path)
        await close_and_end_everything(engine, tmp_path)
