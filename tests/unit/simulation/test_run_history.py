from __future__ import annotations

from dataclasses import replace

from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.simulation.run_history import has_gaps, read_history, seconds_run
from fairway.spec.job import TaskRole
from fairway.spec.resource import ResourceAmounts
from fairway.state.job import SubmissionOrigin
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task
from fairway.testing.builder.job_builder import a_job, a_task
from fairway.views.job import JobView, job_view


def a_run(
    name: str,
    *,
    created: float = 0.0,
    ran: tuple[float, float] | None = (0.0, 10.0),
    gpu: str = "",
    attempt: int = 0,
    tasks: tuple[Task, ...] = (),
    listed: bool = False,
) -> JobView:
    roles = {"worker": TaskRole(command=("train",), resources=ResourceAmounts(gpu=gpu or None))}
    job = a_job(name=name, roles=roles, origin=SubmissionOrigin(user="ann"), attempt=attempt)
    started, finished = ran or (None, None)
    job = replace(job, created=created, started=started, finished=finished, phase=JobPhase.SUCCEEDED)
    return job_view(job, tasks, now=1000.0, tasks_too=not listed)


def test_finished_runs_become_a_queue_that_begins_with_the_first() -> None:
    history = read_history(
        [
            a_run("late-3", created=500.0, ran=(520.0, 620.0), gpu="4"),
            a_run("early-1", created=100.0, ran=(100.0, 130.0), gpu="0.5"),
            a_run("cpu-1", created=0.0),
            a_run("never-1", ran=None, gpu="1"),
        ]
    )
    assert history.entries == (RecordedJob(0.0, 1, 30.0, "early", "ann"), RecordedJob(400.0, 4, 100.0, "late", "ann"))
    assert (history.without_gpus, history.unfinished) == (1, 1)


def test_pauses_between_attempts_do_not_count_and_tasks_beside_each_other_count_once() -> None:
    job = a_job(name="train-1", replicas=2)
    spans = {(0, 0): (0.0, 50.0), (1, 0): (0.0, 40.0), (0, 1): (200.0, 260.0), (1, 1): (210.0, 270.0)}
    tasks = tuple(
        replace(a_task(job, index, attempt=attempt, phase=TaskPhase.SUCCEEDED), started=began, finished=ended)
        for (index, attempt), (began, ended) in spans.items()
    )
    run = a_run("train-1", ran=(0.0, 270.0), gpu="1", attempt=1, tasks=tasks)
    assert seconds_run(run) == 50.0 + 70.0
    assert has_gaps(run)


def test_without_its_tasks_a_run_counts_from_start_to_end() -> None:
    run = a_run("train-1", ran=(5.0, 25.0), gpu="1", listed=True)
    assert seconds_run(run) == 20.0
    assert not has_gaps(run)


def test_nothing_makes_an_empty_history() -> None:
    assert read_history([]).entries == ()
