"""Progress of operations that take a while."""

from __future__ import annotations

import pytest

from fairway.cli.terminal.progress_bar import ProgressBar


def test_what_takes_long_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    bar = ProgressBar(shown=True, clock=lambda: now[0])
    bar("fgd", 1, 4)
    assert capsys.readouterr().err == ""
    now[0] = 2.0
    bar("fgd", 2_000, 4_000)
    bar("fgd", 2_001, 4_000)
    bar.close()
    painted = capsys.readouterr().err
    assert painted.count("\r\x1b[K") == 2
    assert "50%  2,000 of 4,000" in painted
    assert "█" * 12 + "░" * 12 in painted


def test_where_nobody_looks_nothing_is_painted(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(shown=False, clock=iter([0.0, 100.0, 200.0]).__next__)
    bar("fgd", 1, 4)
    bar.close()
    assert capsys.readouterr().err == ""
