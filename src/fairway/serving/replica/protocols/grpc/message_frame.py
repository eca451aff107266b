"""Framing of gRPC messages."""

from __future__ import annotations

import zlib

from fairway.serving.replica.request_error import RequestError, bad

PREFIX = 5
"""Bytes before each message: the compression flag and the length."""
OK_HEADERS = ((b"grpc-status", b"0"),)
CONTENT_TYPE = b"application/grpc"
BINARY = b"0"
"""Used in place of the JSON length for a body that has no JSON."""
_GZIP = b"\x1f\x8b"


def frame(message: bytes) -> bytes:
    """Return a message with its prefix."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def is_compressed(body: bytes, head_length: bytes | None) -> bool:
    """Whether a body is a compressed message, which may take far more memory than its bytes."""
    return head_length == BINARY and body[:1] == b"\x01"


def unframed(body: bytes, most: int) -> bytes | memoryview:
    """Return the only message of a body, decompressed to at most `most` bytes."""
    if len(body) < PREFIX or PREFIX + int.from_bytes(body[1:PREFIX], "big") != len(body):
        raise bad("the request is not a single gRPC message", "send one message, with its length before it")
    return opened(body[0], memoryview(body)[PREFIX:], most)


def opened(flag: int, message: memoryview, most: int) -> bytes | memoryview:
    """Return a message, decompressed with gzip or deflate if its flag is set."""
    if not flag:
        return message
    if flag != 1:
        raise bad("the prefix of a message is not valid in gRPC")
    decompressor = zlib.decompressobj(31 if message[:2] == _GZIP else 15)
    try:
        content = decompressor.decompress(message, most + 1)
    except zlib.error as error:
        text = f"the message is compressed, but neither with gzip nor with deflate: {error}"
        raise RequestError(501, text, fix="send it uncompressed") from None
    if len(content) > most:
        text = f"the message is larger than {most} bytes when it is decompressed"
        raise RequestError(413, text, fix="send fewer rows at once, or start the replica with a larger --max-body")
    if not decompressor.eof:
        raise bad("the compressed message is cut short")
    return content
