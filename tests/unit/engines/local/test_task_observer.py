"""Records in a task's folder are read within limits: a bad one loses its task, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.app.system.clock import SystemClock
from fairway.engines.local.file_lock import release, take
from fairway.engines.local.home import LOCK, EngineHome
from fairway.engines.local.supervision import attempt_record
from fairway.engines.local.supervision.process.process_identity import ProcessIdentity, boot_id, identify
from fairway.engines.local.task_observer import TaskObserver, read_ports
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskKey, TaskReport

KEY = TaskKey("default", "mnist-1", "worker", 0, 0)
GOOD = {"code": 0, "signal": None, "rank": 0, "tail": "done", "started": 1.0, "finished": 2.0, "by_us": False}


@pytest.fixture
def home(tmp_path: Path) -> EngineHome:
    made = EngineHome.open(tmp_path / "home")
    made.make_attempt(KEY)
    return made


def look(home: EngineHome) -> TaskReport:
    """Observe the task once, which must be fast whatever the folder contains."""
    began = time.monotonic()
    report = asyncio.run(TaskObserver(home, SystemClock()).look(KEY)).report
    assert time.monotonic() - began < 20
    return report


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("code", 2**70, "an integer of 71 bits"),
        ("code", "boom", "'boom'"),
        ("code", True, "True"),
        ("code", 1.5, "1.5"),
        ("signal", -(2**63) - 1, "an integer of 64 bits"),
        ("rank", "boom", "'boom'"),
        ("rank", None, "null"),
        ("tail", {"a": 1}, "{'a': 1}"),
        ("tail", "x" * 100_000, "xxx..."),
        ("words", ["no"], "['no']"),
        ("lost", 7, "7"),
        ("started", "yesterday", "'yesterday'"),
        ("finished", float("nan"), "nan"),
        ("finished", float("inf"), "inf"),
        ("finished", 10**40, "an integer of 133 bits"),
        ("by_us", "yes", "'yes'"),
        ("held", [1], "[1]"),
        ("reached_step", "x", "'x'"),
    ],
)
def test_a_bad_value_in_an_exit_record_loses_the_task_and_is_named(
    home: EngineHome, name: str, value: object, shown: str
) -> None:
    (home.attempt(KEY) / "exit.json").write_text(json.dumps({**GOOD, name: value}))
    report = look(home)
    assert report.phase is TaskPhase.LOST
    assert report.exit is None
    assert f"{home.attempt(KEY)}/exit.json" in report.message
    assert name in report.message
    assert shown in report.message
    assert len(report.message) < 600


@pytest.mark.parametrize("text", ["", "[1]", '{"half', '{"code": ' + "9" * 5000 + "}", "[" * 100_000])
def test_a_file_without_a_record_loses_the_task(home: EngineHome, text: str) -> None:
    (home.attempt(KEY) / "exit.json").write_text(text)
    report = look(home)
    assert report.phase is TaskPhase.LOST
    assert "exit.json holds no JSON" in report.message


@pytest.mark.parametrize("kind", ["huge", "pipe", "folder", "link"])
def test_a_thing_that_is_no_small_file_loses_the_task_without_being_read(home: EngineHome, kind: str) -> None:
    path = home.attempt(KEY) / "exit.json"
    if kind == "huge":
        with path.open("wb") as file:
            file.truncate(100_000_000)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    report = look(home)
    assert report.phase is TaskPhase.LOST
    assert "exit.json" in report.message


def test_a_step_beyond_64_bits_costs_the_step_and_not_the_task(home: EngineHome) -> None:
    attempt_record.write_record(str(home.attempt(KEY)), attempt_record.EXIT, {**GOOD, "reached_step": 2**63})
    report = look(home)
    assert report.phase is TaskPhase.SUCCEEDED
    assert report.exit is not None
    assert report.exit.reached_step is None


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"started": "x", "supervisor": {"pid": 1e99}}', b"\xff\xfe"])
def test_a_running_task_runs_whatever_its_start_record_holds(home: EngineHome, content: bytes) -> None:
    (home.attempt(KEY) / "started.json").write_bytes(content)
    lock = take(home.attempt(KEY) / LOCK)
    assert lock is not None
    try:
        report = look(home)
    finally:
        release(lock)
    assert report.phase is TaskPhase.RUNNING
    assert report.started is None


def test_a_pipe_in_place_of_the_lock_loses_the_task_unless_its_supervisor_lives(home: EngineHome) -> None:
    os.mkfifo(home.attempt(KEY) / LOCK)
    own = identify(os.getpid())
    assert own is not None
    attempt_record.write_record(str(home.attempt(KEY)), attempt_record.STARTED, {"started": 1.0, "supervisor": own.as_dict()})
    report = look(home)
    assert report.phase is TaskPhase.RUNNING
    assert "lock cannot be used: it is not a regular file" in report.message
    gone = {**own.as_dict(), "start": 1}
    attempt_record.write_record(str(home.attempt(KEY)), attempt_record.STARTED, {"started": 1.0, "supervisor": gone})
    report = look(home)
    assert report.phase is TaskPhase.LOST
    assert "lock cannot be used: it is not a regular file" in report.message
    attempt_record.write_record(str(home.attempt(KEY)), attempt_record.EXIT, GOOD)
    assert look(home).phase is TaskPhase.SUCCEEDED


def test_a_start_record_without_a_supervisor_loses_the_task_and_is_named(home: EngineHome) -> None:
    (home.attempt(KEY) / "started.json").write_text('{"half')
    report = look(home)
    assert report.phase is TaskPhase.LOST
    assert "started.json" in report.message
    assert '{"half' in report.message


def test_last_words_of_any_size_and_kind_are_shown_short(home: EngineHome) -> None:
    begun = {"started": 1.0, "boot": boot_id(), "processes": [{"pid": 2**70, "start": 1, "boot": boot_id()}, 7], "cgroup": "\0"}
    for words in (b"", b"x" * 1_000_000):
        home.attempt(KEY).joinpath("exit.json").unlink(missing_ok=True)
        attempt_record.write_record(str(home.attempt(KEY)), attempt_record.STARTED, begun)
        (home.attempt(KEY) / "supervisor.log").write_bytes(words)
        report = look(home)
        assert report.phase is TaskPhase.LOST
        assert "its supervisor failed" in report.message
        assert len(report.message) < 2000


def test_an_order_with_nonsense_gives_no_ports_and_no_clean_up(home: EngineHome) -> None:
    order = {"ports": [80, "x", -1, 70_000, 2**70, None, True], "cleanup": ["rm", [1], [], ["no\0"]]}
    attempt_record.write_record(str(home.attempt(KEY)), "order.json", order)
    assert read_ports(home.attempt(KEY)) == (80,)
    attempt_record.write_record(str(home.attempt(KEY)), attempt_record.STARTED, {"started": 1.0, "boot": boot_id()})
    assert look(home).phase is TaskPhase.LOST


def test_no_process_id_outside_of_its_range_is_ever_signalled() -> None:
    for pid in (0, -1, 1 << 31, 2**70):
        assert ProcessIdentity.from_dict({"pid": pid, "start": 1, "boot": boot_id()}) is None


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_NAMES = st.sampled_from(
    [*GOOD, "lost", "words", "said", "reached_step", "out_of_memory", "held", "memory_limit", "traceback_digest"]
)


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(_NAMES, _ANYTHING, max_size=4))
def test_whatever_an_exit_record_holds_what_is_reported_fits_the_store(home: EngineHome, changes: dict[str, object]) -> None:
    (home.attempt(KEY) / "exit.json").write_text(json.dumps({**GOOD, **changes}))
    report = look(home)
    assert report.phase.over
    for moment in (report.started, report.finished):
        assert moment is None or abs(moment) <= 1e11
    if report.exit is not None:
        numbers = (report.exit.code, report.exit.signal, report.exit.rank, report.exit.reached_step)
        assert all(number is None or (type(number) is int and -(2**63) <= number < 2**63) for number in numbers)
        assert isinstance(report.exit.tail, str)
