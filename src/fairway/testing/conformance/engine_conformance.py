"""Conformance suite of the `Engine` port. Subclass it in a test module, with a fixture `stage` that returns a `EngineStage`.

The suite uses only the port; the stage provides tasks of a given behaviour and counts their starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from fairway.app.port.port import Engine, LogQuery
from fairway.plan.action import BindGang, CreateTask, EvictTask, ForgetJob, NudgeTask
from fairway.state.job import JobState
from fairway.state.phase import TaskPhase
from fairway.state.task import Task, TaskKey, TaskReport
from fairway.testing.builder.job_builder import the_tasks

PATIENCE = 30.0
"""Timeout for every expected change, in seconds of the stage's clock."""


class ConformanceBehaviour(StrEnum):
    """How a task behaves."""

    SUCCEEDS = "succeeds"
    FAILS = "fails"
    """Exits with 3."""
    REQUEUES = "requeues"
    """Exits with 75."""
    STAYS = "stays"
    """Runs until it is stopped."""
    STUBBORN = "stubborn"
    """Runs until it is killed; ignores SIGTERM."""
    BREEDS = "breeds"
    """Exits with 0 and leaves child processes behind."""
    MISSING = "missing"
    """Its program does not exist."""


class EngineStage(Protocol):
    """The environment of the engine under test."""

    @property
    def engine(self) -> Engine:
        """The engine under test, started."""
        ...

    def job(self, name: str, behaviour: ConformanceBehaviour, replicas: int = 1) -> JobState:
        """Return a run of one role, `worker`, whose tasks behave this way."""
        ...

    def starts(self, key: TaskKey) -> int:
        """Return how many times the task's process was actually started."""
        ...

    def left(self, key: TaskKey) -> Sequence[str]:
        """Return what remains of the task outside the engine: its processes."""
        ...

    async def another(self) -> Engine:
        """Return a second engine over the same home, as with two daemons at once or after a crash."""
        ...

    async def pass_time(self) -> None:
        """Let a short time pass."""
        ...


class EngineConformance:
    """The suite: the six guarantees of the port."""

    async def test_there_is_something_to_run_on(self, stage: EngineStage) -> None:
        nodes = await stage.engine.nodes()
        assert nodes
        assert all(node.cpu > 0 and node.memory > 0 for node in nodes)

    # 1. perform is idempotent

    async def test_a_task_created_twice_is_created_once_and_becomes_ready(self, stage: EngineStage) -> None:
        job = stage.job("idem-1", ConformanceBehaviour.SUCCEEDS)
        (task,) = the_tasks(job)
        await stage.engine.perform([CreateTask(job, task)])
        await stage.engine.perform([CreateTask(job, task)])
        report = await until(stage, task.key, lambda state: bool(state.ready))
        assert report.phase is TaskPhase.PENDING
        assert stage.starts(task.key) == 0

    async def test_a_gang_bound_twice_is_started_once(self, stage: EngineStage) -> None:
        job = stage.job("idem-2", ConformanceBehaviour.STAYS, replicas=2)
        tasks = await bound(stage, job)
        again = await stage.engine.perform([BindGang(job, tasks)])
        assert [report.phase.holds_resources for report in again] == [True] * 2
        for task in tasks:
            await until(stage, task.key, lambda state: state.phase is TaskPhase.RUNNING)
        await started_once(stage, tasks)
        await ended(stage, tasks)

    async def test_a_task_evicted_twice_ends_once(self, stage: EngineStage) -> None:
        job = stage.job("idem-3", ConformanceBehaviour.STAYS)
        (task,) = await bound(stage, job)
        for _ in range(2):
            await stage.engine.perform([EvictTask(task.key, 5.0, "test")])
        first = await until_over(stage, task.key)
        await stage.engine.perform([EvictTask(task.key, 0.0, "test")])
        (second,) = await stage.engine.observe([task.key])
        assert first == second

    async def test_a_run_forgotten_twice_is_forgotten(self, stage: EngineStage) -> None:
        job = stage.job("idem-4", ConformanceBehaviour.SUCCEEDS)
        (task,) = await bound(stage, job)
        await until_over(stage, task.key)
        for _ in range(2):
            await stage.engine.perform([ForgetJob(job.key)])
        (report,) = await stage.engine.observe([task.key])
        assert report.phase is TaskPhase.LOST
        assert await printed(stage.engine, job) == b""

    # 2. each key is started at most once, ever

    async def test_a_task_that_is_over_is_never_started_again(self, stage: EngineStage) -> None:
        job = stage.job("once-1", ConformanceBehaviour.SUCCEEDS)
        (task,) = await bound(stage, job)
        await until_over(stage, task.key)
        (report,) = await stage.engine.perform([CreateTask(job, task), BindGang(job, (task,))])
        assert report.phase is TaskPhase.SUCCEEDED
        assert stage.starts(task.key) == 1

    async def test_the_next_attempt_is_another_task(self, stage: EngineStage) -> None:
        job = stage.job("once-2", ConformanceBehaviour.SUCCEEDS)
        (task,) = await bound(stage, job)
        await until_over(stage, task.key)
        (second,) = await bound(stage, replace(job, attempt=1))
        await until_over(stage, second.key)
        assert [stage.starts(task.key), stage.starts(second.key)] == [1, 1]

    async def test_two_engines_start_a_task_once(self, stage: EngineStage) -> None:
        job = stage.job("once-3", ConformanceBehaviour.STAYS, replicas=2)
        tasks = await ready(stage, job)
        other = await stage.another()
        await until(stage, tasks[0].key, lambda state: bool(state.ready), other)
        await other.perform([CreateTask(job, task) for task in tasks])
        await until(stage, tasks[1].key, lambda state: bool(state.ready), other)
        await asyncio.gather(*(engine.perform([BindGang(job, tasks)]) for engine in (stage.engine, other)))
        for task in tasks:
            await until(stage, task.key, lambda state: state.phase is TaskPhase.RUNNING)
        await started_once(stage, tasks)
        await ended(stage, tasks)
        await other.close()

    async def test_a_task_evicted_before_it_was_bound_never_starts(self, stage: EngineStage) -> None:
        job = stage.job("once-4", ConformanceBehaviour.STAYS)
        (task,) = await ready(stage, job)
        await stage.engine.perform([EvictTask(task.key, 0.0, "test")])
        (report,) = await stage.engine.perform([BindGang(job, (task,))])
        assert report.phase is TaskPhase.STOPPED
        assert stage.starts(task.key) == 0

    # 3. a gang starts completely or not at all

    async def test_a_gang_with_a_task_that_cannot_be_bound_does_not_start(self, stage: EngineStage) -> None:
        job = stage.job("gang-1", ConformanceBehaviour.STAYS, replicas=2)
        first, second = await ready(stage, job)
        taken = replace(second, devices=("DEVICE-THAT-IS-TAKEN",), need=replace(second.need, gpus=1))
        holder = stage.job("gang-2", ConformanceBehaviour.STAYS)
        (holding,) = await ready(stage, holder)
        holding = replace(holding, devices=taken.devices, need=taken.need)
        await stage.engine.perform([BindGang(holder, (holding,))])
        reports = await stage.engine.perform([BindGang(job, (first, taken))])
        assert [report.phase for report in reports] == [TaskPhase.PENDING] * 2
        assert all(report.message for report in reports)
        assert [stage.starts(first.key), stage.starts(taken.key)] == [0, 0]
        await ended(stage, [holding])
        reports = await stage.engine.perform([BindGang(job, (first, taken))])
        assert [report.phase for report in reports] == [TaskPhase.RUNNING] * 2
        await ended(stage, [first, taken])

    async def test_tasks_of_a_gang_have_addresses_of_their_own(self, stage: EngineStage) -> None:
        job = stage.job("gang-3", ConformanceBehaviour.STAYS, replicas=3)
        tasks = await bound(stage, job)
        addresses = [(await until(stage, task.key, lambda state: bool(state.address))).address for task in tasks]
        assert len(set(addresses)) == 3
        await ended(stage, tasks)

    # 4. reports are true

    async def test_what_nobody_knows_is_lost(self, stage: EngineStage) -> None:
        (report,) = await stage.engine.observe([TaskKey("default", "nobody-1", "worker", 0, 0)])
        assert report.phase is TaskPhase.LOST

    async def test_exit_codes_are_told(self, stage: EngineStage) -> None:
        results = {}
        for number, behaviour in enumerate(
            (ConformanceBehaviour.SUCCEEDS, ConformanceBehaviour.FAILS, ConformanceBehaviour.REQUEUES), 1
        ):
            (task,) = await bound(stage, stage.job(f"truth-{number}", behaviour))
            report = await until_over(stage, task.key)
            assert report.exit is not None
            assert report.started is not None
            assert report.finished is not None
            assert report.finished >= report.started
            results[behaviour] = (report.phase, report.exit.code, report.exit.by_us)
        assert results == {
            ConformanceBehaviour.SUCCEEDS: (TaskPhase.SUCCEEDED, 0, False),
            ConformanceBehaviour.FAILS: (TaskPhase.FAILED, 3, False),
            ConformanceBehaviour.REQUEUES: (TaskPhase.FAILED, 75, False),
        }

    async def test_an_evicted_task_is_stopped_by_us(self, stage: EngineStage) -> None:
        (task,) = await bound(stage, stage.job("truth-4", ConformanceBehaviour.STAYS))
        await stage.engine.perform([EvictTask(task.key, 30.0, "test")])
        report = await until_over(stage, task.key)
        assert report.phase is TaskPhase.STOPPED
        assert report.exit is not None
        assert report.exit.by_us

    async def test_another_engine_sees_the_same(self, stage: EngineStage) -> None:
        running, failing = stage.job("truth-5", ConformanceBehaviour.STAYS), stage.job("truth-6", ConformanceBehaviour.FAILS)
        keys = [task.key for job in (running, failing) for task in await bound(stage, job)]
        await until_over(stage, keys[1])
        before = await stage.engine.observe(keys)
        other = await stage.another()
        assert await other.observe(keys) == before
        await other.perform([EvictTask(keys[0], 5.0, "test")])
        await until_over(stage, keys[0], other)
        await other.close()

    async def test_what_a_task_printed_can_be_read(self, stage: EngineStage) -> None:
        job = stage.job("truth-7", ConformanceBehaviour.SUCCEEDS)
        (task,) = await bound(stage, job)
        await until_over(stage, task.key)
        assert b"hello" in await printed(stage.engine, job)

    # 5. nothing remains

    async def test_what_runs_uses_something_and_the_rest_is_left_out(self, stage: EngineStage) -> None:
        tasks = await bound(stage, stage.job("truth-8", ConformanceBehaviour.STAYS))
        await started_once(stage, tasks)
        unknown = replace(tasks[0].key, index=99)
        used = await stage.engine.usage([tasks[0].key, unknown])
        assert list(used) == [tasks[0].key]
        task_usage = used[tasks[0].key]
        assert (task_usage.memory or 0) > 0
        assert task_usage.cpu is not None
        assert task_usage.cpu >= 0
        await ended(stage, tasks)
        assert await stage.engine.usage([tasks[0].key]) == {}

    async def test_nothing_is_left_of_a_task_that_leaves_processes_behind(self, stage: EngineStage) -> None:
        (task,) = await bound(stage, stage.job("left-1", ConformanceBehaviour.BREEDS))
        report = await until_over(stage, task.key)
        assert not stage.left(task.key)
        assert report.phase is TaskPhase.SUCCEEDED

    async def test_nothing_is_left_of_a_stubborn_task(self, stage: EngineStage) -> None:
        for number, grace in enumerate((0.0, 0.2), 2):
            (task,) = await bound(stage, stage.job(f"left-{number}", ConformanceBehaviour.STUBBORN))
            await stage.engine.perform([EvictTask(task.key, grace, "test")])
            report = await until_over(stage, task.key)
            assert not stage.left(task.key)
            assert report.phase is TaskPhase.STOPPED

    async def test_a_run_that_is_forgotten_while_it_runs_leaves_nothing(self, stage: EngineStage) -> None:
        job = stage.job("left-4", ConformanceBehaviour.STUBBORN)
        (task,) = await bound(stage, job)
        await stage.engine.perform([ForgetJob(job.key)])
        assert not stage.left(task.key)

    # 6. failures are reports

    async def test_a_program_that_does_not_exist_is_a_failure_with_words(self, stage: EngineStage) -> None:
        job = stage.job("fail-1", ConformanceBehaviour.MISSING)
        tasks = await ready(stage, job)
        await stage.engine.perform([BindGang(job, tasks)])
        report = await until_over(stage, tasks[0].key)
        assert report.phase is TaskPhase.FAILED
        assert report.exit is not None
        assert report.exit.code == 127
        assert report.message

    async def test_actions_on_what_does_not_exist_do_not_raise(self, stage: EngineStage) -> None:
        job = stage.job("fail-2", ConformanceBehaviour.STAYS)
        (task,) = the_tasks(job)
        await stage.engine.perform([EvictTask(task.key, 1.0, "test"), NudgeTask(task.key, "test"), ForgetJob(job.key)])
        assert await stage.engine.measure([job]) == []


async def ready(stage: EngineStage, job: JobState) -> tuple[Task, ...]:
    """Create the run's tasks, and return them when they are ready to be bound."""
    tasks = the_tasks(job)
    await stage.engine.perform([CreateTask(job, task) for task in tasks])
    for task in tasks:
        await until(stage, task.key, lambda report: bool(report.ready))
    return tasks


async def bound(stage: EngineStage, job: JobState) -> tuple[Task, ...]:
    """Create and bind the run's tasks, and return them."""
    tasks = await ready(stage, job)
    reports = await stage.engine.perform([BindGang(job, tasks)])
    assert {report.key for report in reports} == {task.key for task in tasks}
    assert not any(report.phase is TaskPhase.PENDING for report in reports), [report.message for report in reports]
    return tasks


async def started_once(stage: EngineStage, tasks: Sequence[Task]) -> None:
    """Wait until each task's process has started, and check that none started twice."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not all(stage.starts(task.key) for task in tasks):
        assert asyncio.get_running_loop().time() < deadline
        await stage.pass_time()
    assert [stage.starts(task.key) for task in tasks] == [1] * len(tasks)


async def ended(stage: EngineStage, tasks: Sequence[Task]) -> None:
    """Kill these tasks and wait until they are over."""
    await stage.engine.perform([EvictTask(task.key, 0.0, "test") for task in tasks])
    for task in tasks:
        await until_over(stage, task.key)


async def until_over(stage: EngineStage, key: TaskKey, engine: Engine | None = None) -> TaskReport:
    """Wait until a task is over; return its report."""
    return await until(stage, key, lambda report: report.phase.over, engine)


async def until(
    stage: EngineStage, key: TaskKey, holds: Callable[[TaskReport], bool], engine: Engine | None = None
) -> TaskReport:
    """Wait until the report of a task satisfies `holds`; return it."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        (report,) = await (engine or stage.engine).observe([key])
        if holds(report):
            return report
        assert asyncio.get_running_loop().time() < deadline, (
            f"the expected report did not arrive in time; the last one is {report}"
        )
        await stage.pass_time()


async def printed(engine: Engine, job: JobState) -> bytes:
    """Return the complete output of a run's tasks."""
    return b"".join([chunk.data async for chunk in engine.logs(job, LogQuery())])
