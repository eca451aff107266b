"""Files that grow while they are read."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from fairway.runtime import growing, tfevents
from fairway.runtime.growing import EventFile, GrowingFile, GrowingFolder

RECORDED = (Path(__file__).parent / "fixtures" / "tensorboard" / "tensor-scalars.tfevents").read_bytes()


def lines(file: GrowingFile) -> list[tuple[int, bytes]]:
    return list(file.new_lines())


def test_lines_as_they_are_finished(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = GrowingFile(path)
    assert lines(file) == []
    path.write_bytes(b"one\ntw")
    assert lines(file) == [(0, b"one")]
    path.write_bytes(b"one\ntwo\r\nthree\rfour")
    assert lines(file) == [(4, b"two"), (9, b"three")]
    assert lines(file) == []


def test_a_file_that_was_emptied_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = GrowingFile(path)
    path.write_bytes(b"a long line\n")
    lines(file)
    path.write_bytes(b"new\n")
    assert lines(file) == [(0, b"new")]


def test_one_look_takes_a_part_of_a_long_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (growing.READ_LIMIT + 10) + b"\nlast\n")
    file = GrowingFile(tmp_path / "log")
    # A line that no look could hold is cut, and what follows is found all the same.
    assert [len(line) for _, line in lines(file)] == [growing.READ_LIMIT]
    assert [line for _, line in lines(file)] == [b"x" * 10, b"last"]


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", tfevents.masked_checksum(length)) + data + b"\0\0\0\0"


def test_a_record_that_no_look_could_hold_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    image = record(b"\x2a" + b"i" * growing.EVENT_READ_LIMIT)
    path.write_bytes(RECORDED + image[:-1])
    file = EventFile(path)
    assert len(list(file.new_scalars())) == 6
    assert list(file.new_scalars()) == []
    path.write_bytes(RECORDED + image + RECORDED)
    found = [scalars for _ in range(3) for scalars in file.new_scalars()]
    assert len(found) == 6
    assert file.offset == path.stat().st_size
    assert not file.damaged


def test_after_damage_a_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    path.write_bytes(RECORDED + b"garbage that is no record")
    file = EventFile(path)
    assert len(list(file.new_scalars())) == 6
    assert file.damaged
    path.write_bytes(RECORDED + b"garbage that is no record" + RECORDED)
    assert list(file.new_scalars()) == []


def test_a_folder_is_listed_again_when_names_may_have_come(tmp_path: Path) -> None:
    folder = GrowingFolder(tmp_path)
    os.utime(tmp_path, (1.0, 1.0))
    assert folder.changed()
    assert not folder.changed()
    (tmp_path / "new").touch()
    assert folder.changed()
    assert folder.names() == ["new"]


def test_a_folder_changed_just_now_is_looked_at_again(tmp_path: Path) -> None:
    folder = GrowingFolder(tmp_path)
    os.utime(tmp_path)
    # Something else may appear within the same tick of the file system's clock.
    assert folder.changed()
    assert folder.changed()


def test_a_folder_that_is_not_there_has_not_changed(tmp_path: Path) -> None:
    folder = GrowingFolder(tmp_path / "gone")
    assert not folder.changed()
    assert folder.names() == []
