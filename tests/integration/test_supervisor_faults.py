"""What remains true after a supervisor, a worker, the fork server, the disk or the memory failed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairway.engines.local.engine import LocalEngine
from fairway.engines.local.supervision.attempt_record import read_record, write_record
from fairway.engines.local.supervision.process.descendant import find_leftovers
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity, read_status
from fairway.plan.action import BindGang, CreateTask, EvictTask
from fairway.state.phase import TaskPhase
from fairway.state.task import Task, TaskReport
from fairway.testing.builder.job_builder import a_job, the_tasks
from fairway.testing.local_engine_fixture import SupervisorFixture, close_and_end_everything, make_local_engine, until


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[LocalEngine]:
    made = make_local_engine(tmp_path)
    await made.start(lambda: None)
    yield made
    await close_and_end_everything(made, tmp_path)


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[SupervisorFixture]:
    made = SupervisorFixture(tmp_path)
    yield made
    made.close()


async def run(engine: LocalEngine, *argv: str, name: str = "fault-1", replicas: int = 1, **spec: object) -> tuple[Task, ...]:
    job = a_job(argv, name=name, replicas=replicas, **spec)
    tasks = the_tasks(job)
    await engine.perform([CreateTask(job, task) for task in tasks])
    while not all(report.ready for report in await engine.observe([task.key for task in tasks])):
        await asyncio.sleep(0.005)
    await engine.perform([BindGang(job, tasks)])
    return tasks


async def over(engine: LocalEngine, task: Task) -> TaskReport:
    for _ in range(6000):
        (report,) = await engine.observe([task.key])
        if report.phase.over:
            return report
        await asyncio.sleep(0.005)
    raise AssertionError(f"still {report}")


def folder_of(tmp_path: Path, task: Task) -> Path:
    return tmp_path / "home/jobs/default" / task.key.job / "attempts" / f"{task.key.task}-{task.key.attempt}"


def supervisor_of(folder: Path) -> ProcessIdentity:
    found = ProcessIdentity.from_dict((read_record(str(folder), "started.json") or {})["supervisor"])
    assert found is not None
    return found


async def test_after_the_kill_of_a_supervisor_nothing_is_left_and_the_task_is_lost(tmp_path: Path) -> None:
    woken = asyncio.Event()
    engine = make_local_engine(tmp_path)
    await engine.start(woken.set)
    breeds = "trap '' TERM; sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600; sleep 600' &) ; echo up; wait"
    (task,) = await run(engine, "sh", "-c", breeds)
    folder = folder_of(tmp_path, task)
    await until(lambda: (folder / "out-0.log").read_text() == "up\n" and len(find_leftovers(str(folder), [])) >= 5)
    woken.clear()
    supervisor_of(folder).send(signal.SIGKILL)
    await asyncio.wait_for(woken.wait(), 10)
    report = await over(engine, task)
    assert report.phase is TaskPhase.LOST
    assert report.exit is None
    assert "supervisor was killed" in (report.message or "")
    assert find_leftovers(str(folder), []) == []
    assert (await engine.observe([task.key]))[0] == report
    await engine.close()


async def test_the_kill_of_a_supervisor_ends_its_processes_though_no_daemon_looks(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sleep", "600"], ["sleep", "600"])
    attempt.supervisor.send(signal.SIGKILL)
    await until(lambda: attempt.left() == [])


async def test_a_daemon_that_comes_later_tells_the_same_truth(tmp_path: Path, engine: LocalEngine) -> None:
    (alive,) = await run(engine, "sleep", "600", name="later-1")
    (done,) = await run(engine, "sh", "-c", "exit 5", name="later-2")
    (killed,) = await run(engine, "sleep", "600", name="later-3")
    await over(engine, done)
    supervisor_of(folder_of(tmp_path, killed)).send(signal.SIGKILL)
    await engine.close()
    later = make_local_engine(tmp_path)
    await later.start(lambda: None)
    phases = [report.phase for report in await later.observe([alive.key, done.key, killed.key])]
    assert phases[:2] == [TaskPhase.RUNNING, TaskPhase.FAILED]
    assert (await over(later, killed)).phase is TaskPhase.LOST
    await later.perform([EvictTask(alive.key, 0.0, "test")])
    assert (await over(later, alive)).phase is TaskPhase.STOPPED
    await later.close()


async def test_after_the_death_of_the_nursery_tasks_live_and_new_ones_start(engine: LocalEngine) -> None:
    (first,) = await run(engine, "sleep", "600", name="nursery-1")
    nursery = engine._spawner._process
    assert nursery is not None
    nursery.kill()
    nursery.wait()
    (second,) = await run(engine, "sleep", "600", name="nursery-2")
    reports = await engine.observe([first.key, second.key])
    assert [report.phase for report in reports] == [TaskPhase.RUNNING] * 2
    await engine.perform([EvictTask(task.key, 0.0, "test") for task in (first, second)])
    for task in (first, second):
        await over(engine, task)


async def test_the_nursery_goes_with_its_daemon_however_that_dies(tmp_path: Path) -> None:
    code = """
import os, signal
from fairway.engines.local.fork_server_client import ForkServerClient
spawner = ForkServerClient()
spawner.start()
print(spawner._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    await until(lambda: (status := read_status(pid)) is None or status.dead)


async def test_a_halted_supervisor_still_hears_an_eviction(tmp_path: Path, engine: LocalEngine) -> None:
    (task,) = await run(engine, "sleep", "600")
    supervisor_of(folder_of(tmp_path, task)).send(signal.SIGSTOP)
    await engine.perform([EvictTask(task.key, 0.0, "test")])
    report = await over(engine, task)
    assert report.phase is TaskPhase.STOPPED


async def test_an_eviction_works_without_the_control_socket(tmp_path: Path, engine: LocalEngine) -> None:
    (task,) = await run(engine, "sleep", "600")
    (folder_of(tmp_path, task) / "ctl").unlink()
    await engine.perform([EvictTask(task.key, 5.0, "test")])
    report = await over(engine, task)
    assert report.phase is TaskPhase.STOPPED


async def test_a_task_over_its_memory_limit_is_ended_and_told_so(engine: LocalEngine) -> None:
    job = a_job(name="memory-1")
    code = "import time\nkept = b'x' * (200 << 20)\nprint('full', flush=True)\ntime.sleep(600)"
    role = job.spec.roles["worker"].model_copy(update={"command": (sys.executable, "-I", "-c", code)})
    limited = role.model_copy(update={"limits": role.limits.model_copy(update={"memory": "100Mi"})})
    (task,) = await run(engine, name="memory-1", roles={"worker": limited})
    report = await over(engine, task)
    assert report.phase is TaskPhase.FAILED
    assert report.exit is not None
    assert report.exit.out_of_memory
    assert not report.exit.by_us


async def test_memory_that_is_shared_after_a_fork_counts_once(engine: LocalEngine) -> None:
    code = """
import os, time
kept = bytearray(60 << 20)
for at in range(0, len(kept), 4096): kept[at] = 1
children = [pid for _ in range(3) if (pid := os.fork()) or time.sleep(2.5) or os._exit(0)]
for pid in children: os.waitpid(pid, 0)
"""
    role = a_job().spec.roles["worker"].model_copy(update={"command": (sys.executable, "-I", "-c", code)})
    limited = role.model_copy(update={"limits": role.limits.model_copy(update={"memory": "160Mi"})})
    (task,) = await run(engine, name="memory-2", roles={"worker": limited})
    assert (await over(engine, task)).phase is TaskPhase.SUCCEEDED


@pytest.mark.skipif(os.getuid() != 0, reason="needs a small disk of its own, and so root")
async def test_a_full_disk_does_not_hide_how_a_task_ended() -> None:
    # Not below `tmp_path`: other sessions of the test runner would try to remove it.
    disk = Path(tempfile.mkdtemp())
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False, capture_output=True)
    if mounted.returncode and not os.environ.get("CI"):
        disk.rmdir()
        pytest.skip("may not mount")
    assert mounted.returncode == 0, mounted.stderr
    playground = SupervisorFixture(disk)
    try:
        fill = "while head -c 65536 /dev/zero; do :; done; head -c 4096 /dev/zero; exit 3"
        attempt = await playground.start(["sh", "-c", fill + " 2>/dev/null"])
        end = await attempt.over()
        assert os.statvfs(disk).f_bavail == 0
        assert (end["code"], end["signal"]) == (3, None)
        refused = playground.prepare(["true"])
        (answer,) = await playground.spawner.spawn([(refused.order, [])])
        assert "No space left" in answer.problem
        assert not (refused.folder / "started.json").exists()
    finally:
        playground.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)
        disk.rmdir()


async def test_a_nursery_that_does_not_answer_is_replaced(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairway.engines.local.fork_server_client._PATIENCE", 0.2)
    nursery = engine._spawner._process
    assert nursery is not None
    nursery.send_signal(signal.SIGSTOP)
    job = a_job(["sleep", "600"], name="halted-1")
    (task,) = tasks = the_tasks(job)
    await engine.perform([CreateTask(job, task)])
    while not (await engine.observe([task.key]))[0].ready:
        await asyncio.sleep(0.005)
    (report,) = await engine.perform([BindGang(job, tasks)])
    assert report.phase is TaskPhase.PENDING
    assert "restarted" in (report.message or "")
    monkeypatch.undo()
    (report,) = await engine.perform([BindGang(job, tasks)])
    assert report.phase is TaskPhase.RUNNING


async def test_what_a_killed_supervisor_should_have_cleaned_up_is_cleaned_up(tmp_path: Path, engine: LocalEngine) -> None:
    (task,) = await run(engine, "sleep", "600")
    folder = folder_of(tmp_path, task)
    order = read_record(str(folder), "order.json") or {}
    write_record(str(folder), "order.json", {**order, "cleanup": [["no-such-program"], ["touch", str(folder / "cleaned")]]})
    supervisor_of(folder).send(signal.SIGKILL)
    assert (await over(engine, task)).phase is TaskPhase.LOST
    assert (folder / "cleaned").exists()


async def test_after_a_restart_of_the_machine_the_truth_is_told(tmp_path: Path, engine: LocalEngine) -> None:
    (task,) = await run(engine, "sleep", "600")
    folder = folder_of(tmp_path, task)
    supervisor_of(folder).send(signal.SIGKILL)
    await until(lambda: not supervisor_of(folder).alive)
    begun = read_record(str(folder), "started.json") or {}
    write_record(str(folder), "started.json", {**begun, "boot": "before"})
    report = await over(engine, task)
    assert report.phase is TaskPhase.LOST
    assert "the machine went down" in (report.message or "")
