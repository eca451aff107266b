"""The output of a single task is printed unchanged; lines of several tasks never mix."""

from __future__ import annotations

import pytest

from fairway.cli.terminal.output_printer import PATIENCE, PlainPrinter, PrefixPrinter


@pytest.fixture
def printed() -> list[bytes]:
    return []


def test_one_task_is_printed_byte_for_byte(printed: list[bytes]) -> None:
    plain = PlainPrinter(printed.append)
    for piece in (b"half", b"\r50%\xff", b"\n"):
        plain.add("worker-0", piece, 0.0)
    plain.tick(9.0)
    plain.close()
    assert printed == [b"half", b"\r50%\xff", b"\n"]


def test_lines_of_several_tasks_never_mix(printed: list[bytes]) -> None:
    several = PrefixPrinter(printed.append, width=9)
    several.add("worker-0", b"one ", 0.0)
    several.add("worker-10", b"ten\n", 0.0)
    several.add("worker-0", b"two\nthr", 0.0)
    several.add("worker-0", b"ee\n", 0.0)
    assert b"".join(printed) == b"worker-10 | ten\nworker-0  | one two\nworker-0  | three\n"


def test_a_question_is_shown_after_a_while(printed: list[bytes]) -> None:
    several = PrefixPrinter(printed.append)
    several.add("worker-0", b"(Pdb) ", 1.0)
    several.tick(1.0 + PATIENCE / 2)
    assert printed == []
    several.tick(1.0 + PATIENCE)
    several.add("worker-1", b"hi\n", 2.0)
    several.add("worker-0", b"p x\n", 2.0)
    assert b"".join(printed) == b"worker-0 | (Pdb) \nworker-1 | hi\nworker-0 | p x\n"


def test_the_rest_of_a_shown_line_follows_it(printed: list[bytes]) -> None:
    several = PrefixPrinter(printed.append)
    several.add("worker-0", b"name? ", 1.0)
    several.tick(2.0)
    several.add("worker-0", b"ada\nhello\n", 3.0)
    assert b"".join(printed) == b"worker-0 | name? ada\nworker-0 | hello\n"


def test_a_progress_bar_is_printed_as_it_ended(printed: list[bytes]) -> None:
    several = PrefixPrinter(printed.append)
    for percent in (b"\r 1%", b"\r50%", b"\r100%"):
        several.add("worker-0", percent, 1.0)
        several.tick(9.0)
    several.add("worker-0", b"\n", 2.0)
    several.add("worker-0", b"windows\r\n", 2.0)
    assert b"".join(printed) == b"worker-0 | 100%\nworker-0 | windows\n"


def test_what_is_left_is_printed_at_the_end(printed: list[bytes]) -> None:
    several = PrefixPrinter(printed.append)
    several.add("worker-0", b"no end", 1.0)
    several.close()
    several.close()
    assert b"".join(printed) == b"worker-0 | no end\n"


def test_each_task_has_its_colour(printed: list[bytes]) -> None:
    several = PrefixPrinter(printed.append, colour=True)
    several.add("worker-0", b"a\n", 0.0)
    several.add("worker-1", b"b\n", 0.0)
    several.add("worker-0", b"c\n", 0.0)
    first, second, third = b"".join(printed).splitlines()
    assert first.startswith(b"\x1b[36mworker-0 | \x1b[0m")
    assert second.startswith(b"\x1b[33mworker-1 | \x1b[0m")
    assert third.startswith(b"\x1b[36m")


def test_a_line_without_end_is_not_held_for_ever(printed: list[bytes]) -> None:
    several = PrefixPrinter(printed.append)
    several.add("worker-0", b"x" * 70_000, 0.0)
    several.add("worker-0", b"y\n", 0.0)
    assert b"".join(printed) == b"worker-0 | " + b"x" * 70_000 + b"y\n"
