"""A crash between any two operations on the disk leaves a complete checkpoint to resume from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fairway.runtime import checkpoint, checkpoint_folder


class CrashError(BaseException):
    """The process crashes here; no code catches it."""


ACTS = ("rename", "replace", "fsync", "unlink", "rmdir")


def save(step: int, text: str) -> None:
    with checkpoint.save(step, keep=2) as folder:
        (folder / "model.bin").write_text(text)


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let no operation after the first `number` reach the disk, as if the process had crashed."""
    seen: list[str] = []

    def guard(name: str, act: Any) -> Any:
        def do(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            if len(seen) > number:
                raise CrashError
            return act(*args, **kwargs)

        return do

    for name in ACTS:
        monkeypatch.setattr(os, name, guard(name, getattr(os, name)))
    return seen


def acts_of_a_save(monkeypatch: pytest.MonkeyPatch, step: int) -> int:
    with monkeypatch.context() as patch:
        seen = crash_at(patch, 10_000)
        save(step, "counted")
    return len(seen)


@pytest.mark.parametrize("step", [3, 2], ids=["a new step", "the same step again"])
def test_a_crash_at_any_act_leaves_the_newest_or_the_one_before(in_job: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    save(1, "one")
    save(2, "two")
    total = acts_of_a_save(monkeypatch, step)
    assert total > 8
    for number in range(total):
        for path in list((in_job / "checkpoints").iterdir()):
            checkpoint_folder.discard(path) if path.is_dir() else path.unlink()
        save(1, "one")
        save(2, "two")
        with monkeypatch.context() as patch:
            crash_at(patch, number)
            with pytest.raises(CrashError):
                save(step, "three")
        latest = checkpoint.latest(deep=True)
        assert latest is not None, f"nothing left after a crash at act {number}"
        text = (latest.path / "model.bin").read_text()
        assert (latest.step, text) in {(2, "two"), (step, "three")}, f"act {number}"
        save(9, "after")
        assert checkpoint.history()[0].step == 9
        left = [path.name for path in (in_job / "checkpoints").iterdir() if path.name.startswith((".tmp", ".old", ".trash"))]
        assert left == [], f"act {number}"


def test_a_folder_that_a_live_writer_holds_is_left_alone(in_job: Path) -> None:
    root = in_job / "checkpoints"
    with checkpoint_folder.aside(root, 5, "", publisher=True) as busy:
        save(1, "one")
        assert busy.path.exists()
    assert not busy.path.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step": "1", "sequence": 1, "world_size": 1, "meta": {}, "files": {}}'])
def test_a_manifest_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert checkpoint_folder.read_manifest(tmp_path) is None
