"""Binding a task: the ports that it needs, and the variables that its launch adds to the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from fairway.engines.local.gang_binder import TaskGangBinder, added_variables
from fairway.engines.local.home import EngineHome
from fairway.engines.local.port_lease import PortLeases
from fairway.engines.local.provision.preparer import PreparedRun
from fairway.errors import RefusedError
from fairway.launch.topology import LaunchProcess, ports_needed
from fairway.plan.action import BindGang
from fairway.state.task import Task, TaskKey
from fairway.testing.builder.job_builder import a_job

KEY = TaskKey("default", "mnist-1", "worker", 0, 0)


class NoPorts:
    """Has no free ports, and records how many were requested."""

    def __init__(self) -> None:
        self.requested: list[int] = []

    def take(self, count: int, _preferred: Sequence[int] = ()) -> None:
        self.requested.append(count)


@pytest.mark.parametrize(("processes", "slots"), [(1, 1), (1, 4), (2, 1)])
def test_the_error_names_as_many_ports_as_were_requested(tmp_path: Path, processes: int, slots: int) -> None:
    home, ports, unused = EngineHome.open(tmp_path / "home"), NoPorts(), cast("Any", None)
    home.make_attempt(KEY)
    binder = TaskGangBinder(home, unused, unused, cast("PortLeases", ports), unused, unused, 0, unused, unused, unused)
    action = BindGang(a_job(), (Task(KEY, processes=processes, slots=slots),))
    with pytest.raises(RefusedError, match=f"worker-0 needs {ports_needed(max(processes, slots))} ports"):
        asyncio.run(binder.bind(action, cast("PreparedRun", unused)))
    assert ports.requested == [ports_needed(max(processes, slots))]


def test_defaults_give_way_and_the_rest_does_not() -> None:
    process = LaunchProcess(("true",), {"OMP_NUM_THREADS": "1", "RANK": "0"}, gives_way=frozenset({"OMP_NUM_THREADS"}))
    assert added_variables(process, {"OMP_NUM_THREADS": "8", "RANK": "9"}) == {"RANK": "0"}
    assert added_variables(process, {}) == {"OMP_NUM_THREADS": "1", "RANK": "0"}


def test_lines_are_buffered_only_where_the_output_is_unbuffered_by_us() -> None:
    ours = {"PYTHONUNBUFFERED": "1", "FAIRWAY_LINES": "1"}
    process = LaunchProcess(("true",), ours, gives_way=frozenset(ours))
    assert added_variables(process, {}) == ours
    assert added_variables(process, {"PYTHONUNBUFFERED": "1"}) == {}


def test_the_python_path_is_put_in_front() -> None:
    process = LaunchProcess(("true",), {"PYTHONPATH": "/runtime"})
    assert added_variables(process, {"PYTHONPATH": "/mine"}) == {"PYTHONPATH": "/runtime:/mine"}
    assert added_variables(process, {"PYTHONPATH": ""}) == {"PYTHONPATH": "/runtime"}
    assert added_variables(process, {}) == {"PYTHONPATH": "/runtime"}
