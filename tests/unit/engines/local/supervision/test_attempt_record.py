"""Records are written atomically."""

from __future__ import annotations

import os
from pathlib import Path

from fairway.engines.local.supervision.attempt_record import EXIT, ExitRecord, read_record, write_record


def test_a_record_appears_whole_and_under_its_name(tmp_path: Path) -> None:
    record = ExitRecord(str(tmp_path))
    assert read_record(str(tmp_path), EXIT) is None
    record.write({"code": 3, "tail": "ü\x00" * 4096})
    assert read_record(str(tmp_path), EXIT) == {"code": 3, "tail": "ü\x00" * 4096}
    assert os.listdir(tmp_path) == [EXIT]


def test_the_room_of_a_record_is_taken_at_the_start(tmp_path: Path) -> None:
    record = ExitRecord(str(tmp_path))
    (aside,) = tmp_path.iterdir()
    size = aside.stat().st_size
    record.write({"code": 0})
    assert (tmp_path / EXIT).stat().st_size == size > 4096


def test_a_record_that_is_not_needed_leaves_no_trace(tmp_path: Path) -> None:
    ExitRecord(str(tmp_path)).discard()
    assert os.listdir(tmp_path) == []


def test_what_is_no_record_reads_as_none(tmp_path: Path) -> None:
    for text in ("", "   ", "[1]", '{"half'):
        (tmp_path / "exit.json").write_text(text)
        assert read_record(str(tmp_path), EXIT) is None
    write_record(str(tmp_path), EXIT, {"a": 1})
    assert read_record(str(tmp_path), EXIT) == {"a": 1}
