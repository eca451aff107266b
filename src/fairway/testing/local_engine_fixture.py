"""A local engine for tests: real processes in the test's own folder, without preparation of environments."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fairway.app.system.clock import SystemClock
from fairway.engines.local import file_lock
from fairway.engines.local.engine import LocalEngine
from fairway.engines.local.fork_server_client import ForkServerClient, SpawnAnswer
from fairway.engines.local.home import LOCK, EngineHome
from fairway.engines.local.provision.preparer import PreparedRun
from fairway.engines.local.provision.program_run import Say
from fairway.engines.local.supervision import attempt_record, control_socket
from fairway.engines.local.supervision.order import TaskCommand, TaskOrder
from fairway.engines.local.supervision.process import descendant
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity
from fairway.errors import NotFoundError
from fairway.plan.action import ForgetJob
from fairway.runtime.task_contract import ATTEMPT_DIR
from fairway.state.job import JobKey, JobState
from fairway.state.node import NodeDevice

PATIENCE = 30.0
"""Timeout in seconds for expected changes."""


class NoopPreparer:
    """A preparer that prepares nothing."""

    def __init__(self, work_dir: Path, env: dict[str, str] | None = None) -> None:
        self._work_dir = work_dir
        self._env = dict(env or {})

    async def prepare(self, job: JobState, say: Say) -> PreparedRun:
        """Return the work folder, and an environment of PATH and the given variables."""
        say(f"preparing {job.key}")
        return PreparedRun(self._work_dir, sys.executable, {"PATH": os.environ.get("PATH", os.defpath), **self._env})


class FixedProbe:
    """A probe that returns fixed devices."""

    service = ""

    def __init__(self, *devices: NodeDevice) -> None:
        self._devices = devices

    def devices(self, is_ours: Callable[[int], bool]) -> tuple[NodeDevice, ...]:
        """Return the fixed devices."""
        return self._devices

    def driver(self) -> str:
        """Return an empty version: there is no driver."""
        return ""

    def use(self) -> dict[str, float]:
        """Return no utilisation data."""
        return {}

    def close(self) -> None:
        """Do nothing."""


def make_local_engine(
    folder: Path, *, env: dict[str, str] | None = None, secrets: dict[str, str] | None = None, devices: Sequence[NodeDevice] = ()
) -> LocalEngine:
    """Return an engine whose home and machine-wide locks are in the folder. Two calls with one folder share one home."""

    def reveal(names: Iterable[str]) -> dict[str, str]:
        values = secrets or {}
        missing = [name for name in names if name not in values]
        if missing:
            message = f"there is no secret {missing[0]} here"
            raise NotFoundError(message, fix=f"set it with: fairway secret set {missing[0]}")
        return {name: values[name] for name in names}

    work = folder / "work"
    work.mkdir(exist_ok=True)
    return LocalEngine(
        EngineHome.open(folder / "home"),
        machine_folder=folder / "machine",
        node_name="here",
        probe=FixedProbe(*devices),
        preparer=NoopPreparer(work, env),
        reveal=reveal,
        clock=SystemClock(),
    )


async def close_and_end_everything(engine: LocalEngine, folder: Path) -> None:
    """Close an engine created here, and end all of its runs, in case a failed test left some running."""
    runs = [JobKey(path.parent.name, path.name) for path in (folder / "home" / "jobs").glob("*/*")]
    await engine.perform([ForgetJob(key) for key in runs])
    await engine.close()


class SupervisedTask:
    """One task under a supervisor, without an engine: for tests of the supervisor."""

    def __init__(self, folder: Path, order: TaskOrder) -> None:
        self.folder = folder
        self.order = order
        self.answer = SpawnAnswer()

    @property
    def log(self) -> str:
        """Output of the first process so far."""
        return self.output(0)

    def output(self, rank: int) -> str:
        """Return the output of a process so far."""
        return (self.folder / f"out-{rank}.log").read_bytes().decode(errors="replace")

    @property
    def begun(self) -> dict[str, Any]:
        """The start record."""
        return attempt_record.read_record(str(self.folder), attempt_record.STARTED) or {}

    @property
    def end(self) -> dict[str, Any] | None:
        """The exit record; None before the exit."""
        return attempt_record.read_record(str(self.folder), attempt_record.EXIT)

    @property
    def supervisor(self) -> ProcessIdentity:
        """The identity of the supervisor process."""
        identity = ProcessIdentity.from_dict(self.begun["supervisor"])
        assert identity is not None
        return identity

    def ask(self, **request: object) -> dict[str, Any]:
        """Send a request to the supervisor; return its response."""
        return control_socket.ask(str(self.folder), request, PATIENCE)

    async def over(self) -> dict[str, Any]:
        """Wait for the exit; return its record."""
        await until(lambda: self.end is not None and not file_lock.is_held(self.folder / LOCK))
        return self.end or {}

    def left(self) -> list[int]:
        """Return the ids of the task's live processes."""
        return [identity.pid for identity in descendant.find_leftovers(str(self.folder), [])]


class SupervisorFixture:
    """Starts tasks under supervisors, without an engine, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spawner = ForkServerClient()
        self._started: list[SupervisedTask] = []

    async def start(self, *commands: Sequence[str], **order: Any) -> SupervisedTask:
        """Start one task with these processes; return when they run."""
        attempt = self.prepare(*commands, **order)
        lock = file_lock.take(attempt.folder / LOCK)
        assert lock is not None
        (attempt.answer,) = await self.spawner.spawn([(attempt.order, [lock])])
        file_lock.release(lock)
        self._started.append(attempt)
        return attempt

    def prepare(self, *commands: Sequence[str], **order: Any) -> SupervisedTask:
        """Return a task that has not been started."""
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix="attempt-"))
        env = {"PATH": os.environ.get("PATH", os.defpath), ATTEMPT_DIR: str(folder), **order.pop("env", {})}
        fields = {"task": "default/test-1/worker-0#0", "folder": str(folder), "cwd": str(self.folder), **order}
        return SupervisedTask(folder, TaskOrder(env=env, commands=[TaskCommand(argv) for argv in commands], **fields))

    def close(self) -> None:
        """Close the spawner, and end the processes that a failed test left behind."""
        self.spawner.close()
        for attempt in self._started:
            if attempt.folder.exists() and file_lock.is_held(attempt.folder / LOCK):
                attempt.supervisor.send(signal.SIGUSR2)


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds; fail after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.005)
