"""Parsing and formatting quantities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.units import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("300ms", 0.3), ("90", 90), ("1w", 604_800), (".5", 0.5)],
)
def test_lengths_of_time(text, value):
    assert quantity.seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "5 m", "m", "-5s", "5y", "1.5.5", "5m3", "9" * 31, "٣s", "1e3", "5s\n"])
def test_no_length_of_time(text):
    with pytest.raises(ValueError, match="not a duration"):
        quantity.seconds(text)


@pytest.mark.parametrize(
    ("text", "value"), [("512Mi", 512 * 2**20), ("2Gi", 2**31), ("1G", 10**9), ("1024", 1024), ("0.5Ki", 512), ("1GiB", 2**30)]
)
def test_memory(text, value):
    assert quantity.byte_count(text) == value


@pytest.mark.parametrize(("text", "value"), [("500m", 0.5), ("2", 2), ("0.25", 0.25), ("1k", 1000)])
def test_amounts(text, value):
    assert quantity.number(text) == value


@given(st.text(max_size=40) | st.from_regex(r"[0-9.]{0,400}[A-Za-z]{0,3}", fullmatch=True))
def test_any_text_is_a_finite_number_or_refused(text):
    for parse in (quantity.seconds, quantity.byte_count, quantity.number):
        try:
            assert 0 <= parse(text) < float("inf")
        except ValueError:
            pass


def test_shown_again():
    assert quantity.show_bytes(1.5 * 2**30) == "1.5 GiB"
    assert [quantity.show_seconds(span) for span in (0.85, 12, 200, 7500, 352_800)] == ["850ms", "12s", "3m20s", "2h5m", "4d2h"]
    assert [quantity.show_number(value) for value in (2.0, 0.25)] == ["2", "0.25"]


@pytest.mark.parametrize(
    ("parse", "text"),
    [(quantity.number, "9" * 20), (quantity.byte_count, "9999999999Pi"), (quantity.seconds, "9" * 20 + "d")],
)
def test_what_no_machine_could_count_is_refused(parse, text):
    with pytest.raises(ValueError, match="write less"):
        parse(text)
