"""The resource usage of each task of a run."""

from __future__ import annotations

from dataclasses import replace

from fairway.app.port.port import MetricPoint
from fairway.state.job import RunProgress
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskNeed
from fairway.testing.builder.job_builder import a_job, a_task
from fairway.views.text.table import TextPage
from fairway.views.usage import usage_list, usage_text

JOB = replace(a_job(replicas=2), progress=RunProgress(step=90, steps_per_second=9.0, speaker="worker-0"))
TASKS = [
    replace(a_task(JOB, index), phase=TaskPhase.RUNNING, need=TaskNeed(cpu=1.0, memory=1 << 30), devices=(f"GPU-{index}",))
    for index in range(2)
]


def point(time: float, step: int | None, task: str = "worker-1") -> MetricPoint:
    return MetricPoint(time, step, {"loss": 1.0}, task)


def test_used_of_held_and_the_speed_of_each() -> None:
    points = [point(float(second), 10 * second) for second in range(1, 8)] + [point(8.0, None), point(8.0, 5, "evaluator-0")]
    usage = usage_list(JOB, TASKS, {task.key: (0.987, 512 << 20, None) for task in TASKS}, points)
    first, second = usage.tasks
    assert (first.step, first.steps_per_second) == (90, 9.0)
    assert (second.step, second.steps_per_second) == (70, 10.0)
    assert usage_text(usage, TextPage()).splitlines() == [
        "TASK      PHASE          CPU            MEMORY  GPUS   STEP  STEPS/S",
        "worker-0  Running  0.99 of 1  512 MiB of 1 GiB  GPU-0    90        9",
        "worker-1  Running  0.99 of 1  512 MiB of 1 GiB  GPU-1    70       10",
    ]


def test_what_does_not_run_uses_nothing_and_has_no_speed() -> None:
    pending = [replace(task, phase=TaskPhase.PENDING, devices=()) for task in TASKS]
    usage = usage_list(replace(JOB, progress=RunProgress()), pending, {}, [point(1.0, 1), point(2.0, 2)])
    assert [(task.cpu_used, task.memory_used, task.steps_per_second) for task in usage.tasks] == [(None, None, None)] * 2
    assert usage_text(usage).splitlines()[1].split() == ["worker-0", "Pending"]
    assert "fairway why mnist-1" in usage_text(usage_list(JOB, [], {}, []))


def test_steps_that_went_back_give_no_speed() -> None:
    usage = usage_list(JOB, TASKS, {TASKS[1].key: (0.0, 1, None)}, [point(1.0, 50), point(2.0, 3)])
    assert (usage.tasks[1].step, usage.tasks[1].steps_per_second) == (3, None)


def test_how_busy_its_gpus_are_is_told_where_nothing_else_is_known() -> None:
    usage = usage_list(JOB, TASKS[:1], {TASKS[0].key: (None, None, 0.874)}, [])
    assert usage_text(usage, TextPage()).splitlines()[1].split()[:4] == ["worker-0", "Running", "GPU-0", "87%"]
