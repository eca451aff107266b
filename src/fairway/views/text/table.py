"""Tables in one style: aligned columns, two spaces between, no lines.

Columns without any value are left out. A table wider than its page shortens its loose columns, the widest first; it never
wraps.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

_GAP = "  "
_LEAST = 12
"""Minimum width to which a column is shortened."""
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")

_PAINT = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
_PHASES = {
    "Running": "green", "Succeeded": "green", "Starting": "cyan", "Placed": "cyan", "Restarting": "yellow", "Pending": "yellow",
    "Stopping": "yellow", "Failed": "red", "Lost": "red", "Stopped": "dim",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextPage:
    """The properties of the output for which text is rendered."""

    width: int = 0
    """Columns of the terminal; 0 for no limit."""
    colour: bool = False
    wide: bool = False
    """Whether to show more columns and details."""

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, if colours are enabled."""
        return f"\x1b[{_PAINT[colour]}m{text}\x1b[0m" if self.colour and colour and text else text

    def phase(self, text: str) -> str:
        """Return a phase in its colour."""
        return self.paint(text, _PHASES.get(text.split(" ", 1)[0], ""))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = False
    """Right-aligned, for numbers."""
    loose: bool = False
    """May be shortened."""
    always: bool = False
    """Shown even when all its cells are empty."""
    phase: bool = False
    """Holds phases, which have colours."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], page: TextPage = TextPage(), indent: str = "") -> str:
    """Return the table as text; each line ends with a newline."""
    lines = [[_clean(cell) for cell in row] for row in rows]
    shown = [index for index, column in enumerate(columns) if column.always or any(row[index] not in ("", "-") for row in lines)]
    widths = {
        index: max(display_width(columns[index].title), *(display_width(row[index]) for row in lines), 0) for index in shown
    }
    if page.width:
        _fit([columns[index] for index in shown], widths, shown, page.width - len(indent))
    title = [page.paint(_cell(columns[index].title, widths[index], columns[index]), "bold") for index in shown]
    text = [_join(indent, title)]
    for row in lines:
        cells = []
        for index in shown:
            cell = _cell(row[index], widths[index], columns[index])
            cells.append(page.phase(cell) if columns[index].phase else cell)
        text.append(_join(indent, cells))
    return "".join(text)


def display_width(text: str) -> int:
    """Return the number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def shorten(text: str, width: int) -> str:
    """Return the text cut to a number of columns, with `…` if it was cut."""
    if display_width(text) <= width:
        return text
    characters, used = [], 1
    for char in text:
        used += _columns(char)
        if used > width:
            break
        characters.append(char)
    return "".join(characters).rstrip() + "…"


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _clean(cell: str) -> str:
    """Return one line without control characters: output of programs must not move the user's cursor."""
    return _UNSEEN.sub(" ", cell).strip()


def _fit(columns: Sequence[Column], widths: dict[int, int], kept: Sequence[int], width: int) -> None:
    excess = sum(widths.values()) + len(_GAP) * (len(kept) - 1) - width
    loose = [index for index, column in zip(kept, columns, strict=True) if column.loose]
    while excess > 0 and loose:
        widest = max(loose, key=lambda index: widths[index])
        if widths[widest] <= _LEAST:
            return
        others = [widths[index] for index in loose if index != widest]
        cut = min(excess, widths[widest] - max(_LEAST, *others, 0) or 1)
        widths[widest] -= max(1, cut)
        excess -= max(1, cut)


def _cell(text: str, width: int, column: Column) -> str:
    text = shorten(text, width)
    blank = " " * (width - display_width(text))
    return blank + text if column.right else text + blank


def _join(indent: str, cells: Sequence[str]) -> str:
    return (indent + _GAP.join(cells)).rstrip() + "\n"
