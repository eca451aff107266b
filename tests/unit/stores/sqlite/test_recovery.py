"""Whatever happens to the database file, its content is restored, and the damaged file is kept."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairway.app.port.port import ChangeSet, JobFilter, MetricPoint
from fairway.errors import UnavailableError
from fairway.state.event import RunEvent
from fairway.state.job import JobKey
from fairway.state.mlflow_record import Experiment
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.state.service import ServiceRecord
from fairway.stores.sqlite import schema
from fairway.stores.sqlite.backup import BackupFolder, kept_of
from fairway.stores.sqlite.recovery import OpenedStore, open_store
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.conformance.service_conformance import a_service
from fairway.testing.conformance.store_conformance import make_job, make_task

NOW = 1_700_000_000.0
SERVICE = ServiceRecord(a_service())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fairway.db"


def opened(path: Path, *, runs: bool = True, now: float = NOW) -> OpenedStore:
    return open_store(path, now, lambda: runs)


def fill(path: Path) -> None:
    """Create a home with a backup and later changes: a run that ended, one that was created, one that was deleted, and so on."""
    found = opened(path, runs=False)
    store = found.store
    for number in (1, 2, 3):
        assert store.next_number("default", "mnist") == number
    store.commit(
        ChangeSet(
            jobs=tuple(make_job(number, phase=JobPhase.RUNNING) for number in (1, 2, 3)),
            tasks=(make_task(make_job(1)),),
            queues=(Queue("old"), Queue("research")),
            events=tuple(RunEvent(1.0, "default/mnist-1", "Padding", "x" * 4000) for _ in range(60)),
        )
    )
    found.backups.take(NOW)
    store.commit(ChangeSet(jobs=(make_job(1, phase=JobPhase.SUCCEEDED),)))
    assert store.next_number("default", "mnist") == 4
    store.commit(ChangeSet(jobs=(make_job(4),), services=(SERVICE,), tracked=(Experiment("default", "7", "seven"),)))
    store.mark_deleted([JobKey("default", "mnist-2")])
    store.commit(
        ChangeSet(deleted=(JobKey("default", "mnist-2"),), queues_deleted=("old",), queues=(Queue("research", weight=3),))
    )
    store.close()


def check_all_there(store: SqliteStore) -> None:
    phases = {job.key.name: job.phase for job in store.list_jobs(JobFilter()).jobs}
    assert phases == {"mnist-1": JobPhase.SUCCEEDED, "mnist-3": JobPhase.RUNNING, "mnist-4": JobPhase.PENDING}
    assert store.list_jobs(JobFilter()).total == 3
    assert store.tasks_of(JobKey("default", "mnist-1")) == [make_task(make_job(1))]
    assert store.queues() == [Queue("research", weight=3)]
    assert store.services() == [SERVICE]
    assert store.tracked(Experiment, "default", "7") == Experiment("default", "7", "seven")
    assert store.was_deleted(JobKey("default", "mnist-2"))
    assert store.next_number("default", "mnist") == 5


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def write_text(path: Path) -> None:
    path.write_text("a letter, not a database\n" * 500)


def overwrite_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xa5" * 4096)


DAMAGE = {"missing": remove, "empty": empty, "damaged": truncate, "damaged ": write_text, "damaged  ": overwrite_page}


@pytest.mark.parametrize("cause", DAMAGE)
def test_a_lost_file_is_replaced_by_the_backup_and_the_journal(path: Path, cause: str) -> None:
    fill(path)
    DAMAGE[cause](path)
    before = path.read_bytes() if path.exists() else None
    found = opened(path)
    assert found.recovery is not None
    assert found.recovery.cause == cause.strip()
    assert found.recovery.backup
    assert found.recovery.replayed > 0
    assert any("metric points" in words for words in found.recovery.lost)
    if before is not None:
        assert Path(found.recovery.moved).read_bytes() == before, "what was found is kept"
    check_all_there(found.store)
    found.store.close()
    again = opened(path)
    again.store.close()
    assert again.recovery == found.recovery, "until everything was taken up, it is not over"
    again.settled()
    again = opened(path)
    again.store.close()
    assert again.recovery is None, "once is enough"


def test_an_older_copy_put_back_is_brought_up_to_date(path: Path, tmp_path: Path) -> None:
    found = opened(path, runs=False)
    found.store.commit(ChangeSet(jobs=(make_job(9),)))
    found.store.close()
    shutil.copy(path, tmp_path / "copy.db")
    found = opened(path)
    found.store.commit(ChangeSet(deleted=(JobKey("default", "mnist-9"),)))
    found.store.close()
    fill(path)
    shutil.copy(tmp_path / "copy.db", path)
    found = opened(path)
    assert found.recovery is not None
    assert found.recovery.cause == "older"
    jobs = {job.key.name for job in found.store.list_jobs(JobFilter()).jobs}
    assert jobs == {"mnist-1", "mnist-3", "mnist-4"}
    assert found.store.next_number("default", "mnist") == 5
    found.store.close()


def test_a_copy_from_before_the_oldest_backup_gives_way_to_the_newest(path: Path, tmp_path: Path) -> None:
    opened(path, runs=False).store.close()
    shutil.copy(path, tmp_path / "copy.db")
    fill(path)
    found = opened(path)
    found.store.journal.shorten(found.backups.floor())
    assert found.store.journal.floor > 0
    found.store.close()
    shutil.copy(tmp_path / "copy.db", path)
    found = opened(path)
    assert found.recovery is not None
    assert (found.recovery.cause, bool(found.recovery.backup)) == ("older", True)
    assert ".older-" in found.recovery.moved
    check_all_there(found.store)
    found.store.close()


def test_without_a_backup_the_journal_alone_brings_the_records_back(path: Path) -> None:
    fill(path)
    shutil.rmtree(path.parent / "backups")
    path.unlink()
    found = opened(path)
    assert found.recovery is not None
    assert "no good backup" in found.recovery.message
    assert {job.key.name for job in found.store.list_jobs(JobFilter()).jobs} == {"mnist-1", "mnist-3", "mnist-4"}
    assert found.store.next_number("default", "mnist") == 5
    found.store.close()


def test_a_damaged_backup_is_passed_over(path: Path) -> None:
    fill(path)
    found = opened(path)
    found.backups.take(NOW + 10)
    found.store.close()
    newest, older = found.backups.all()
    overwrite_page(found.backups.folder / newest.name)
    path.unlink()
    found = opened(path)
    assert found.recovery is not None
    assert found.recovery.backup == older.name
    check_all_there(found.store)
    found.store.close()


def test_a_new_home_is_begun_without_a_word(path: Path) -> None:
    found = opened(path, runs=False)
    assert found.recovery is None
    found.store.close()


def test_folders_beside_a_missing_file_are_noticed(path: Path) -> None:
    found = opened(path, runs=True)
    assert found.recovery is not None
    assert found.recovery.cause == "missing"
    found.store.close()


def test_a_log_whose_database_is_gone_is_kept(path: Path) -> None:
    fill(path)
    (path.parent / "fairway.db-wal").write_bytes(b"recent pages")
    path.unlink()
    found = opened(path)
    assert found.recovery is not None
    assert Path(found.recovery.moved).read_bytes() == b"recent pages"
    check_all_there(found.store)
    found.store.close()


def test_a_lock_or_a_right_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)

    def refuse(*_args: object, **_more: object) -> object:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(schema, "version_of", refuse)
        with pytest.raises(UnavailableError, match="cannot be read or written"):
            opened(path)
    assert not list(path.parent.glob("fairway.db.*"))
    found = opened(path)
    assert found.recovery is None
    check_all_there(found.store)
    found.store.close()


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UnavailableError, match="newer Fairway") as problem:
        opened(path)
    assert "upgrade" in problem.value.fix
    assert path.read_bytes() == before


def test_before_a_change_of_format_the_file_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-1])
        older.setattr(schema, "VERSION", schema.VERSION - 1)
        store = SqliteStore(path)
        store.commit(ChangeSet(jobs=(make_job(),)))
        store.close()
    found = opened(path)
    (backup,) = found.backups.all()
    assert backup.format == schema.VERSION - 1
    assert found.store.active_jobs() == [make_job()]
    found.store.close()


@pytest.mark.parametrize("kind", ["job", "queue", "service"])
def test_a_record_that_cannot_be_read_is_taken_from_the_journal_or_a_backup(path: Path, kind: str) -> None:
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {kind} SET body = x'c1'")
    connection.commit()
    connection.close()
    found = opened(path)
    assert found.recovery is not None
    assert found.recovery.cause == "unreadable"
    check_all_there(found.store)
    assert found.store.unreadable() == []
    found.store.close()


def test_the_end_of_a_journal_that_is_not_whole_is_kept_and_the_rest_counts(path: Path) -> None:
    fill(path)
    journal = path.with_suffix(".journal")
    whole = journal.stat().st_size
    with journal.open("ab") as file:
        file.write(b"\x07\x00\x00\x00half an entry")
    found = opened(path)
    assert journal.stat().st_size == whole
    (aside,) = path.parent.glob("fairway.journal.damaged-*")
    assert aside.read_bytes().endswith(b"half an entry")
    check_all_there(found.store)
    found.store.close()


def test_a_journal_that_is_gone_is_begun_anew(path: Path) -> None:
    fill(path)
    path.with_suffix(".journal").unlink()
    found = opened(path)
    assert found.recovery is None
    found.backups.take(NOW + 1)
    found.store.commit(ChangeSet(jobs=(make_job(8),)))
    found.store.close()
    path.unlink()
    found = opened(path)
    assert "mnist-8" in {job.key.name for job in found.store.list_jobs(JobFilter()).jobs}
    found.store.close()


def test_a_journal_that_was_shortened_says_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    found = opened(path)
    store = found.store
    for weight in range(1, 400):
        store.commit(ChangeSet(queues=(Queue("research", weight=weight),)))
    store.commit(ChangeSet(queues=(Queue("research", weight=3),)))
    before = path.with_suffix(".journal").stat().st_size
    monkeypatch.setattr("fairway.stores.sqlite.journal.LARGE", 1000)
    assert store.journal.large
    store.journal.shorten(found.backups.floor())
    assert path.with_suffix(".journal").stat().st_size < before / 3
    assert not store.journal.large, "it is not shortened over and over"
    store.close()
    path.unlink()
    found = opened(path)
    check_all_there(found.store)
    found.store.close()


def test_progress_alone_does_not_fill_the_journal(path: Path) -> None:
    found = opened(path, runs=False)
    store, job = found.store, make_job(phase=JobPhase.RUNNING)
    store.commit(ChangeSet(jobs=(job,)))
    size = path.with_suffix(".journal").stat().st_size
    for step in range(100):
        moved = replace(job, progress=replace(job.progress, step=step))
        store.commit(ChangeSet(jobs=(moved,), points=((job.key, MetricPoint(1.0, step, {"loss": 1.0})),)))
    assert path.with_suffix(".journal").stat().st_size == size
    store.close()


# Backups


def test_a_backup_is_whole_though_others_write_meanwhile(path: Path) -> None:
    fill(path)
    found = opened(path)
    store = found.store
    steps = 0

    def write(*_progress: int) -> None:
        nonlocal steps
        steps += 1
        assert steps < 1000, "the copy starts over at every write"
        store.commit(ChangeSet(jobs=(make_job(100 + steps),)))

    found.backups._step = write  # type: ignore[method-assign]
    backup = found.backups.take(NOW + 5)
    assert steps > 0
    connection = sqlite3.connect(found.backups.folder / backup.name)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("SELECT COUNT(*) FROM job").fetchone()[0] >= 3
    connection.close()
    assert {entry.name for entry in found.backups.folder.iterdir()} == {one.name for one in found.backups.all()}
    store.close()


def test_a_backup_of_a_damaged_file_is_refused_and_replaces_nothing(path: Path) -> None:
    fill(path)
    found = opened(path)
    before = found.backups.all()
    found.store.close()
    overwrite_page(path)
    with pytest.raises(UnavailableError):
        BackupFolder(path).take(NOW + 5)
    assert found.backups.all() == before
    assert not list(found.backups.folder.glob(".making*"))


def test_without_room_no_backup_is_made_and_none_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    backups = BackupFolder(path)
    before = backups.all()
    monkeypatch.setattr("fairway.stores.sqlite.backup.SPARE", 1 << 60)
    with pytest.raises(UnavailableError, match="MiB are free"):
        backups.take(NOW + 5)
    assert backups.all() == before


def test_which_backups_are_kept() -> None:
    quarters = [NOW - 900 * number for number in range(4 * 24 * 20)]
    kept = kept_of(quarters, NOW)
    assert len(kept) <= 3 + 6 + 7
    assert set(quarters[:3]) <= kept
    assert min(kept) <= NOW - 5 * 86400
    assert min(kept) >= NOW - 8 * 86400


def test_backups_have_a_bound_in_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    backups = BackupFolder(path)
    monkeypatch.setattr("fairway.stores.sqlite.backup.MOST_BYTES", 1)
    for number in range(5):
        backups.take(NOW + 1 + number)
    assert len(backups.all()) == 2


@pytest.fixture(autouse=True)
def _no_open_files() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 1
