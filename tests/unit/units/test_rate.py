from __future__ import annotations

import pytest

from fairway.units import rate


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [("100/s", 100.0, "100/s"), ("100", 100.0, "100/s"), ("60/m", 1.0, "1/s"), ("30/m", 0.5, "30/m"),
     ("1000/h", 1000 / 3600, "1000/h"),
     ("0.5/s", 0.5, "30/m"), (" 10/d ", 10 / 86400, "10/d")],
)  # fmt: skip
def test_rates_are_read_and_shown(text: str, value: float, shown: str) -> None:
    assert rate.per_second(text) == pytest.approx(value)
    assert rate.show(value) == shown


@pytest.mark.parametrize("text", ["", "0", "-1/s", "x", "1/y", "1e9", "2000000/s", "nan", "10/ s", "٣/s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        rate.per_second(text)


def test_no_rate_is_nothing() -> None:
    assert rate.show(0.0) == ""
