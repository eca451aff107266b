"""Positions in a log, compared with those of a simple reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.engines.local.output import log_file
from fairway.engines.local.output.log_file import LogFile
from fairway.engines.local.output.pattern import compile_pattern


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use blocks of a few bytes, so that everything crosses their borders."""
    monkeypatch.setattr(log_file, "BLOCK", 7)


def opened(path: Path, data: bytes) -> LogFile:
    path.write_bytes(data)
    return LogFile(path)


texts = st.lists(st.sampled_from([b"", b"a", b"bb", b"match", b"a much longer line than a block", b"\r50%\r100%"]), max_size=12)


@pytest.mark.usefixtures("small_blocks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=texts, ended=st.booleans(), count=st.integers(0, 8), grep=st.booleans())
def test_a_tail_is_the_last_lines(tmp_path: Path, lines: list[bytes], ended: bool, count: int, grep: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    file = opened(tmp_path / "out-0.log", data)
    try:
        start, found = file.tail(count, 0, len(data), compile_pattern("match") if grep else None)
    finally:
        file.close()
    whole = [line + b"\n" for line in data.split(b"\n")[:-1]]
    whole += [last] if (last := data.split(b"\n")[-1]) else []
    wanted = [line for line in whole if not grep or b"match" in line]
    assert found == min(count, len(wanted))
    assert [line for line in re.findall(rb"[^\n]*\n|[^\n]+", data[start:]) if not grep or b"match" in line] == wanted[-count:] * (
        count > 0
    )


@pytest.mark.usefixtures("small_blocks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=texts, cuts=st.lists(st.integers(0, 60), max_size=5))
def test_pieces_are_whole_lines_and_all_of_them(tmp_path: Path, lines: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(lines)
    offsets = sorted({min(cut, len(data)) for cut in cuts} - {0})
    (tmp_path / "out-0.index").write_text("".join(f"{offset} {time}.0\n" for time, offset in enumerate(offsets, 1)))
    file = opened(tmp_path / "out-0.log", data)
    try:
        for pieces in (list(file.pieces(0, len(data))), list(file.timed_pieces(0, len(data)))):
            assert b"".join(piece for _, piece in pieces) == data
            assert all(piece.endswith(b"\n") for _, piece in pieces[:-1])
            assert [time for time, _ in pieces] == sorted(time for time, _ in pieces)
    finally:
        file.close()


def test_a_line_without_an_end_is_cut_rather_than_kept(tmp_path: Path) -> None:
    file = opened(tmp_path / "out-0.log", b"x" * 2_000_000)
    sizes = [len(piece) for _, piece in file.pieces(0, file.size())]
    file.close()
    assert sum(sizes) == 2_000_000
    assert max(sizes) <= log_file.BLOCK + 64 * 1024


def test_nothing_but_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "out-0.log"
    with path.open("wb") as sparse:
        sparse.truncate(1_000_000)
    file = LogFile(path)
    assert file.first() == 1_000_000
    file.close()
