"""Planning continues from a rebuilt record of a run: nothing is started again, and nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace

from fairway.plan import planning_cycle, record_rebuild
from fairway.plan.action import BindGang, CreateTask, EvictTask
from fairway.plan.record_rebuild import RecordedAttempt
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import TaskExit, TaskKey, TaskReport

SPEC = JobSpec.model_validate({"roles": {"worker": {"command": ["x"], "replicas": {"min": 2, "max": 2}}}, "restart": {"max": 1}})
JOB = JobState(JobKey("default", "mnist-3"), "mnist", 3, SPEC, created=5.0)


def key(index: int, attempt: int = 0) -> TaskKey:
    return TaskKey("default", "mnist-3", "worker", index, attempt)


def rebuilt(job: JobState, *reports: TaskReport) -> tuple[JobState, PlannerSnapshot]:
    attempts = [RecordedAttempt(report.key, "here", ("GPU-1",)) for report in reports]
    tasks = record_rebuild.tasks(job, attempts, {report.key: report for report in reports}, 8.0)
    assert {task.key for task in tasks} == {report.key for report in reports}
    job = record_rebuild.job(job, tasks)
    snapshot = PlannerSnapshot()
    snapshot.nodes = (ClusterNode("here", 8.0, 1 << 34),)
    snapshot.put_job(job)
    for task in tasks:
        snapshot.put_task(task)
    return job, snapshot


def test_running_tasks_are_taken_up_and_nothing_is_done_to_them() -> None:
    running = [TaskReport(key(index), TaskPhase.RUNNING, started=7.0, address="127.0.0.1:9") for index in (0, 1)]
    job, snapshot = rebuilt(JOB, *running)
    assert (job.phase, job.started, job.sizes) == (JobPhase.RUNNING, 7.0, {"worker": 2})
    task = snapshot.tasks[job.key][key(0)]
    assert (task.phase, task.node, task.devices, task.address) == (TaskPhase.RUNNING, "here", ("GPU-1",), "127.0.0.1:9")
    assert task.need.cpu == 1.0
    plan = planning_cycle.plan(snapshot, 10.0)
    assert not [action for action in plan.actions if isinstance(action, CreateTask | BindGang | EvictTask)]


def test_a_run_whose_tasks_ended_meanwhile_ends_as_they_did() -> None:
    ended = [TaskReport(key(index), TaskPhase.SUCCEEDED, started=7.0, finished=9.0, exit=TaskExit(0)) for index in (0, 1)]
    job, snapshot = rebuilt(JOB, *ended)
    plan = planning_cycle.plan(snapshot, 10.0)
    (after,) = [one for one in plan.jobs if one.key == job.key]
    assert (after.phase, after.finished) == (JobPhase.SUCCEEDED, 9.0)
    assert not plan.actions


def test_of_earlier_attempts_nothing_is_started_again() -> None:
    first = [TaskReport(key(index), TaskPhase.FAILED, started=6.0, finished=7.0, exit=TaskExit(1)) for index in (0, 1)]
    second = [TaskReport(key(index, 1), TaskPhase.RUNNING, started=8.0) for index in (0, 1)]
    job, snapshot = rebuilt(replace(JOB, attempt=1, restarts=1), *first, *second)
    assert (job.phase, job.attempt, job.restarts) == (JobPhase.RUNNING, 1, 1)
    assert not planning_cycle.plan(snapshot, 10.0).actions


def test_a_run_that_never_started_waits() -> None:
    pending = [TaskReport(key(index), TaskPhase.PENDING) for index in (0, 1)]
    job, snapshot = rebuilt(replace(JOB, phase=JobPhase.RUNNING), *pending)
    assert job.phase is JobPhase.PENDING
    assert {task.phase for task in snapshot.tasks_of(job.key)} == {TaskPhase.PENDING}


def test_a_run_that_was_over_stays_so() -> None:
    over = replace(JOB, phase=JobPhase.STOPPED, finished=9.0)
    job, _ = rebuilt(over, TaskReport(key(0), TaskPhase.STOPPED, finished=9.0), TaskReport(key(1), TaskPhase.STOPPED))
    assert job == over


def test_a_role_that_the_document_does_not_have_is_left_out() -> None:
    strange = TaskKey("default", "mnist-3", "ps", 0, 0)
    assert record_rebuild.tasks(JOB, [RecordedAttempt(strange)], {}, 8.0) == []
