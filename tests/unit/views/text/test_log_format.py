"""Lines of several tasks on one screen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.views.text.log_format import LogMerger, LogStamper


def test_whole_lines_carry_their_task() -> None:
    mixer = LogMerger(["worker-0", "ps-0"])
    assert mixer.feed("worker-0", b"one\ntwo\n") == b"worker-0 | one\nworker-0 | two\n"
    assert mixer.feed("ps-0", b"three\n") == b"ps-0     | three\n"


def test_a_line_in_pieces_stays_one_line() -> None:
    mixer = LogMerger(["a", "b"])
    assert mixer.feed("a", b"hel") == b""
    assert mixer.holding
    assert mixer.feed("b", b"other\n") == b"b | other\n"
    assert mixer.feed("a", b"lo\n") == b"a | hello\n"
    assert not mixer.holding


def test_an_unfinished_line_is_passed_on_when_nothing_comes() -> None:
    mixer = LogMerger(["a", "b"])
    mixer.feed("a", b"name? ")
    assert mixer.flush() == b"a | name? "
    assert mixer.flush() == b""
    assert mixer.feed("a", b"more") == b"more"
    assert mixer.feed("b", b"x\n") == b"\nb | x\n"
    assert mixer.feed("a", b" rest\n") == b"a |  rest\n"


def test_progress_bars_are_passed_on_at_once() -> None:
    mixer = LogMerger(["a", "b"])
    assert mixer.feed("a", b" 10%\r") == b"a |  10%\r"
    assert mixer.feed("a", b" 20%\r") == b"a |  20%\r"
    assert mixer.feed("b", b"x\n") == b"\nb | x\n"
    assert mixer.feed("a", b" 30%\r\n") == b"a |  30%\r\n"


def test_each_task_has_its_colour() -> None:
    mixer = LogMerger(["a", "b"], colour=True)
    assert mixer.feed("a", b"x\n") == b"\x1b[36ma | \x1b[0mx\n"
    assert mixer.feed("b", b"x\n") == b"\x1b[33mb | \x1b[0mx\n"


def test_a_task_that_nobody_announced_is_shown_too() -> None:
    assert LogMerger(["a"]).feed("late-1", b"x\n") == b"late-1 | x\n"


def test_an_endless_line_is_not_kept() -> None:
    mixer = LogMerger(["a"])
    assert len(mixer.feed("a", b"x" * 100_000)) > 100_000
    assert not mixer.holding


pieces = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.text("xy\n", min_size=1, max_size=6), st.booleans()), max_size=30
)


@given(pieces)
def test_nothing_is_lost_and_order_stays(given: list[tuple[str, str, bool]]) -> None:
    mixer, out = LogMerger(["a", "b", "c"]), b""
    said = dict.fromkeys("abc", "")
    for task, text, rest in given:
        out += mixer.feed(task, text.encode())
        said[task] += text
        if rest:
            out += mixer.flush()
    out += mixer.flush()
    for task, text in said.items():
        shown = [line[4:] for line in out.decode().split("\n") if line.startswith(f"{task} | ")]
        # A line that was interrupted by another task shows as two; the content is the same.
        assert "".join(shown) == text.replace("\n", "")


def test_each_line_begins_with_its_time() -> None:
    stamper = LogStamper()
    assert stamper.feed(b"one\ntwo", 0.0) == b"1970-01-01T00:00:00.000Z one\n1970-01-01T00:00:00.000Z two"
    assert stamper.feed(b" more\nthree\n", 1.5) == b" more\n1970-01-01T00:00:01.500Z three\n"
    assert stamper.feed(b"at the end", None) == b"1970-01-01T00:00:01.500Z at the end"


def test_a_progress_bar_keeps_its_time_in_front() -> None:
    stamper = LogStamper()
    at = b"1970-01-01T00:00:02.000Z "
    assert stamper.feed(b" 10%\r 20%\r", 2.0) == at + b" 10%\r" + at + b" 20%\r"
    assert stamper.feed(b"\nnext\r\n", 2.0) == b"\n" + at + b"next\r\n"


@given(st.lists(st.binary(max_size=8), max_size=8))
def test_times_add_and_take_nothing_else(pieces: list[bytes]) -> None:
    stamper = LogStamper()
    stamped = b"".join(stamper.feed(piece, 0.0) for piece in pieces)
    assert stamped.replace(b"1970-01-01T00:00:00.000Z ", b"") == b"".join(pieces)
    assert stamped.count(b"1970") == len(b"".join(pieces).splitlines())
