"""Reading files while they grow."""

from __future__ import annotations

import contextlib
import math
import os
import struct
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.runtime import appended_file, event_record
from fairway.runtime.appended_file import AppendedFile, EventFile, PolledFolder
from fairway.runtime.event_folder import joined
from fairway.runtime.regular_file import open_regular, read_regular

RECORDED = (Path(__file__).parent / "fixtures" / "tensorboard" / "tensor-scalars.tfevents").read_bytes()


def lines(file: AppendedFile) -> list[tuple[int, bytes]]:
    return list(file.new_lines())


def test_lines_as_they_are_finished(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = AppendedFile(path)
    assert lines(file) == []
    path.write_bytes(b"one\ntw")
    assert lines(file) == [(0, b"one")]
    path.write_bytes(b"one\ntwo\r\nthree\rfour")
    assert lines(file) == [(4, b"two"), (9, b"three")]
    assert lines(file) == []


def test_a_file_that_was_emptied_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = AppendedFile(path)
    path.write_bytes(b"a long line\n")
    lines(file)
    path.write_bytes(b"new\n")
    assert lines(file) == [(0, b"new")]


def test_one_look_takes_a_part_of_a_long_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (appended_file.READ_LIMIT + 10) + b"\nlast\n")
    file = AppendedFile(tmp_path / "log")
    # A line longer than the read limit is split, and the lines after it are still found.
    assert [len(line) for _, line in lines(file)] == [appended_file.READ_LIMIT]
    assert [line for _, line in lines(file)] == [b"x" * 10, b"last"]


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", event_record.masked_checksum(length)) + data + b"\0\0\0\0"


def test_a_record_that_no_look_could_hold_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    image = record(b"\x2a" + b"i" * appended_file.EVENT_READ_LIMIT)
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


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "closed file"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "metrics-0.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("one\n")
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
    refused: list[tuple[str, str]] = []
    file = AppendedFile(path, offset=3)
    assert list(file.new_lines(lambda *what: refused.append(what))) == []
    ((found, reason),) = refused
    assert found == "file"
    assert reason.startswith("metrics-0.jsonl cannot be read: ")


@pytest.mark.timeout(20)
def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "pipe")


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(b"12345")
    assert read_regular(tmp_path / "memory", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "memory", 4)


def event(moment: bytes) -> bytes:
    """Return an event with these bytes as its time."""
    value = b"\x0a\x06\x0a\x01x\x15" + b"\x00\x00\x80?"
    value = b"\x0a" + bytes([len(value) - 2]) + value[2:]
    return record(moment + b"\x2a" + bytes([len(value)]) + value)


def test_a_field_of_another_length_than_its_type_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    path.write_bytes(event(b"\x09" + struct.pack("<d", 5.0)) + event(b"\x0a\x03abc"))
    file = EventFile(path)
    refused: list[str] = []
    found = list(file.new_scalars(lambda _kind, why: refused.append(why)))
    assert [(one.time, one.values) for one in found] == [(5.0, {"x": 1.0})]
    assert file.damaged
    assert "x.tfevents is damaged near byte" in refused[0]


@given(st.binary(max_size=300))
def test_no_bytes_in_a_record_raise_anything_but_damage(data: bytes) -> None:
    with contextlib.suppress(event_record.DamagedEventFileError):
        event_record.scalars(data)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=3), st.binary(max_size=60))
def test_lengths_of_any_size_are_passed_over_or_damage(lengths: list[int], rest: bytes) -> None:
    heads = [struct.pack("<Q", length) for length in lengths]
    content = b"".join(head + struct.pack("<I", event_record.masked_checksum(head)) for head in heads) + rest
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tfevents"
        path.write_bytes(content)
        file = EventFile(path)
        for _ in range(3):
            list(file.new_scalars())
        assert 0 <= file.offset <= len(content)


@pytest.mark.parametrize(
    ("moment", "tag", "kept"),
    [(5.0, "x", True), (math.nan, "x", False), (1e300, "x", False), (5.0, "n" * 100, True), (5.0, "n" * 251, False)],
)
def test_events_that_cannot_be_stored_are_refused(tmp_path: Path, moment: float, tag: str, kept: bool) -> None:
    inner = b"\x0a" + varint(len(tag)) + tag.encode() + b"\x15\x00\x00\x80?"
    value = b"\x0a" + varint(len(inner)) + inner
    (tmp_path / "x.tfevents").write_bytes(record(b"\x09" + struct.pack("<d", moment) + b"\x2a" + varint(len(value)) + value))
    refused: list[str] = []
    found = list(joined(EventFile(tmp_path / "x.tfevents"), "", lambda _kind, why: refused.append(why)))
    assert found == ([(5.0, 0, {tag: 1.0})] if kept else [])
    assert bool(refused) is not kept


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def test_a_shape_of_many_dimensions_costs_nothing() -> None:
    huge = b"\x12\x0a\x08" + b"\xff" * 8 + b"\x7f"
    shape = huge * 20_000
    begun = time.process_time()
    assert not event_record._is_single(shape)
    assert time.process_time() - begun < 0.5


def test_a_folder_is_listed_again_when_names_may_have_come(tmp_path: Path) -> None:
    folder = PolledFolder(tmp_path)
    os.utime(tmp_path, (1.0, 1.0))
    assert folder.changed()
    assert not folder.changed()
    (tmp_path / "new").touch()
    assert folder.changed()
    assert folder.names() == ["new"]


def test_a_folder_changed_just_now_is_looked_at_again(tmp_path: Path) -> None:
    folder = PolledFolder(tmp_path)
    os.utime(tmp_path)
    # Another file may appear within the same tick of the file system's clock.
    assert folder.changed()
    assert folder.changed()


def test_a_folder_that_is_not_there_has_not_changed(tmp_path: Path) -> None:
    folder = PolledFolder(tmp_path / "gone")
    assert not folder.changed()
    assert folder.names() == []
