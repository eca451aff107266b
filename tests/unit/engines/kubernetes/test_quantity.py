"""Quantities as Kubernetes writes them."""

from __future__ import annotations

import pytest

from fairway.engines.kubernetes import quantity


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("1", 1000), ("500m", 500), ("0.5", 500), ("1500u", 2), ("1n", 1), (".1", 100), ("2k", 2_000_000), ("1e3", 1_000_000)],
)
def test_cores_are_thousandths_rounded_up(text: str, thousandths: int) -> None:
    assert quantity.milli(text) == thousandths


@pytest.mark.parametrize(
    ("text", "ones"),
    [("1Ki", 1024), ("1Gi", 1 << 30), ("1.5Gi", 3 << 29), ("1G", 10**9), ("123", 123), ("100m", 1), ("1E", 10**18), ("1E2", 100)],
)
def test_memory_is_bytes(text: str, ones: int) -> None:
    assert quantity.whole(text) == ones


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1KiB", "--1", "1e"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.whole(text)
