"""The terminal that renders the pictures of the README."""

from __future__ import annotations

import runpy
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "terminal-picture"
PICTURE = runpy.run_path(str(SCRIPT))


def shown(text: str) -> list[str]:
    screen = PICTURE["Screen"]()
    screen.feed(text)
    return ["".join(row.get(at, (" ", ""))[0] for at in range(max(row, default=-1) + 1)) for row in screen.rows]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("10%\r20%", ["20%"]),
        ("a long line\rshort\x1b[K", ["short"]),
        ("one\r\ntwo\r\n\x1b[1A\x1b[2Knew", ["one", "new", ""]),
        ("one\r\ntwo\r\n\x1b[2A\x1b[Jgone", ["gone"]),
        ("\x1b[?25l\x1b[32mgreen\x1b[0m\x1b]0;title\x07", ["green"]),
        ("ab\x1b[2Cc\x1b[1Dd", ["ab  d"]),
        ("x" * 101, ["x" * 100, "x"]),
    ],
)
def test_the_screen_shows_what_a_terminal_would(text: str, rows: list[str]) -> None:
    assert shown(text) == rows


def test_a_real_command_becomes_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    subprocess.run([sys.executable, SCRIPT, out, "printf '\\033[1;32m<done>\\033[0m'; test -t 1 && echo ' terminal'"], check=True)
    drawn = xml.dom.minidom.parse(str(out))
    words = [text.firstChild.data for text in drawn.getElementsByTagName("text")]
    assert "<done>" in words
    assert " terminal" in words
