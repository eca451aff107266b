"""Whether the tasks of a run formed one world, according to their ends."""

from __future__ import annotations

import pytest

from fairway.state.launcher import separate_worlds
from fairway.state.task import Task, TaskExit, TaskKey


def tasks(*ends: tuple[int, bool]) -> list[Task]:
    keys = [TaskKey("default", "mnist-7", "worker", index, 0) for index in range(len(ends))]
    return [Task(key, exit=TaskExit(0, world=world, leads=leads)) for key, (world, leads) in zip(keys, ends, strict=True)]


@pytest.mark.parametrize(
    "ends",
    [
        [(2, True), (2, False)],
        [(0, False), (0, False)],
        [(1, True), (0, False)],
        [(4, False), (4, False)],
    ],
    ids=["one world", "no launcher", "a launcher in one task", "rank 0 was not seen"],
)
def test_one_world_or_none_is_not_told(ends):
    assert separate_worlds(tasks(*ends)) == ""


def test_two_ranks_0_are_two_worlds():
    assert "formed 2 separate worlds (of size 1)" in separate_worlds(tasks((1, True), (1, True)))
    assert "formed 3 separate worlds (of size 1 and 2)" in separate_worlds(tasks((1, True), (2, True), (2, True)))


def test_tasks_without_an_end_say_nothing():
    assert separate_worlds([Task(TaskKey("default", "mnist-7", "worker", 0, 0))] * 2) == ""
