from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairway.app.port.port import LogQuery
from fairway.engines.simulated.cluster import SimulatedCluster
from fairway.engines.simulated.engine import SimulatedEngine
from fairway.engines.simulated.task_behaviour import TaskBehaviour
from fairway.errors import ConflictError
from fairway.plan.action import BindGang, CreateTask, EvictTask, ForgetLogs, NudgeTask
from fairway.spec.job import RestartPolicy, RestartScope
from fairway.state.job import JobState
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import TaskPhase
from fairway.state.task import Task, TaskNeed
from fairway.testing.builder.job_builder import a_job, the_tasks

NODE = ClusterNode(
    "here", cpu=4.0, memory=8 << 30, devices=(NodeDevice("g0", 0, memory=16 << 30), NodeDevice("g1", 1, memory=16 << 30)), tasks=6
)


def a_stage(behaviour: TaskBehaviour, node: ClusterNode = NODE) -> tuple[SimulatedCluster, SimulatedEngine]:
    cluster = SimulatedCluster([node], lambda _job, _key: behaviour)
    return cluster, SimulatedEngine(cluster)


async def started(engine: SimulatedEngine, job: JobState, tasks: tuple[Task, ...] | None = None) -> tuple[Task, ...]:
    tasks = the_tasks(job) if tasks is None else tasks
    await engine.perform([*(CreateTask(job, task) for task in tasks), BindGang(job, tasks)])
    return tasks


async def test_a_task_lasts_as_long_as_its_work() -> None:
    cluster, engine = a_stage(TaskBehaviour(work=100.0, startup=20.0))
    (task,) = await started(engine, a_job())
    assert cluster.next_change() == 120.0
    cluster.pass_to(119.0)
    assert cluster.look(task.key).phase is TaskPhase.RUNNING
    cluster.pass_to(500.0)
    report = cluster.look(task.key)
    assert (report.phase, report.started, report.finished) == (TaskPhase.SUCCEEDED, 0.0, 120.0)
    assert cluster.next_change() is None


async def test_a_larger_gang_is_faster() -> None:
    cluster, engine = a_stage(TaskBehaviour(work=100.0))
    await started(engine, replace(a_job(), sizes={"worker": 4}))
    assert cluster.next_change() == 25.0


async def test_preparing_takes_its_time_and_wakes_whoever_waits() -> None:
    woken: list[float] = []
    cluster, engine = a_stage(TaskBehaviour(preparing=5.0))
    await engine.start(lambda: woken.append(cluster.clock.now()))
    job = a_job()
    (task,) = the_tasks(job)
    (report,) = await engine.perform([CreateTask(job, task)])
    assert (report.ready, report.message) == (False, "preparing code and environment")
    (report,) = await engine.perform([BindGang(job, (task,))])
    assert report.phase is TaskPhase.PENDING
    cluster.pass_to(5.0)
    assert woken == [5.0]
    (report,) = await engine.perform([BindGang(job, (task,))])
    assert report.phase is TaskPhase.RUNNING
    await engine.close()
    cluster.tell()
    assert woken == [5.0]


@pytest.mark.parametrize(
    ("behaviour", "grace", "ends", "signal"),
    [
        (TaskBehaviour(leaves_after=3.0), 10.0, 13.0, 15),
        (TaskBehaviour(leaves_after=30.0), 10.0, 20.0, 9),
        (TaskBehaviour(leaves_after=0.0), 0.0, 10.0, 9),
    ],
)
async def test_an_eviction_takes_its_grace_and_no_more(behaviour: TaskBehaviour, grace: float, ends: float, signal: int) -> None:
    cluster, engine = a_stage(behaviour)
    (task,) = await started(engine, a_job())
    cluster.pass_to(10.0)
    await engine.perform([EvictTask(task.key, grace, "test")])
    cluster.pass_to(100.0)
    report = cluster.look(task.key)
    assert report.exit is not None
    assert (report.phase, report.finished, report.exit.signal) == (TaskPhase.STOPPED, ends, signal)


async def test_a_second_eviction_may_shorten_the_grace_and_never_lengthens_it() -> None:
    cluster, engine = a_stage(TaskBehaviour(leaves_after=float("inf")))
    (task,) = await started(engine, a_job())
    for grace in (60.0, 90.0, 5.0):
        await engine.perform([EvictTask(task.key, grace, "test")])
    assert cluster.next_change() == 5.0


async def test_the_next_attempt_goes_on_from_the_last_checkpoint() -> None:
    cluster, engine = a_stage(TaskBehaviour(work=1000.0, checkpoint_every=100.0))
    job = a_job()
    (task,) = await started(engine, job)
    cluster.pass_to(250.0)
    (seen,) = await engine.measure([job])
    assert (seen.checkpoint_step, seen.checkpoint_time, seen.points[0].step) == (200, 200.0, 250)
    (seen,) = await engine.measure([job])
    assert seen.points == ()
    await engine.perform([EvictTask(task.key, 10.0, "test")])
    assert [(loss.seconds, loss.at) for loss in cluster.losses] == [(50.0, 250.0)]
    await started(engine, replace(job, attempt=1))
    assert cluster.next_change() == 250.0 + 800.0


async def test_a_task_that_saves_on_leaving_loses_nothing_when_it_gets_the_time() -> None:
    cluster, engine = a_stage(TaskBehaviour(work=1000.0, checkpoint_every=100.0, leaves_after=5.0, saves_on_leaving=True))
    job = a_job()
    for attempt, grace in enumerate((10.0, 2.0)):
        (task,) = await started(engine, replace(job, attempt=attempt))
        cluster.pass_to(cluster.clock.now() + 150.0)
        await engine.perform([EvictTask(task.key, grace, "test")])
        cluster.pass_to(cluster.clock.now() + grace)
    assert [loss.seconds for loss in cluster.losses] == [50.0]


async def test_the_rest_of_a_broken_gang_waits_until_it_is_told_to_leave() -> None:
    cluster = SimulatedCluster(
        [NODE], lambda _job, key: TaskBehaviour(work=50.0, fails_after=20.0 if key.index else float("inf"))
    )
    engine = SimulatedEngine(cluster)
    first, second = await started(engine, a_job(replicas=2))
    cluster.pass_to(1000.0)
    assert [cluster.look(task.key).phase for task in (first, second)] == [TaskPhase.RUNNING, TaskPhase.FAILED]


async def test_tasks_that_start_again_alone_do_not_wait_for_each_other() -> None:
    cluster = SimulatedCluster(
        [NODE], lambda _job, key: TaskBehaviour(work=50.0, fails_after=20.0 if key.index else float("inf"))
    )
    engine = SimulatedEngine(cluster)
    first, second = await started(engine, a_job(replicas=2, restart=RestartPolicy(scope=RestartScope.TASK)))
    cluster.pass_to(1000.0)
    assert [cluster.look(task.key).phase for task in (first, second)] == [TaskPhase.SUCCEEDED, TaskPhase.FAILED]


async def test_a_lost_task_is_reported_as_lost() -> None:
    cluster, engine = a_stage(TaskBehaviour(lost_after=7.0))
    (task,) = await started(engine, a_job())
    cluster.pass_to(7.0)
    report = cluster.look(task.key)
    assert (report.phase, report.finished, report.exit) == (TaskPhase.LOST, 7.0, None)


async def test_a_nudged_task_ends_well() -> None:
    cluster, engine = a_stage(TaskBehaviour(leaves_after=2.0))
    (task,) = await started(engine, a_job())
    await engine.perform([NudgeTask(task.key, "enough")])
    cluster.pass_to(2.0)
    assert cluster.look(task.key).phase is TaskPhase.SUCCEEDED


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"need": TaskNeed(cpu=5.0)}, "here has 4000 of cpu milli left, and 5000 are needed"),
        ({"need": TaskNeed(memory=9 << 30)}, "of memory MiB left"),
        ({"need": TaskNeed(other={"rdma": 1})}, "here has 0 of rdma left"),
        ({"need": TaskNeed(gpus=1, gpu_milli=600), "devices": ("g1",)}, "g1 has 500 of milli left, and 600 are needed"),
        (
            {"need": TaskNeed(gpus=1, gpu_milli=1, gpu_memory=9 << 30), "devices": ("g1",)},
            "g1 has 500 of milli left, and 563 are needed",
        ),
        ({"node": "there"}, "there is no node there"),
    ],
)
async def test_nothing_is_handed_out_twice(changes: dict[str, object], said: str) -> None:
    cluster, engine = a_stage(TaskBehaviour())
    holder = a_job(name="holder-1")
    (held,) = the_tasks(holder)
    await started(engine, holder, (replace(held, need=TaskNeed(gpus=1, gpu_milli=500), devices=("g1",)),))
    job = a_job(name="other-1")
    (task,) = the_tasks(job)
    await started(engine, job, (replace(task, **changes),))
    assert len(cluster.refusals) == 1
    assert said in cluster.refusals[0]


async def test_a_node_takes_so_many_tasks() -> None:
    cluster, engine = a_stage(TaskBehaviour(), replace(NODE, cpu=100.0))
    await started(engine, a_job(replicas=7))
    assert cluster.refusals == ["here has 6 of tasks left, and 7 are needed"]
    await started(engine, a_job(name="b-1", replicas=6))
    assert len(cluster.refusals) == 1


async def test_logs_are_chosen_and_forgotten() -> None:
    _, engine = a_stage(TaskBehaviour(prints="one\ntwo\nthree\n"))
    job = a_job(replicas=2)
    await started(engine, job)

    async def read(**query: object) -> list[tuple[str, bytes]]:
        return [(chunk.task, chunk.data) async for chunk in engine.logs(job, LogQuery(**query))]

    assert await read(index=1, tail=1) == [("worker-1", b"three\n")]
    assert await read(role="ps") == []
    assert await read(index=0, grep="t.o") == [("worker-0", b"two\n")]
    await engine.perform([ForgetLogs(job.key)])
    assert await read() == []


async def test_following_ends_when_the_run_does() -> None:
    cluster, engine = a_stage(TaskBehaviour(work=10.0, prints="hello\n"))
    job = a_job()
    await started(engine, job)

    async def follow() -> bytes:
        return b"".join([chunk.data async for chunk in engine.logs(job, LogQuery(follow=True))])

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    assert not following.done()
    cluster.pass_to(10.0)
    engine.release(job.key)
    assert await following == b"hello\n"


async def test_only_what_runs_can_be_looked_into() -> None:
    cluster, engine = a_stage(TaskBehaviour(work=10.0))
    job = a_job()
    (task,) = await started(engine, job)
    assert (await engine.inside(task.key)).environment == {"FAIRWAY_TASK": "worker-0"}
    assert await engine.kept() == [job.key]
    cluster.pass_to(10.0)
    with pytest.raises(ConflictError):
        await engine.inside(task.key)
