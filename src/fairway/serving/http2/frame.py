"""HTTP/2 frames (RFC 9113, sections 4 and 6): their types, flags and encoding."""

from __future__ import annotations

import struct

from fairway.serving.http2.http2_error import Http2ErrorCode

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The connection preface, which a client sends first."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

FRAME_SIZE = 16_384
"""Maximum payload of a frame in bytes: what every endpoint must accept, and the most accepted here."""
WINDOW = 65_535
"""The initial flow-control window."""
LARGEST_WINDOW = (1 << 31) - 1
HEAD_SIZE = 9

HEAD = struct.Struct(">HBBBL")
"""The frame header: the length in two parts, type, flags, stream."""
_SETTING = struct.Struct(">HL")
_NUMBER = struct.Struct(">L")


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Encode a frame. The payload must not exceed what the peer accepts."""
    size = len(content)
    return HEAD.pack(size >> 8, size & 255, kind, flags, stream) + content


def settings(values: dict[int, int]) -> bytes:
    """Encode a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join([_SETTING.pack(*setting) for setting in values.items()]))


def read_settings(content: bytes) -> list[tuple[int, int]]:
    """Decode the identifiers and values of SETTINGS. The length must be a multiple of six."""
    return list(_SETTING.iter_unpack(content))


def window_update(stream: int, more: int) -> bytes:
    """Encode a WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(more))


def rst_stream(stream: int, code: Http2ErrorCode) -> bytes:
    """Encode a RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def goaway(last: int, code: Http2ErrorCode, reason: str = "") -> bytes:
    """Encode a GOAWAY frame."""
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + reason.encode()[:200])


def number(content: bytes) -> int:
    """Decode the 31-bit number in the payload of WINDOW_UPDATE, RST_STREAM and the like."""
    return int.from_bytes(content[:4], "big") & 0x7FFFFFFF


def header_frames(stream: int, block: bytes, *, ended: bool) -> bytes:
    """Encode a header block as HEADERS, followed by CONTINUATION when one frame is too small."""
    flags = END_STREAM if ended else 0
    if len(block) <= FRAME_SIZE:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[start : start + FRAME_SIZE] for start in range(0, len(block), FRAME_SIZE)]
    encoded = [frame(HEADERS, flags, stream, parts[0])]
    encoded += [frame(CONTINUATION, END_HEADERS if part is parts[-1] else 0, stream, part) for part in parts[1:]]
    return b"".join(encoded)
