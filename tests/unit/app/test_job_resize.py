"""Resizing a run: what changes in its document, and whether it must restart."""

from __future__ import annotations

import pytest

from fairway.app.job_resize import fits, resized
from fairway.spec.job import JobSpec, RoleReplicas
from fairway.state.task import Task, TaskKey

SPEC = JobSpec.model_validate(
    {
        "roles": {
            "ps": {"command": ["a"]},
            "worker": {"command": ["a"], "replicas": {"min": 2, "max": 4}},
        }
    }
)


def tasks(workers: int, attempt: int = 0) -> list[Task]:
    names = [("ps", 0), *(("worker", index) for index in range(workers))]
    return [Task(TaskKey("team", "run-1", role, index, attempt)) for role, index in names]


def test_only_the_sizes_that_are_named_change() -> None:
    job_spec = resized(SPEC, {"worker": RoleReplicas(min=3, max=3)})
    assert (job_spec.roles["worker"].replicas, job_spec.roles["ps"]) == (RoleReplicas(min=3, max=3), SPEC.roles["ps"])
    assert job_spec.roles["worker"].command == SPEC.roles["worker"].command
    assert resized(SPEC, {"worker": RoleReplicas(min=2, max=4)}) == SPEC


@pytest.mark.parametrize(("workers", "enough"), [(1, False), (2, True), (4, True), (5, False)])
def test_a_run_within_its_bounds_goes_on(workers: int, enough: bool) -> None:
    assert fits(SPEC, tasks(workers), 0) is enough


def test_what_has_no_tasks_yet_needs_no_new_start() -> None:
    assert fits(SPEC, [], 0)
    assert fits(SPEC, tasks(1, attempt=0), 1), "those of an earlier attempt do not count"
