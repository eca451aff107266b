"""The W3C trace context: which headers are accepted, and which are ignored."""

from __future__ import annotations

import pytest

from fairway.serving.span_tracer import is_wanted
from fairway.serving.trace_context import parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True)])
def test_a_parent_is_read(flags: str, sampled: bool) -> None:
    found = parse(f"00-{TRACE}-{SPAN}-{flags}".encode())
    assert found is not None
    assert (found.trace_id, found.span_id, found.sampled) == (TRACE, SPAN, sampled)
    assert str(found) == f"00-{TRACE}-{SPAN}-{int(sampled):02x}"


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse(f"cc-{TRACE}-{SPAN}-01-what-comes".encode()) is not None


@pytest.mark.parametrize(
    "value",
    [
        b"", b"00", f"ff-{TRACE}-{SPAN}-01".encode(), f"00-{TRACE}-{SPAN}-01-more".encode(), f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(), f"00-{TRACE.upper()}-{SPAN}-01".encode(), f"00-{TRACE}-{SPAN}-1".encode(),
        b"\xff" * 55, b"0" * 10_000,
    ],
)  # fmt: skip
def test_what_is_malformed_counts_as_none(value: bytes) -> None:
    assert parse(value) is None
    assert parse(None) is None


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
    ],
)
def test_traces_are_asked_for_by_the_standard_variables(environment: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environment) is wanted
