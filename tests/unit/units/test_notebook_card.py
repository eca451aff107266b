"""Values as displayed in Python and in notebooks."""

from __future__ import annotations

import msgspec

from fairway.state.phase import JobPhase
from fairway.units.notebook_card import NotebookView


class Part(NotebookView, frozen=True):
    name: str
    step: int | None = None
    time: float | None = None


class Whole(NotebookView, frozen=True):
    name: str
    phase: JobPhase
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    later: str | msgspec.UnsetType = msgspec.UNSET


def test_a_value_is_one_short_line() -> None:
    assert repr(Whole("mnist-7", JobPhase.RUNNING, {"long": "x" * 1000})) == "Whole(mnist-7, Running)"
    assert repr(Part("a\nb", 3)) == "Part(a b, 3)"
    assert repr(Part("x" * 100)) == f"Part({'x' * 57}...)"


def test_lists_are_counted_and_begun() -> None:
    parts = tuple(Part(f"p{number}") for number in range(5))
    assert repr(Whole("w", JobPhase.RUNNING, parts=parts)) == "Whole(w, Running, 5 parts: p0, p1, p2, ...)"


def test_a_card_escapes_everything() -> None:
    mean = "<script>alert('1')</script>&\""
    card = Whole(mean, JobPhase.RUNNING, parts=(Part(mean),))._repr_html_()
    assert "<script" not in card
    assert card.count("&lt;script&gt;") == 2
    assert "Running" in card


def test_a_card_shows_times_and_is_bounded() -> None:
    parts = tuple(Part(f"p{number}", 1, 0.0) for number in range(200))
    card = Whole("w", JobPhase.RUNNING, parts=parts)._repr_html_()
    assert "1970-01-01 00:00:00 UTC" in card
    assert "and 150 more" in card
    assert "p49<" in card
    assert "p50<" not in card


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    assert "1e+300" in Part("a", 1, 1e300)._repr_html_()


def test_it_is_a_value_as_before() -> None:
    one = Whole("w", JobPhase.RUNNING, parts=(Part("p", 1),))
    assert msgspec.json.decode(msgspec.json.encode(one), type=Whole) == one
