"""What the local engine does beyond the port's contract: environments, devices, ports, secrets, wake-ups."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fairway.app.port.port import LogQuery
from fairway.engines.local import file_lock
from fairway.engines.local.engine import LocalEngine
from fairway.engines.local.provision.preparer import PreparedRun
from fairway.engines.local.provision.program_run import Say
from fairway.engines.local.supervision import control_socket
from fairway.engines.local.supervision.attempt_record import read_record
from fairway.errors import RefusedError
from fairway.plan.action import BindGang, CreateTask, EvictTask, ForgetJob, NudgeTask
from fairway.state.job import JobState, SubmissionOrigin
from fairway.state.node import NodeDevice
from fairway.state.phase import TaskPhase
from fairway.state.task import Task, TaskReport
from fairway.testing.builder.job_builder import a_job, a_role, a_task, the_tasks
from fairway.testing.local_engine_fixture import close_and_end_everything, make_local_engine

SHOW = 'python3 -c "import json, os; print(json.dumps(dict(os.environ)))"'
GPUS = (NodeDevice("GPU-aaaa", 0, "A100", 80 << 30), NodeDevice("GPU-bbbb", 1, "A100", 80 << 30))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[LocalEngine]:
    env = {"PYTHONPATH": "/mine", "OMP_NUM_THREADS": "7"}
    made = make_local_engine(tmp_path, env=env, secrets={"TOKEN": "s3cr3t-value"}, devices=GPUS)
    await made.start(lambda: None)
    await made.nodes()
    yield made
    await close_and_end_everything(made, tmp_path)


def folder_of(tmp_path: Path, task: Task) -> Path:
    return tmp_path / "home/jobs" / task.key.namespace / task.key.job / "attempts" / f"{task.key.task}-{task.key.attempt}"


async def until(engine: LocalEngine, task: Task, holds: Callable[[TaskReport], object]) -> TaskReport:
    for _ in range(6000):
        (report,) = await engine.observe([task.key])
        if holds(report):
            return report
        await asyncio.sleep(0.005)
    raise AssertionError(f"still {report}")


async def start(engine: LocalEngine, job: JobState, *tasks: Task, peers: tuple[Task, ...] = ()) -> list[TaskReport]:
    tasks = tasks or the_tasks(job)
    await engine.perform([CreateTask(job, task) for task in tasks])
    for task in tasks:
        await until(engine, task, lambda report: report.ready)
    return await engine.perform([BindGang(job, tasks, peers)])


async def variables(engine: LocalEngine, tmp_path: Path, job: JobState, task: Task) -> dict[str, str]:
    await start(engine, job, task)
    report = await until(engine, task, lambda report: report.phase.over)
    assert report.phase is TaskPhase.SUCCEEDED
    found: dict[str, str] = json.loads((folder_of(tmp_path, task) / "out-0.log").read_text())
    return found


async def test_a_task_has_the_environment_of_its_launch_over_that_of_its_preparation(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sh", "-c", SHOW], env={"BATCH": "64"}, outputs={"model": "mnist"}, secrets=("TOKEN",))
    env = await variables(engine, tmp_path, job, a_task(job))
    assert env["BATCH"] == "64"
    assert env["TOKEN"] == "s3cr3t-value"
    assert env["FAIRWAY_JOB"] == "mnist-1"
    assert env["OMP_NUM_THREADS"] == "7"
    assert env["PYTHONPATH"].endswith("/mine")
    assert Path(env["FAIRWAY_OUTPUT_MODEL"]).is_dir()
    assert all(Path(env[f"FAIRWAY_{name}_DIR"]).is_dir() for name in ("CHECKPOINT", "SHARED", "TENSORBOARD", "ATTEMPT"))


async def test_devices_are_given_by_uuid_and_hidden_from_who_asked_for_none(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sh", "-c", SHOW])
    assert (await variables(engine, tmp_path, job, a_task(job, 0, devices=["GPU-bbbb"])))["CUDA_VISIBLE_DEVICES"] == "GPU-bbbb"
    assert (await variables(engine, tmp_path, job, a_task(job, 1)))["CUDA_VISIBLE_DEVICES"] == ""


async def test_where_there_are_no_devices_nothing_is_hidden(tmp_path: Path) -> None:
    plain = make_local_engine(tmp_path)
    await plain.start(lambda: None)
    await plain.nodes()
    job = a_job(["sh", "-c", SHOW])
    assert "CUDA_VISIBLE_DEVICES" not in await variables(plain, tmp_path, job, a_task(job))
    await close_and_end_everything(plain, tmp_path)


async def test_a_secret_is_in_no_file_and_not_in_what_is_shown_of_the_logs(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sh", "-c", 'echo "it is $TOKEN"; exit 1'], secrets=("TOKEN",))
    (task,) = the_tasks(job)
    await start(engine, job)
    report = await until(engine, task, lambda report: report.phase.over)
    assert report.exit is not None
    assert report.exit.tail == "it is ***\n"
    shown = b"".join([chunk.data async for chunk in engine.logs(job, LogQuery())])
    assert shown == b"it is ***\n"
    for path in folder_of(tmp_path, task).iterdir():
        if path.name != "out-0.log":
            assert b"s3cr3t-value" not in path.read_bytes(), path


async def test_a_secret_that_does_not_exist_holds_the_gang_back_with_the_fix(engine: LocalEngine) -> None:
    (report,) = await start(engine, a_job(["true"], secrets=("MISSING",)))
    assert report.phase is TaskPhase.PENDING
    assert "fairway secret set MISSING" in (report.message or "")


async def test_a_device_of_another_home_is_busy_and_refused(engine: LocalEngine, tmp_path: Path) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "machine").symlink_to(tmp_path / "machine")
    job = a_job(["sleep", "600"])
    task = a_task(job, devices=["GPU-aaaa"])
    await start(engine, job, task)
    other = make_local_engine(other_folder, devices=GPUS)
    other._machine.path = tmp_path / "machine"
    await other.start(lambda: None)
    (node,) = await other.nodes()
    assert [bool(device.busy_with) for device in node.devices] == [True, False]
    (own,) = await engine.nodes()
    assert [device.busy_with for device in own.devices] == ["", ""]
    (report,) = await start(other, job, task)
    assert report.phase is TaskPhase.PENDING
    assert "GPU-aaaa is held by another fairway home" in (report.message or "")
    await engine.perform([EvictTask(task.key, 0.0, "test")])
    await until(engine, task, lambda report: report.phase.over)
    (node,) = await other.nodes()
    assert [bool(device.busy_with) for device in node.devices] == [False, False]
    await close_and_end_everything(other, other_folder)


async def test_shares_of_one_device_run_together(engine: LocalEngine) -> None:
    job = a_job(["sleep", "600"], replicas=2)
    tasks = [a_task(job, index, devices=["GPU-aaaa"], gpu=0.5) for index in range(2)]
    assert [report.phase for report in await start(engine, job, *tasks)] == [TaskPhase.RUNNING] * 2


async def test_peers_learn_each_others_addresses(engine: LocalEngine, tmp_path: Path) -> None:
    roles = {"ps": a_role(["sh", "-c", f"{SHOW}; sleep 600"]), "worker": a_role(["sh", "-c", f"{SHOW}; sleep 600"], 2)}
    job = a_job(roles=roles, restart={"scope": "task"})
    tasks = the_tasks(job)
    reports = await start(engine, job, *tasks)
    addresses = {report.key.task: report.address for report in reports}
    shown = []
    for task in tasks:
        log = folder_of(tmp_path, task) / "out-0.log"
        while not log.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
        shown.append(json.loads(json.loads(log.read_text())["FAIRWAY_PEERS"]))
    assert shown == [{"ps": [addresses["ps-0"]], "worker": [addresses["worker-0"], addresses["worker-1"]]}] * 3


async def test_a_task_started_again_alone_keeps_its_address_and_finds_its_peers(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sh", "-c", f"{SHOW}; sleep 600"], replicas=2)
    first, second = the_tasks(job)
    before = await start(engine, job, first, second)
    await engine.perform([EvictTask(second.key, 0.0, "test")])
    await until(engine, second, lambda report: report.phase.over)
    again = a_task(job, 1, attempt=1)
    (report,) = await start(engine, job, again, peers=(first,))
    assert report.phase is TaskPhase.RUNNING
    assert report.address == before[1].address
    log = folder_of(tmp_path, again) / "out-0.log"
    while not log.read_text().endswith("\n"):
        await asyncio.sleep(0.01)
    env = json.loads(log.read_text())
    assert json.loads(env["FAIRWAY_PEERS"]) == {"worker": [before[0].address, before[1].address]}
    assert env["FAIRWAY_ATTEMPT"] == "1"


async def test_an_order_on_the_disk_names_variables_and_ports(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sleep", "600"], replicas=1, processes=3)
    (task,) = the_tasks(job)
    (report,) = await start(engine, job)
    order = read_record(str(folder_of(tmp_path, task)), "order.json") or {}
    assert len(order["ports"]) == 5
    assert report.address == f"127.0.0.1:{order['ports'][0]}"
    assert len(order["commands"]) == 3
    assert "PATH" in order["commands"][0]["variables"]


async def test_a_nudge_lets_the_stop_file_appear(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sh", "-c", 'until [ -e "$FAIRWAY_ATTEMPT_DIR/stop" ]; do sleep 0.01; done; exit 0'])
    (task,) = the_tasks(job)
    await start(engine, job)
    for _ in range(2):
        await engine.perform([NudgeTask(task.key, "accuracy >= 0.98")])
    assert (await until(engine, task, lambda report: report.phase.over)).phase is TaskPhase.SUCCEEDED
    assert (folder_of(tmp_path, task) / "stop").read_text() == "accuracy >= 0.98\n"


async def test_rank_0_gets_the_terminal(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sh", "-c", "test -t 0 && echo yes || echo no"], replicas=2, origin=SubmissionOrigin(terminal=True))
    tasks = the_tasks(job)
    await start(engine, job)
    for task in tasks:
        await until(engine, task, lambda report: report.phase.over)
    assert [(folder_of(tmp_path, task) / "out-0.log").read_text().strip() for task in tasks] == ["yes", "no"]


async def test_the_engine_is_woken_when_a_task_ends(tmp_path: Path) -> None:
    woken = asyncio.Event()
    engine = make_local_engine(tmp_path)
    await engine.start(woken.set)
    job = a_job(["sh", "-c", 'until [ -e "$FAIRWAY_ATTEMPT_DIR/stop" ]; do sleep 0.01; done'])
    (task,) = the_tasks(job)
    await start(engine, job)
    woken.clear()
    await engine.perform([NudgeTask(task.key, "now")])
    await asyncio.wait_for(woken.wait(), 10)
    (report,) = await engine.observe([task.key])
    assert report.phase is TaskPhase.SUCCEEDED
    await close_and_end_everything(engine, tmp_path)


async def test_a_nonsense_document_is_a_failure_and_stays_one(engine: LocalEngine) -> None:
    job = a_job(["echo", "{{no_such_macro}}"])
    (task,) = the_tasks(job)
    (report,) = await start(engine, job)
    assert report.phase is TaskPhase.FAILED
    assert report.exit is not None
    assert report.exit.code == 126
    assert "no_such_macro" in (report.message or "")
    assert (await engine.observe([task.key]))[0].phase is TaskPhase.FAILED


class Refusing:
    def __init__(self) -> None:
        self.calls = 0

    async def prepare(self, job: JobState, say: Say) -> PreparedRun:
        self.calls += 1
        say("looking for the code")
        await asyncio.sleep(0)
        message = "there is no folder /code"
        raise RefusedError(message, fix="name a folder that exists")


async def test_a_preparation_that_fails_fails_the_task_and_is_tried_again_for_the_next(tmp_path: Path) -> None:
    engine = make_local_engine(tmp_path)
    refusing = Refusing()
    engine._preparing._preparer = refusing
    await engine.start(lambda: None)
    job = a_job(["true"])
    (task,) = the_tasks(job)
    (report,) = await engine.perform([CreateTask(job, task)])
    assert (report.phase, report.ready) == (TaskPhase.PENDING, False)
    report = await until(engine, task, lambda report: report.phase.over)
    assert report.phase is TaskPhase.FAILED
    assert report.message == "there is no folder /code; name a folder that exists"
    assert report.exit is not None
    assert report.exit.code == 126
    next_task = a_task(job, attempt=1)
    await engine.perform([CreateTask(job, next_task)])
    await until(engine, next_task, lambda report: report.phase.over)
    assert refusing.calls == 2
    await close_and_end_everything(engine, tmp_path)


async def test_a_gang_bound_by_an_engine_that_prepared_nothing_is_prepared_first(engine: LocalEngine, tmp_path: Path) -> None:
    """As after a restart of the daemon: the new engine does not remember what was prepared."""
    job = a_job(["true"])
    (task,) = the_tasks(job)
    await engine.perform([CreateTask(job, task)])
    engine._preparing.forget(job.key)
    (report,) = await engine.observe([task.key])
    assert report.ready
    (report,) = await engine.perform([BindGang(job, (task,))])
    assert (report.phase, report.ready) == (TaskPhase.PENDING, False)
    await until(engine, task, lambda report: report.ready)
    (report,) = await engine.perform([BindGang(job, (task,))])
    assert report.phase is not TaskPhase.PENDING
    await until(engine, task, lambda report: report.phase.over)


async def test_followers_of_a_log_hear_the_end(engine: LocalEngine) -> None:
    job = a_job(["sh", "-c", "for n in 1 2 3; do echo $n; sleep 0.05; done"])
    await start(engine, job)
    heard = b""
    async for chunk in engine.logs(job, LogQuery(follow=True)):
        heard += chunk.data
    assert heard == b"1\n2\n3\n"


async def test_forgetting_touches_nothing_outside_the_home(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["true"])
    (task,) = the_tasks(job)
    await start(engine, job)
    await until(engine, task, lambda report: report.phase.over)
    work = tmp_path / "work" / "precious"
    work.touch()
    (tmp_path / "home/jobs/default/mnist-1/shared/link").symlink_to(work.parent)
    await engine.perform([ForgetJob(job.key)])
    assert work.exists()
    assert not (tmp_path / "home/jobs/default/mnist-1").exists()


async def test_a_supervisor_answers_to_its_folder_alone(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sleep", "600"])
    (task,) = the_tasks(job)
    await start(engine, job)
    status = control_socket.ask(str(folder_of(tmp_path, task)), {"op": "status"}, 5.0)
    (pid,) = status["left"]
    assert Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    os.kill(pid, signal.SIGKILL)
    report = await until(engine, task, lambda report: report.phase.over)
    assert report.exit is not None
    assert (report.phase, report.exit.signal) == (TaskPhase.FAILED, signal.SIGKILL)


async def test_a_task_that_another_holds_back_is_pending_and_starts_in_the_end(engine: LocalEngine, tmp_path: Path) -> None:
    job = a_job(["sleep", "600"])
    (task,) = the_tasks(job)
    await engine.perform([CreateTask(job, task)])
    await until(engine, task, lambda report: report.ready)
    held = file_lock.take(folder_of(tmp_path, task) / "lock")
    assert held is not None
    assert (await engine.observe([task.key]))[0].phase is TaskPhase.PENDING
    (report,) = await engine.perform([BindGang(job, (task,))])
    assert (report.phase, report.ready) == (TaskPhase.PENDING, True)
    assert "being started by another process" in (report.message or "")
    file_lock.release(held)
    (report,) = await engine.perform([BindGang(job, (task,))])
    assert report.phase is TaskPhase.RUNNING
