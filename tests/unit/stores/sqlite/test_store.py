"""Properties of the SQLite store: its file, its cost, and its errors when the disk or the file fails."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairway.app.port.port import ChangeSet, JobFilter, MetricPoint
from fairway.errors import BugError, UnavailableError
from fairway.state.event import RunEvent
from fairway.state.job import JobKey
from fairway.state.mlflow_record import Experiment
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.stores.sqlite import schema
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.conformance.store_conformance import make_job, make_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fairway.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def test_everything_is_there_after_a_restart(path: Path) -> None:
    store = SqliteStore(path)
    job = make_job(store.next_number("default", "mnist"))
    point, event = MetricPoint(1.0, 2, {"loss": 0.5}, "worker-0"), RunEvent(1.0, str(job.key), "Submitted", "")
    store.commit(ChangeSet((job,), (make_task(job),), (event,), ((job.key, point),)))
    store.close()
    again = SqliteStore(path)
    assert again.active_jobs() == [job]
    assert again.tasks_of(job.key) == [make_task(job)]
    assert again.events_of("") == [event]
    assert again.points_of(job.key) == [point]
    assert again.next_number("default", "mnist") == 2
    assert again.list_jobs(JobFilter()).total == 1
    again.close()


def test_closing_twice_is_harmless(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    store.close()


def test_the_files_are_for_their_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        store.commit(ChangeSet(jobs=(make_job(),)))
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["fairway.db", "fairway.db-shm", "fairway.db-wal", "fairway.journal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(before)
    store.close()


def test_a_file_open_to_others_is_closed_to_them(path: Path) -> None:
    SqliteStore(path).close()
    path.chmod(0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_write_ahead_log_is_on(store: SqliteStore) -> None:
    def pragma(name: str) -> object:
        return store._connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert (pragma("journal_mode"), pragma("synchronous"), pragma("busy_timeout")) == ("wal", 1, 5000)
    assert pragma("user_version") == schema.VERSION


# Faults


def test_what_cannot_be_stored_leaves_nothing_behind(store: SqliteStore) -> None:
    broken = replace(make_job(2), labels={"a": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        store.commit(ChangeSet(jobs=(make_job(1), broken), events=(RunEvent(1.0, "a/b", "x", ""),)))
    assert store.list_jobs(JobFilter()).total == 0
    assert store.events_of("") == []
    store.commit(ChangeSet(jobs=(make_job(1),)))
    assert store.list_jobs(JobFilter()).total == 1


_CRASHER = """
import sys
from fairway.app.system import crash_point
from fairway.app.port.port import ChangeSet
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.conformance.store_conformance import make_job, make_task
store = SqliteStore(sys.argv[1])
job = make_job(store.next_number("default", "mnist"))
crash_point.arm(sys.argv[2])
if "number" in sys.argv[2]:
    store.next_number("default", "mnist")
store.commit(ChangeSet(jobs=(job,), tasks=(make_task(job),)))
"""


@pytest.mark.parametrize(
    ("place", "runs", "number"),
    [("store.commit:before", 0, 2), ("store.commit:after", 1, 2), ("store.number:before", 0, 2), ("store.number:after", 0, 3)],
)
def test_a_crash_leaves_all_or_nothing(path: Path, place: str, runs: int, number: int) -> None:
    done = subprocess.run([sys.executable, "-c", _CRASHER, str(path), place], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    store = SqliteStore(path)
    key = JobKey("default", "mnist-1")
    assert (store.get_job(key) is not None, len(store.tasks_of(key)), store.list_jobs(JobFilter()).total) == (
        bool(runs),
        runs,
        runs,
    )
    assert store.next_number("default", "mnist") == number
    store.close()


def test_a_full_disk_is_told_and_changes_nothing(store: SqliteStore, path: Path) -> None:
    job = make_job()
    store.commit(ChangeSet(jobs=(job,)))
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    many = tuple(make_job(number) for number in range(2, 400))
    with pytest.raises(UnavailableError) as problem:
        store.commit(ChangeSet(jobs=(replace(job, phase=JobPhase.RUNNING), *many)))
    assert "disk is full" in problem.value.message
    assert str(path) in problem.value.message
    assert "MiB" in problem.value.message
    assert "remove files below" in problem.value.fix
    store._connection.execute("PRAGMA max_page_count = 1000000")
    assert store.get_job(job.key) == job
    assert store.list_jobs(JobFilter()).total == 1
    store.commit(ChangeSet(jobs=many))
    assert store.list_jobs(JobFilter()).total == 399


def test_a_file_that_is_no_database_is_told(path: Path) -> None:
    path.write_bytes(b"this is a letter to my aunt, not a database" * 100)
    with pytest.raises(UnavailableError) as problem:
        SqliteStore(path)
    assert "is damaged" in problem.value.message
    assert "backup" in problem.value.fix
    assert path.read_bytes().startswith(b"this is a letter")


def test_a_file_damaged_in_the_middle_is_told(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(ChangeSet(jobs=tuple(make_job(number) for number in range(1, 200))))
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    with pytest.raises(UnavailableError, match="is damaged"):
        SqliteStore(path).commit(ChangeSet(jobs=tuple(make_job(number) for number in range(1, 400))))


def test_a_record_that_cannot_be_read_names_the_run(store: SqliteStore) -> None:
    store.commit(ChangeSet(jobs=(make_job(),)))
    store._connection.execute("UPDATE job SET body = x'93'")
    with pytest.raises(UnavailableError, match=r"default/mnist-1 .* cannot be read") as problem:
        store.get_job(JobKey("default", "mnist-1"))
    assert "fairway delete mnist-1" in problem.value.fix
    assert "begin anew" not in problem.value.fix


def test_one_run_that_cannot_be_read_hides_no_other_and_can_be_deleted(store: SqliteStore) -> None:
    good, bad = make_job(1), make_job(2)
    store.commit(ChangeSet(jobs=(good, bad), tasks=(make_task(good), make_task(bad))))
    store._connection.execute("UPDATE job SET body = x'c1' WHERE name = 'mnist-2'")
    assert store.active_jobs() == [good]
    assert store.list_jobs(JobFilter()).jobs == (good,)
    assert store.newest("default", "mnist") == good
    assert store.has_job(bad.key)
    (found,) = store.unreadable()
    assert (found.kind, found.key, found.subject) == ("job", ("default", "mnist-2"), "default/mnist-2")
    assert found.cause
    store.commit(ChangeSet(deleted=(bad.key,)))
    assert store.unreadable() == []
    assert not store.has_job(bad.key)


def test_one_task_that_cannot_be_read_hides_no_other(store: SqliteStore) -> None:
    job = make_job()
    store.commit(ChangeSet(jobs=(job,), tasks=(make_task(job, 0), make_task(job, 1))))
    store._connection.execute("UPDATE task SET body = x'c1' WHERE \"index\" = 0")
    assert store.tasks_of(job.key) == [make_task(job, 1)]
    assert [found.subject for found in store.unreadable()] == ["default/mnist-1/worker-0#0"]


@pytest.mark.parametrize("body", ["x'93'", "x''", "x'c1'"])
def test_a_queue_that_cannot_be_read_is_left_out_and_named(store: SqliteStore, body: str) -> None:
    store.commit(ChangeSet(queues=(Queue("other"), Queue("research"))))
    store._connection.execute(f"UPDATE queue SET body = {body} WHERE name = 'research'")
    assert store.queues() == [Queue("other")]
    assert [found.subject for found in store.unreadable()] == ["queue:research"]
    store.commit(ChangeSet(queues_deleted=("research",)))
    assert store.queues() == [Queue("other")]
    assert store.unreadable() == []


def test_a_tracked_record_that_cannot_be_read_is_left_out_and_named(store: SqliteStore) -> None:
    store.commit(ChangeSet(tracked=(Experiment("default", "1", "one"), Experiment("default", "2", "two"))))
    store._connection.execute("UPDATE tracked SET body = x'c1' WHERE name = '1'")
    assert [found.name for found in store.all_tracked(Experiment, "default")] == ["2"]
    assert store.tracked(Experiment, "default", "1") is None
    assert [found.subject for found in store.unreadable()] == ["experiment:default/1"]


def test_a_home_from_before_queues_keeps_its_runs_and_gets_queues(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:3])
        older.setattr(schema, "VERSION", 3)
        store = SqliteStore(path)
        store.commit(ChangeSet(jobs=(make_job(),)))
        store.close()
    store = SqliteStore(path)
    assert (store.queues(), store.memory()) == ([], None)
    assert store.active_jobs() == [make_job()]
    store.commit(ChangeSet(queues=(Queue("research"),), memory=b"m"))
    store.close()
    again = SqliteStore(path)
    assert (again.queues(), again.memory()) == ([Queue("research")], b"m")
    again.close()


def test_queues_and_memory_are_kept_with_the_rest_or_not_at_all(store: SqliteStore) -> None:
    wrong = RunEvent(1.0, "queue:research", "QueueCreated", object())  # type: ignore[arg-type]
    with pytest.raises(BugError):
        store.commit(ChangeSet(queues=(Queue("research"),), memory=b"m", events=(wrong,)))
    assert (store.queues(), store.memory()) == ([], None)


def test_a_newer_file_is_left_alone(path: Path) -> None:
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(UnavailableError, match="newer Fairway") as problem:
        SqliteStore(path)
    assert "upgrade" in problem.value.fix


def test_a_folder_in_the_way_is_told(path: Path) -> None:
    path.mkdir()
    with pytest.raises(UnavailableError, match="cannot be opened"):
        SqliteStore(path)


def test_a_lock_held_by_another_is_told(store: SqliteStore, path: Path) -> None:
    store._connection.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="locked by another process"):
        store.commit(ChangeSet(jobs=(make_job(),)))
    other.execute("ROLLBACK")
    other.close()
    store.commit(ChangeSet(jobs=(make_job(),)))


def test_a_migration_cut_short_is_done_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(path).close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE extra (a); SELECT broken"))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(Exception, match="broken"):
        SqliteStore(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:-1], "CREATE TABLE extra (a)"))
    store = SqliteStore(path)
    assert store._connection.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION
    store.close()


# Cost, in steps of SQLite's virtual machine: the same on every computer


def _steps(store: SqliteStore, act: Callable[[], object]) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    act()
    store._connection.set_progress_handler(count, 1)
    try:
        act()
    finally:
        store._connection.set_progress_handler(None, 1)
    return steps


def _costs(store: SqliteStore) -> dict[str, int]:
    middle = JobKey("default", "mnist-100")
    job = make_job(100, phase=JobPhase.SUCCEEDED)
    cursor = store.list_jobs(JobFilter(namespace="default", limit=50)).next
    acts: dict[str, Callable[[], object]] = {
        "list": lambda: store.list_jobs(JobFilter(namespace="default", limit=20)),
        "list all namespaces": lambda: store.list_jobs(JobFilter(limit=20)),
        "list second page": lambda: store.list_jobs(JobFilter(namespace="default", limit=20, before=cursor)),
        "list active": lambda: store.list_jobs(JobFilter(namespace="default", phases=("Pending", "Running"), limit=20)),
        "list failed": lambda: store.list_jobs(JobFilter(phases=("Failed",), limit=20)),
        "list series": lambda: store.list_jobs(JobFilter(namespace="default", series="mnist", limit=20)),
        "list series failed": lambda: store.list_jobs(
            JobFilter(namespace="default", series="mnist", phases=("Failed",), limit=20)
        ),
        "list label": lambda: store.list_jobs(JobFilter(labels={"rare": "yes"}, limit=20)),
        "get": lambda: store.get_job(middle),
        "newest": lambda: store.newest("default", "mnist"),
        "active": store.active_jobs,
        "tasks": lambda: store.tasks_of(middle),
        "events": lambda: store.events_of(str(middle)),
        "all events": lambda: store.events_of("", 20),
        "events of a namespace": lambda: store.events_in("default", 20),
        "points": lambda: store.points_of(middle),
        "commit": lambda: store.commit(ChangeSet(jobs=(job,), tasks=(make_task(job),))),
        "number": lambda: store.next_number("default", "mnist"),
    }
    return {name: _steps(store, act) for name, act in acts.items()}


def test_cost_does_not_grow_with_finished_runs(store: SqliteStore) -> None:
    def fill(begin: int, end: int) -> None:
        jobs = [make_job(number, phase=JobPhase.SUCCEEDED if number % 3 else JobPhase.FAILED) for number in range(begin, end)]
        jobs = [replace(job, labels={"rare": "yes"}) if job.number in (50, 60) else job for job in jobs]
        events = tuple(RunEvent(float(job.number), str(job.key), "Submitted", "") for job in jobs)
        points = tuple((job.key, MetricPoint(1.0, 1, {"loss": 1.0})) for job in jobs)
        store.commit(ChangeSet(tuple(jobs), tuple(make_task(job) for job in jobs), events, points))

    fill(1, 201)
    small = _costs(store)
    fill(201, 5001)
    large = _costs(store)
    # A deeper tree and more runs of one phase per page cost a little; 25 times as many runs must not matter.
    grown = {name: (small[name], steps) for name, steps in large.items() if steps > small[name] * 1.5 + 50}
    assert grown == {}
