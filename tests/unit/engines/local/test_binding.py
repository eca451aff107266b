"""What a launch adds to the environment that a task has anyway."""

from __future__ import annotations

from fairway.engines.local.binding import added_variables
from fairway.launch.topology import Process


def test_defaults_give_way_and_the_rest_does_not() -> None:
    process = Process(("true",), {"OMP_NUM_THREADS": "1", "RANK": "0"}, gives_way=frozenset({"OMP_NUM_THREADS"}))
    assert added_variables(process, {"OMP_NUM_THREADS": "8", "RANK": "9"}) == {"RANK": "0"}
    assert added_variables(process, {}) == {"OMP_NUM_THREADS": "1", "RANK": "0"}


def test_lines_are_buffered_only_where_the_output_is_unbuffered_by_us() -> None:
    ours = {"PYTHONUNBUFFERED": "1", "FAIRWAY_LINES": "1"}
    process = Process(("true",), ours, gives_way=frozenset(ours))
    assert added_variables(process, {}) == ours
    assert added_variables(process, {"PYTHONUNBUFFERED": "1"}) == {}


def test_the_python_path_is_put_in_front() -> None:
    process = Process(("true",), {"PYTHONPATH": "/runtime"})
    assert added_variables(process, {"PYTHONPATH": "/mine"}) == {"PYTHONPATH": "/runtime:/mine"}
    assert added_variables(process, {"PYTHONPATH": ""}) == {"PYTHONPATH": "/runtime"}
    assert added_variables(process, {}) == {"PYTHONPATH": "/runtime"}
