"""gRPC conventions shared by the router and the replicas: status codes mapped to and from HTTP, and timeouts."""

from __future__ import annotations

import re

from fairway.serving.http2.hpack import Header, encode

GRPC = b"application/grpc"

OF_HTTP = {
    400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 409: 10, 411: 3, 412: 9, 413: 8, 414: 3, 415: 12, 417: 3, 422: 3, 429: 8,
    431: 8, 499: 1, 500: 13, 501: 12, 502: 14, 503: 14, 504: 4, 505: 12,
}  # fmt: skip
"""gRPC status by HTTP status; all others map to UNKNOWN."""
TO_HTTP = {
    0: 200, 1: 499, 2: 500, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400, 12: 404, 13: 500, 14: 503,
    15: 500, 16: 401,
}  # fmt: skip
"""HTTP status by gRPC status: 500 and above for server errors, below for client errors."""
UNKNOWN, DEADLINE_EXCEEDED, UNAVAILABLE = 2, 4, 14
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}
_LONGEST = 1024
"""Maximum bytes of a `grpc-message`."""

OK_TRAILERS = encode([(b"grpc-status", b"0")])


def of_http(status: int) -> int:
    """Return the gRPC status for an HTTP status."""
    return OF_HTTP.get(status, UNKNOWN)


def to_http(status: bytes) -> int:
    """Return the HTTP status for a gRPC status."""
    return TO_HTTP.get(int(status), 500) if status.isdigit() and len(status) < 3 else 500


def read_timeout(value: bytes) -> float | None:
    """Parse a `grpc-timeout` into seconds; None when it is malformed."""
    match = _TIMEOUT.fullmatch(value)
    return int(match[1]) * _SECONDS[match[2]] if match else None


def is_grpc(content_type: bytes) -> bool:
    """Whether a content type is that of gRPC."""
    return content_type.startswith(GRPC) and content_type[len(GRPC) : len(GRPC) + 1] in (b"", b"+", b";")


def status_lines(status: int, message: str) -> list[Header]:
    """Return the headers with the status of a call."""
    headers = [(b"grpc-status", b"%d" % status)]
    if message:
        headers.append((b"grpc-message", escaped(message)))
    return headers


def escaped(message: str) -> bytes:
    """Percent-encode a message for a header: all bytes but printable ASCII, and `%` itself, become %XX."""
    raw = message.encode()[:_LONGEST]
    return b"".join([bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in raw])
