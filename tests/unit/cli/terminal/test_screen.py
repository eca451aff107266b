"""Output above, status below: what a terminal shows after a series of writes."""

from __future__ import annotations

import re

import pytest

from fairway.cli.terminal.screen import TerminalScreen, cut


class Terminal:
    """Interprets what the screen uses: new lines, carriage returns, cursor up, erase below, colours."""

    def __init__(self) -> None:
        self.rows = [""]
        self.row = self.column = 0
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|.", data.decode(), re.DOTALL):
            self.take(part)

    def take(self, part: str) -> None:
        if part == "\n":
            self.row, self.column = self.row + 1, 0
            self.rows += [""] * (self.row + 1 - len(self.rows))
        elif part == "\r":
            self.column = 0
        elif part.endswith("A") and len(part) > 1:
            self.row -= int(part[2:-1])
        elif part == "\x1b[J":
            self.rows = [*self.rows[: self.row], self.rows[self.row][: self.column]]
        elif len(part) == 1:
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + part + line[self.column + 1 :]
            self.column += 1

    @property
    def shown(self) -> list[str]:
        return [row.rstrip() for row in self.rows]


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def screen(terminal: Terminal) -> TerminalScreen:
    return TerminalScreen(terminal.write, lambda: 40)


def test_the_status_stays_below_the_output(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.status(["mnist-1 Running", "loss 0.5"])
    screen.output(b"one\n")
    screen.output(b"two\nthree\n")
    assert terminal.shown == ["one", "two", "three", "mnist-1 Running", "loss 0.5"]
    screen.status(["mnist-1 Running", "loss 0.4", "worker-0 Running"])
    assert terminal.shown == ["one", "two", "three", "mnist-1 Running", "loss 0.4", "worker-0 Running"]
    screen.status(["done"])
    assert terminal.shown == ["one", "two", "three", "done"]
    screen.close()
    assert terminal.shown == ["one", "two", "three", ""]


def test_a_question_hides_the_status_until_its_line_is_over(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.status(["status"])
    screen.output(b"(Pdb) ")
    screen.status(["status"])
    assert terminal.shown == ["(Pdb)"]
    assert terminal.column == 6
    screen.output(b"p x\n")
    assert terminal.shown == ["(Pdb) p x", "status"]


def test_a_progress_bar_paints_over_itself(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.status(["status"])
    for percent in (1, 50, 100):
        screen.output(f"\r{percent}%".encode())
        screen.status(["status"])
        assert terminal.shown == [f"{percent}%"]
    screen.output(b"\n")
    assert terminal.shown == ["100%", "status"]


def test_each_piece_of_output_is_one_write_and_unchanged(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.status(["status"])
    terminal.writes.clear()
    screen.output(b"\x1b[31mred\x1b[0m\n")
    assert len(terminal.writes) == 1
    assert b"\x1b[31mred\x1b[0m\n" in terminal.writes[0]


def test_without_a_status_the_output_is_all(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.output(b"raw \xc3\xa9")
    screen.output(b"")
    assert terminal.writes == [b"raw \xc3\xa9"]


def test_words_of_ours_begin_on_a_line_of_their_own(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.status(["status"])
    screen.output(b"half a li")
    screen.words("stopping")
    assert terminal.shown == ["half a li", "stopping", "status"]


def test_closing_ends_an_unfinished_line(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.output(b"half a li")
    screen.close()
    assert terminal.shown == ["half a li", ""]


def test_a_status_never_wraps(screen: TerminalScreen, terminal: Terminal) -> None:
    screen.status(["x" * 200])
    assert [len(row) for row in terminal.shown] == [39]
    assert terminal.shown[0].endswith("…")


@pytest.mark.parametrize(("text", "width", "short"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("abc", 0, "abc"), ("abc", 1, "…")])
def test_cut(text: str, width: int, short: str) -> None:
    assert cut(text, width) == short
