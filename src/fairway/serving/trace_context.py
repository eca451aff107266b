"""The W3C trace context: the header `traceparent`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The caller's span, as the header `traceparent` identifies it."""

    trace_id: str
    span_id: str
    sampled: bool = False

    def __str__(self) -> str:
        """Return the value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parse(value: bytes | None) -> TraceParent | None:
    """Parse a `traceparent`; return None when it is absent or malformed.

    Of a later version of the format the fields of version 00 are read.
    """
    if value is None or len(value) > 512:
        return None
    match = _PARENT.fullmatch(value.decode("latin-1").strip())
    if match is None:
        return None
    version, trace, span, flags, suffix = match.groups()
    if version == "ff" or (version == "00" and suffix) or not int(trace, 16) or not int(span, 16):
        return None
    return TraceParent(trace, span, bool(int(flags, 16) & _SAMPLED))
