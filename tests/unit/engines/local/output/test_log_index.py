"""Finding positions in an index without reading all of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.engines.local.output.log_index import LogIndex


def written(path: Path, entries: list[tuple[int, float]], rest: str = "") -> LogIndex:
    path.write_text("".join(f"{offset} {time:.3f}\n" for offset, time in entries) + rest)
    return LogIndex(path)


def test_places_and_times(tmp_path: Path) -> None:
    index = written(tmp_path / "out-0.index", [(10, 100.0), (25, 101.0), (900, 105.0)])
    assert [index.length_before(moment) for moment in (99.0, 100.0, 100.5, 101.0, 102.0, 105.0, 106.0)] == [
        0,
        0,
        10,
        10,
        25,
        25,
        900,
    ]
    assert [index.time_of(offset) for offset in (0, 9, 10, 24, 25, 899, 900)] == [100.0, 100.0, 101.0, 101.0, 105.0, 105.0, None]
    assert list(index.entries_after(10)) == [(25, 101.0), (900, 105.0)]


@pytest.mark.parametrize("rest", ["", "9", "900 ", "900 105.0"])
def test_a_last_line_half_written_is_not_there(tmp_path: Path, rest: str) -> None:
    index = written(tmp_path / "out-0.index", [(10, 100.0), (25, 101.0)], rest)
    assert index.length_before(1e9) == 25
    assert index.time_of(25) is None
    assert list(index.entries_after(0)) == [(10, 100.0), (25, 101.0)]


def test_a_missing_index_knows_nothing(tmp_path: Path) -> None:
    index = LogIndex(tmp_path / "none")
    assert index.length_before(5.0) == 0
    assert index.time_of(0) is None
    assert list(index.entries_after(0)) == []


@given(steps=st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 1000)), max_size=60), asked=st.integers(0, 10**7))
def test_bisecting_agrees_with_a_list(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], asked: int) -> None:
    offset, time = 0, 0
    entries: list[tuple[int, float]] = []
    for grown, passed in steps:
        offset, time = offset + grown, time + passed
        entries.append((offset, float(time)))
    index = written(tmp_path_factory.getbasetemp() / "property.index", entries)
    lengths = [length for length, _ in entries]
    times = [moment for _, moment in entries]
    moment = float(asked % 60_000)
    before = bisect_left(times, moment)
    assert index.length_before(moment) == (lengths[before - 1] if before else 0)
    after = bisect_right(lengths, asked)
    assert index.time_of(asked) == (times[after] if after < len(times) else None)
    assert list(index.entries_after(asked)) == entries[after:]
