"""Runs in the states that pages show, at one fixed moment."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fairway.state.job import JobState, ResumePoint, RunOutcome, RunProgress, SubmissionOrigin, WaitReason
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskExit, TaskNeed
from fairway.testing.builder.job_builder import a_job, a_task
from fairway.views.metric import MetricPointView

MOMENT = 10_000.0


@pytest.fixture
def now() -> float:
    return MOMENT


@pytest.fixture
def running() -> JobState:
    job = a_job(
        ["python", "train.py", "--epochs", "3"],
        name="mnist-7",
        replicas=2,
        stop={"at_step": 2000},
        framework="pytorch",
        priority=10,
        queue="research",
        outputs={"model": "mnist"},
    )
    return replace(
        job,
        origin=SubmissionOrigin("ana", "/home/ana/mnist"),
        phase=JobPhase.RUNNING,
        created=MOMENT - 400,
        started=MOMENT - 300,
        progress=RunProgress(1200, {"loss": 0.3142, "accuracy": 0.923}, MOMENT - 2, 4.1, 1100, MOMENT - 20),
    )


@pytest.fixture
def running_tasks(running: JobState) -> list[Task]:
    tasks = [a_task(running, index, devices=[f"GPU-{index}a2b3c4d-1111"], phase=TaskPhase.RUNNING) for index in (0, 1)]
    return [replace(task, started=MOMENT - 300, need=TaskNeed(1.0, 2 << 30, 1.0)) for task in tasks]


@pytest.fixture
def pending() -> JobState:
    hold = WaitReason("gpu", "needs 4 GPUs, 2 are free", "wait for mnist-7 to end, or ask for 2", MOMENT - 60)
    return replace(a_job(["python", "big.py"], name="big-1", replicas=4), created=MOMENT - 61, hold=hold)


@pytest.fixture
def failed(running: JobState) -> JobState:
    return replace(
        running,
        phase=JobPhase.FAILED,
        finished=MOMENT - 30,
        attempt=1,
        restarts=1,
        outcome=RunOutcome("Error", "worker-1 exited with 1: ValueError: bad batch", "worker-1", 1),
        resume=ResumePoint(1100, 90.0),
    )


@pytest.fixture
def failed_tasks(running_tasks: list[Task]) -> list[Task]:
    """Two attempts of two workers; the second worker failed in both."""
    first, second = running_tasks
    bar = "  0%|   |\r 50%|## |\r100%|###|\r\n"
    tail = f'Traceback (most recent call last):\n  File "train.py", line 7\n{bar}\x1b[31mValueError: bad batch\x1b[0m\n'
    ends = [
        replace(first, phase=TaskPhase.STOPPED, finished=MOMENT - 200, exit=TaskExit(None, 15, by_us=True)),
        replace(second, phase=TaskPhase.FAILED, finished=MOMENT - 200, exit=TaskExit(1, tail="the first time")),
    ]
    again = [replace(task, key=replace(task.key, attempt=1), started=MOMENT - 190, finished=MOMENT - 30) for task in ends]
    return [*ends, again[0], replace(again[1], exit=TaskExit(1, tail=tail))]


@pytest.fixture
def points() -> list[MetricPointView]:
    return [
        MetricPointView(
            MOMENT - 300 + place,
            place * 10,
            {"loss": 2.3 * math.exp(-place / 40), "accuracy": 1 - math.exp(-place / 40)},
            "worker-0",
        )
        for place in range(120)
    ]
