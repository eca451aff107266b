"""One style of table for everything: aligned columns, two spaces between, no lines.

Columns in which no row has anything are left out. A table wider than its page shortens its loosest columns; it never wraps.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

_GAP = "  "
_LEAST = 12
"""A column is not shortened below this."""
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")

_PAINT = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
_PHASES = {
    "Running": "green", "Succeeded": "green", "Starting": "cyan", "Placed": "cyan", "Restarting": "yellow", "Pending": "yellow",
    "Stopping": "yellow", "Failed": "red", "Lost": "red", "Stopped": "dim",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """What the text is written for."""

    width: int = 0
    """Columns of the terminal; 0 means that nothing is shortened."""
    colour: bool = False
    wide: bool = False
    """Whether to tell more."""

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, where colours are wanted."""
        return f"\x1b[{_PAINT[colour]}m{text}\x1b[0m" if self.colour and colour and text else text

    def phase(self, text: str) -> str:
        """A phase in the colour that it has everywhere."""
        return self.paint(text, _PHASES.get(text.split(" ", 1)[0], ""))


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    title: str
    right: bool = False
    """Numbers stand at the right."""
    loose: bool = False
    """May be shortened."""
    always: bool = False
    """Shown even when all its cells are empty."""
    phase: bool = False
    """Holds phases, which have colours."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], page: Page = Page(), indent: str = "") -> str:
    """The table as text, each line ended by a newline."""
    lines = [[_clean(cell) for cell in row] for row in rows]
    kept = [place for place, column in enumerate(columns) if column.always or any(row[place] not in ("", "-") for row in lines)]
    widths = {place: max(display_width(columns[place].title), *(display_width(row[place]) for row in lines), 0) for place in kept}
    if page.width:
        _fit([columns[place] for place in kept], widths, kept, page.width - len(indent))
    title = [page.paint(_cell(columns[place].title, widths[place], columns[place]), "bold") for place in kept]
    text = [_join(indent, title)]
    for row in lines:
        cells = []
        for place in kept:
            cell = _cell(row[place], widths[place], columns[place])
            cells.append(page.phase(cell) if columns[place].phase else cell)
        text.append(_join(indent, cells))
    return "".join(text)


def display_width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def shorten(text: str, width: int) -> str:
    """At most so many columns; what was cut off shows as `…`."""
    if display_width(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _columns(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _clean(cell: str) -> str:
    """One line without control characters: what programs print must not move the cursor of who looks."""
    return _UNSEEN.sub(" ", cell).strip()


def _fit(columns: Sequence[Column], widths: dict[int, int], kept: Sequence[int], width: int) -> None:
    over = sum(widths.values()) + len(_GAP) * (len(kept) - 1) - width
    loose = [place for place, column in zip(kept, columns, strict=True) if column.loose]
    while over > 0 and loose:
        widest = max(loose, key=lambda place: widths[place])
        if widths[widest] <= _LEAST:
            return
        others = [widths[place] for place in loose if place != widest]
        cut = min(over, widths[widest] - max(_LEAST, *others, 0) or 1)
        widths[widest] -= max(1, cut)
        over -= max(1, cut)


def _cell(text: str, width: int, column: Column) -> str:
    text = shorten(text, width)
    blank = " " * (width - display_width(text))
    return blank + text if column.right else text + blank


def _join(indent: str, cells: Sequence[str]) -> str:
    return (indent + _GAP.join(cells)).rstrip() + "\n"
