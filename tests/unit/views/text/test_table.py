"""Tables: aligned, without empty columns, never wider than the page."""

from __future__ import annotations

from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from fairway.views.text.table import Column, TextPage, display_width, shorten, table

COLUMNS = (Column("NAME", always=True), Column("N", right=True), Column("PHASE", phase=True), Column("DETAIL", loose=True))


def test_columns_are_aligned_and_empty_ones_left_out() -> None:
    rows = [["mnist-7", "2", "", "step 12"], ["b", "-", "", ""]]
    assert table(COLUMNS, rows) == dedent("""\
        NAME     N  DETAIL
        mnist-7  2  step 12
        b        -
        """)


def test_wide_characters_count_twice() -> None:
    assert table(COLUMNS, [["你好", "1", "", "x"], ["ab", "1", "", "y"]]) == dedent("""\
        NAME  N  DETAIL
        你好  1  x
        ab    1  y
        """)


def test_what_programs_print_cannot_move_the_cursor() -> None:
    text = table(COLUMNS, [["a", "", "", "one\x1b[2Jtwo\nthree\rfour\x00"]])
    assert text.splitlines()[1] == "a     one [2Jtwo three four"


def test_loose_columns_are_shortened_to_the_page() -> None:
    rows = [["mnist-7", "2", "Running", "a long story about what it is doing now"]]
    text = table(COLUMNS, rows, TextPage(40))
    assert text.splitlines()[1] == "mnist-7  2  Running  a long story about…"


def test_phases_have_colours_only_when_asked() -> None:
    rows = [["a", "", "Failed", ""], ["b", "", "Running", ""]]
    assert "\x1b" not in table(COLUMNS, rows)
    lines = table(COLUMNS, rows, TextPage(colour=True)).splitlines()
    assert lines == ["\x1b[1mNAME\x1b[0m  \x1b[1mPHASE  \x1b[0m", "a     \x1b[31mFailed \x1b[0m", "b     \x1b[32mRunning\x1b[0m"]


def test_a_table_without_rows_is_its_titles() -> None:
    assert table(COLUMNS, []) == "NAME\n"


@given(st.text(max_size=30), st.integers(1, 20))
def test_shortened_text_fits(text: str, width: int) -> None:
    short = shorten(text, width)
    assert display_width(short) <= width
    assert short == text or short.endswith("…")


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=60)), min_size=1, max_size=4), st.integers(30, 80))
def test_no_line_is_wider_than_the_page(cells: list[tuple[str, str]], width: int) -> None:
    columns = (Column("A", loose=True), Column("B", loose=True))
    text = table(columns, [list(row) for row in cells], TextPage(width))
    assert all(display_width(line) <= width for line in text.split("\n"))
    assert text.count("\n") == len(cells) + 1
