"""Saving and finding checkpoints, and when to save."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fairway.runtime import checkpoint, checkpoint_folder


@pytest.fixture(autouse=True)
def _fresh_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_pace", checkpoint._CheckpointSchedule())


def save(step: int, text: str = "weights", keep: int | None = None, **meta: Any) -> None:
    with checkpoint.save(step, keep=keep, **meta) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "model.bin").write_text(text)


def steps() -> list[int]:
    return [found.step for found in checkpoint.history()]


def test_before_the_first_save_there_is_none(in_job: Path) -> None:
    assert checkpoint.latest() is None


def test_what_was_saved_is_found(in_job: Path) -> None:
    save(123, epoch=4)
    latest = checkpoint.latest(deep=True)
    assert latest is not None
    assert (latest.step, latest.world_size, latest.meta) == (123, 1, {"epoch": 4})
    assert latest.path == in_job / "checkpoints" / "step-000000000123"
    assert (latest.path / "inner" / "model.bin").read_text() == "weights"
    assert (in_job / "checkpoints" / "latest").read_text().strip() == "step-000000000123"
    manifest = json.loads((latest.path / "manifest.json").read_text())
    digest = hashlib.sha256(b"weights").hexdigest()
    assert manifest["files"] == {"inner/model.bin": {"size": 7, "sha256": digest}}


def test_outside_of_a_job_it_lies_in_the_current_folder(tmp_path: Path) -> None:
    save(1)
    assert (tmp_path / "checkpoints" / "step-000000000001" / "manifest.json").exists()


def test_only_the_newest_are_kept(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 6):
        save(step)
    assert steps() == [5, 4, 3]
    monkeypatch.setenv("FAIRWAY_CHECKPOINT_KEEP", "2")
    save(6)
    assert steps() == [6, 5]
    save(7, keep=1)
    assert steps() == [7]
    assert sorted(path.name for path in (in_job / "checkpoints").iterdir()) == ["latest", "step-000000000007"]


def test_the_newest_save_wins_over_a_higher_step(in_job: Path) -> None:
    save(500)
    save(400)
    latest = checkpoint.latest()
    assert latest is not None
    assert latest.step == 400
    save(410, keep=2)
    assert steps() == [410, 400]


def test_the_same_step_again_replaces_it(in_job: Path) -> None:
    save(5, "old")
    save(5, "new!")
    latest = checkpoint.latest()
    assert latest is not None
    assert (latest.path / "inner" / "model.bin").read_text() == "new!"
    assert steps() == [5]


def test_an_error_in_the_block_changes_nothing(in_job: Path) -> None:
    save(1)
    before = sorted(path.name for path in (in_job / "checkpoints").iterdir())
    with pytest.raises(ZeroDivisionError), checkpoint.save(2) as folder:
        (folder / "model.bin").write_text("half")
        _ = 1 / 0
    assert sorted(path.name for path in (in_job / "checkpoints").iterdir()) == before
    assert steps() == [1]


@pytest.mark.parametrize("damage", ["shorter", "gone", "manifest"])
def test_a_damaged_one_is_passed_over_for_the_one_before(in_job: Path, damage: str) -> None:
    save(1)
    save(2)
    newest = in_job / "checkpoints" / "step-000000000002"
    if damage == "shorter":
        (newest / "inner" / "model.bin").write_text("we")
    elif damage == "gone":
        (newest / "inner" / "model.bin").unlink()
    else:
        (newest / "manifest.json").write_text('{"step": 2')
    latest = checkpoint.latest()
    assert latest is not None
    assert latest.step == 1


def test_changed_bytes_of_the_same_size_are_seen_when_asked_for(in_job: Path) -> None:
    save(1)
    save(2)
    (in_job / "checkpoints" / "step-000000000002" / "inner" / "model.bin").write_text("WEIGHTS")
    quick, deep = checkpoint.latest(), checkpoint.latest(deep=True)
    assert quick is not None
    assert deep is not None
    assert (quick.step, deep.step) == (2, 1)


def test_a_link_is_refused_because_its_content_would_be_missing(in_job: Path) -> None:
    with pytest.raises(ValueError, match=r"'big.bin' is a link"), checkpoint.save(1) as folder:
        (folder / "big.bin").symlink_to("/etc/hostname")
    assert steps() == []


@pytest.mark.parametrize(("step", "meta", "kind"), [(-1, {}, ValueError), (1, {"a": object()}, TypeError)])
def test_a_mistake_in_the_call_is_told_before_anything_is_written(
    in_job: Path, step: int, meta: dict[str, Any], kind: type
) -> None:
    with pytest.raises(kind), checkpoint.save(step, **meta):
        pytest.fail("the block must not run")
    assert list((in_job / "checkpoints").iterdir()) == []


def test_keep_0_is_refused(in_job: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        save(1, keep=0)


def test_other_ranks_save_nothing(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_RANK", "1")
    save(1)
    assert list((in_job / "checkpoints").iterdir()) == []


def enter_as(rank: int, monkeypatch: pytest.MonkeyPatch, world: int = 2) -> None:
    monkeypatch.setenv("FAIRWAY_RANK", str(rank))
    monkeypatch.setenv("FAIRWAY_WORLD_SIZE", str(world))


def save_part(step: int, rank: int, timeout: float = 60.0) -> None:
    with checkpoint.save(step, sharded=True, timeout=timeout) as folder:
        (folder / f"part-{rank}.bin").write_text(f"part {rank}")


def test_a_sharded_save_holds_the_parts_of_all_ranks(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(1, monkeypatch)
    save_part(7, 1)
    assert steps() == []
    enter_as(0, monkeypatch)
    save_part(7, 0)
    latest = checkpoint.latest(deep=True)
    assert latest is not None
    assert latest.world_size == 2
    assert sorted(path.name for path in latest.path.iterdir()) == ["manifest.json", "part-0.bin", "part-1.bin"]


def test_a_sharded_save_waits_for_the_last_rank(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(0, monkeypatch)
    publisher = threading.Thread(target=save_part, args=(7, 0))
    publisher.start()
    marks = in_job / "checkpoints" / ".tmp-step-000000000007@0.0" / ".ranks"
    deadline = time.monotonic() + 30
    while not (marks / "0").exists():
        assert time.monotonic() < deadline
        publisher.join(0.01)
    assert steps() == []
    (marks.parent / "part-1.bin").write_text("part 1")
    (marks / "1").touch()
    publisher.join(30)
    assert steps() == [7]


def test_a_rank_that_never_comes_is_named(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(0, monkeypatch, world=3)
    with pytest.raises(checkpoint.IncompleteError, match=r"ranks \[1, 2\] did not finish"):
        save_part(7, 0, timeout=0.0)
    assert list((in_job / "checkpoints").iterdir()) == []


def test_a_part_left_by_an_earlier_attempt_does_not_count(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(1, monkeypatch)
    save_part(7, 1)
    monkeypatch.setenv("FAIRWAY_ATTEMPT", "1")
    enter_as(0, monkeypatch)
    with pytest.raises(checkpoint.IncompleteError):
        save_part(7, 0, timeout=0.0)
    save(8)
    assert [path.name for path in (in_job / "checkpoints").iterdir() if path.name.startswith(".tmp")] == []


def test_a_rank_whose_folder_was_given_up_hears_of_it(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_as(1, monkeypatch)
    with pytest.raises(FileNotFoundError), checkpoint.save(7, sharded=True) as folder:
        (folder / "part-1.bin").write_text("part 1")
        checkpoint_folder.discard(folder)
        folder.mkdir()
    enter_as(0, monkeypatch)
    with pytest.raises(checkpoint.IncompleteError):
        save_part(7, 0, timeout=0.0)


def test_should_checkpoint_follows_the_interval(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(checkpoint, "_pace", checkpoint._CheckpointSchedule())
    assert not checkpoint.should_checkpoint(1)
    now[0] += 1e9
    assert not checkpoint.should_checkpoint(1), "the document says nothing of an interval"
    monkeypatch.setenv("FAIRWAY_CHECKPOINT_EVERY", "300")
    assert checkpoint.should_checkpoint(1)
    assert not checkpoint.should_checkpoint(2)
    now[0] += 299
    assert not checkpoint.should_checkpoint(3)
    now[0] += 1
    assert checkpoint.should_checkpoint(4)
    now[0] += 299
    save(4)
    now[0] += 1
    assert not checkpoint.should_checkpoint(5), "a save starts the interval anew"


def test_should_checkpoint_when_somebody_asks(in_job: Path) -> None:
    assert not checkpoint.should_checkpoint()
    request = in_job / "shared" / "checkpoint-now"
    request.touch()
    assert checkpoint.should_checkpoint()
    assert not checkpoint.should_checkpoint()
    later = request.stat().st_mtime_ns + 1_000_000
    os.utime(request, ns=(later, later))
    assert checkpoint.should_checkpoint()


def test_should_checkpoint_once_before_the_end(in_job: Path) -> None:
    (in_job / "attempt" / "stop").touch()
    assert checkpoint.should_checkpoint()
    assert not checkpoint.should_checkpoint()


def test_rank_0_decides(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_RANK", "1")
    (in_job / "attempt" / "stop").touch()
    assert not checkpoint.should_checkpoint()


@pytest.mark.parametrize("step", [-1, 2**63, 10**400])
def test_a_step_out_of_range_is_a_mistake_with_its_fix(in_job: Path, step: int) -> None:
    with pytest.raises(ValueError, match=r"is out of range; count from 0 to 2\*\*63 - 1"), checkpoint.save(step):
        pass
    assert checkpoint.latest() is None


@pytest.mark.timeout(30)
def test_a_manifest_that_holds_up_or_makes_no_sense_is_passed_over(in_job: Path) -> None:
    with checkpoint.save(1) as folder:
        (folder / "model.bin").write_text("one")
    root = checkpoint.directory()
    contents = ('{"step": true}', '{"step": 1e400}', "[" * 100_000, '{"step": ' + "9" * 5000 + "}", "null", "\ud800")
    for number, content in enumerate(contents, start=2):
        (root / f"step-{number:012d}").mkdir()
        (root / f"step-{number:012d}" / "manifest.json").write_text(content, errors="surrogatepass")
    (root / "step-000000000090").mkdir()
    os.mkfifo(root / "step-000000000090" / "manifest.json")
    (root / "step-000000000091").mkdir()
    (root / "step-000000000091" / "manifest.json").symlink_to("/dev/zero")
    latest = checkpoint.latest(deep=True)
    assert latest is not None
    assert latest.step == 1
    with checkpoint.save(2):
        pass
    assert [one.step for one in checkpoint.history()] == [2, 1]


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_a_file_is_damage(in_job: Path) -> None:
    with checkpoint.save(1) as folder:
        (folder / "empty.bin").write_text("")
    path = checkpoint.directory() / "step-000000000001" / "empty.bin"
    path.unlink()
    os.mkfifo(path)
    assert checkpoint.latest(deep=True) is None
