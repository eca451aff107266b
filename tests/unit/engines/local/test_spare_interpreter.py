"""Spare interpreters: for which tasks there is one, when, and which starts may use it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from fairway.engines.local import machine_capacity, spare_interpreter
from fairway.engines.local.fork_server_client import ForkServerClient
from fairway.engines.local.provision.container import ContainerCommand
from fairway.engines.local.provision.preparer import PreparedRun
from fairway.engines.local.spare_interpreter import ROOM, WORTH_IT_AFTER, SpareInterpreters
from fairway.engines.local.supervision.order import TaskCommand, TaskOrder
from fairway.engines.local.supervision.spare_process import VARIABLE
from fairway.state.job import JobState
from fairway.state.phase import JobPhase
from fairway.state.task import TaskKey
from fairway.testing.builder.job_builder import a_job

KEY = TaskKey("default", "mnist-1", "worker", 0, 0)
NEXT = replace(KEY, attempt=1)


class ManualClock:
    """A clock that the test sets."""

    time = 1000.0

    def now(self) -> float:
        return self.time


class Nursery:
    """Records the requests."""

    def __init__(self) -> None:
        self.requests: list[TaskOrder] = []
        self.standbys: list[socket.socket] = []

    def stand_by(self, request: TaskOrder) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.requests.append(request)
        self.standbys.append(theirs)
        return ours

    def has_ended(self, number: int) -> bool:
        self.standbys[number].setblocking(False)
        try:
            return self.standbys[number].recv(1) == b""
        except BlockingIOError:
            return False


class Stage:
    """A run without failures, and its engine's spares."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "inject/fairway/runtime/spare").mkdir(parents=True)
        (folder / "inject/fairway/runtime/spare/sitecustomize.py").write_text("")
        (folder / "train.py").write_text("import torch\n")
        self.prepared = PreparedRun(folder, "/python", {}, runtime_dir=folder / "inject")
        self.clock = ManualClock()
        self.nursery = Nursery()
        self.spares = SpareInterpreters(cast(ForkServerClient, self.nursery), self.clock)

    def job(self, use: str = "now", **more: object) -> JobState:
        job = a_job(["python", "train.py"], restart={"max": 3, "spares": use}, **more)
        return replace(job, phase=JobPhase.RUNNING, started=self.clock.now())

    def order(self, env: dict[str, str] | None = None, argv: list[str] | None = None, **more: object) -> TaskOrder:
        added = {"MASTER_PORT": "1", "FAIRWAY_ATTEMPT": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/inject", **(env or {})}
        commands = [TaskCommand(argv or ["/python", "train.py"], added)]
        fields = {"task": "t", "folder": "/jobs/a/attempts/worker-0-0", "cwd": str(self.folder), "env": {"HOME": "/h"}, **more}
        return TaskOrder(commands=commands, **fields)

    async def made(self, job: JobState, order: TaskOrder, prepared: PreparedRun | None = None) -> int:
        """Return the number of spares requested after the start of the task."""
        self.spares.remember(job, KEY, order, prepared or self.prepared)
        await self.spares.tend([job])
        return len(self.nursery.requests)

    def fits(self, order: TaskOrder) -> bool:
        with self.spares.taken([NEXT], [order]) as found:
            return 0 in found

    def close(self) -> None:
        """Release what the test left open; works without an event loop."""
        for standby in self.nursery.standbys:
            standby.close()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(machine_capacity, "available_bytes", lambda: ROOM)
    made = Stage(tmp_path)
    yield made
    made.close()


async def test_the_request_is_the_command_behind_what_makes_it_wait(stage: Stage) -> None:
    assert await stage.made(stage.job(), stage.order()) == 1
    (request,) = stage.nursery.requests
    (command,) = request.commands
    assert command.argv == ["/python", "train.py"]
    assert command.env["PYTHONPATH"] == f"{stage.folder}/inject/fairway/runtime/spare:/inject"
    assert json.loads(command.env[VARIABLE]) == {"modules": ["torch"], "folder": str(stage.folder)}
    assert (command.env["HOME"], command.env["OMP_NUM_THREADS"]) == ("/h", "1")
    # The spare belongs to the home, but does not count as a leftover process of an attempt.
    assert command.env["FAIRWAY_ATTEMPT_DIR"] == "/jobs/a/attempts/spare"
    assert "FAIRWAY_ATTEMPT" not in command.env
    await stage.spares.tend([stage.job()])
    assert len(stage.nursery.requests) == 1
    stage.spares.close()
    assert stage.nursery.has_ended(0)


async def test_it_fits_a_start_that_differs_in_the_meeting_point_alone(stage: Stage) -> None:
    await stage.made(stage.job(), stage.order())
    assert stage.fits(stage.order({"MASTER_PORT": "2", "FAIRWAY_ATTEMPT": "1", "RANK": "1", "TF_CONFIG": "{}"}))
    assert not stage.fits(stage.order()), "it was used up"


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"OMP_NUM_THREADS": "2"}},
        {"env": {"CUDA_VISIBLE_DEVICES": "1"}},
        {"env": {"PYTHONPATH": "/other"}},
        {"argv": ["/python", "train.py", "--lr", "2"]},
        {"argv": ["/other/python", "train.py"]},
        {"cwd": "/"},
        {"terminal": True},
        {"memory_limit": 1},
        {"umask": 0o77},
    ],
)
async def test_any_other_difference_means_a_new_process(stage: Stage, change: dict[str, object]) -> None:
    await stage.made(stage.job(), stage.order())
    assert not stage.fits(stage.order(**change))
    assert stage.nursery.has_ended(0)


async def test_a_script_that_changed_means_a_new_process(stage: Stage) -> None:
    await stage.made(stage.job(), stage.order())
    (stage.folder / "train.py").write_text("import os\nimport torch\n")
    assert not stage.fits(stage.order())
    (stage.folder / "train.py").unlink()
    assert not stage.fits(stage.order())


@pytest.mark.parametrize(
    "order",
    [
        {"argv": ["/python", "-u", "train.py"]},
        {"argv": ["torchrun", "train.py"]},
        {"terminal": True},
        {"memory_limit": 1},
        {"cpu_limit": 0.5},
    ],
)
async def test_only_a_plain_program_gets_one(stage: Stage, order: dict[str, object]) -> None:
    assert await stage.made(stage.job(), stage.order(**order)) == 0


async def test_only_where_it_can_be_of_use(stage: Stage) -> None:
    order = stage.order()
    assert await stage.made(stage.job("never"), order) == 0
    assert await stage.made(stage.job(framework="tensorflow"), order) == 0
    assert await stage.made(replace(stage.job(), restarts=3), order) == 0
    assert await stage.made(replace(stage.job(), phase=JobPhase.STOPPING), order) == 0
    assert await stage.made(stage.job(), order, replace(stage.prepared, runtime_dir=Path("/nowhere"))) == 0
    assert await stage.made(stage.job(), order, replace(stage.prepared, wrap=ContainerCommand("docker", "i", ()))) == 0


async def test_not_where_memory_is_short(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_capacity, "available_bytes", lambda: ROOM - 1)
    assert await stage.made(stage.job(), stage.order()) == 0
    monkeypatch.setattr(machine_capacity, "available_bytes", lambda: ROOM)
    await stage.spares.tend([stage.job()])
    assert len(stage.nursery.requests) == 1
    stage.spares.close()


@pytest.mark.parametrize("text", ["import os\nos.environ['X'] = '1'\nimport torch\n", "print(1)\n", "\udcff"])
async def test_a_script_of_another_kind_is_read_once_and_left_alone(stage: Stage, text: str) -> None:
    path = stage.folder / "train.py"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert await stage.made(stage.job(), stage.order()) == 0
    path.write_text("import torch\n")
    await stage.spares.tend([stage.job()])
    assert stage.nursery.requests == []


async def test_a_long_run_gets_one_when_the_import_is_a_hundredth_of_it(stage: Stage) -> None:
    job = stage.job("auto")
    assert await stage.made(job, stage.order()) == 0
    stage.clock.time += WORTH_IT_AFTER - 1
    await stage.spares.tend([job])
    assert stage.nursery.requests == []
    stage.clock.time += 1
    await stage.spares.tend([job])
    assert len(stage.nursery.requests) == 1
    assert stage.fits(stage.order())
    assert await stage.made(job, stage.order()) == 1, "the second comes after as long again"
    stage.clock.time += WORTH_IT_AFTER
    await stage.spares.tend([job])
    assert len(stage.nursery.requests) == 2
    stage.spares.close()


async def test_one_that_gives_up_is_not_made_again(stage: Stage) -> None:
    await stage.made(stage.job(), stage.order())
    stage.nursery.standbys[0].close()
    await asyncio.sleep(0.01)
    assert not stage.fits(stage.order())
    assert await stage.made(stage.job(), stage.order()) == 1


async def test_a_run_that_waits_long_loses_its_spare(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_interpreter, "KEPT", 0.01)
    await stage.made(stage.job(), stage.order())
    await asyncio.sleep(0.05)
    assert stage.nursery.has_ended(0)


async def test_with_the_run_its_spares_end(stage: Stage) -> None:
    job = stage.job()
    await stage.made(job, stage.order())
    stage.spares.forget(replace(job.key, name="other-1"))
    assert not stage.nursery.has_ended(0)
    stage.spares.forget(job.key)
    assert stage.nursery.has_ended(0)
