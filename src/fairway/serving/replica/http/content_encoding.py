"""Content encodings of requests and answers: gzip and deflate, with bounds for memory and time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Generator
from typing import Any

from fairway.serving.replica.model.served_model import ReplicaResponse
from fairway.serving.replica.request_error import RequestError, bad

GZIP, DEFLATE = b"gzip", b"deflate"
_NAMES = {b"gzip": GZIP, b"x-gzip": GZIP, b"deflate": DEFLATE}
_ACCEPTED = ((b"accept-encoding", b"gzip, deflate"),)
STEP = 1 << 16
"""Maximum bytes that one step of decompression yields: a fraction of a millisecond."""
_MAGIC = b"\x1f\x8b"
_MOST_MEMBERS = 1024
"""Maximum members of one gzip body: each costs time, even an empty one."""

COMPRESSED_FROM = 8192
"""Minimum bytes of an answer for compression."""
_INLINE = 1 << 16
"""Maximum bytes of an answer compressed on the event loop's thread, which takes a millisecond at most."""
_MOST_AT_ONCE = 2
"""Maximum larger answers compressed concurrently; others are sent uncompressed."""
_LEVEL = 1


def request_encoding(value: bytes, before: bytes) -> bytes:
    """Return the encoding of a body from a header's value and the encoding `before` found in earlier headers; empty for none.

    Raises 415 for an unknown encoding and for more than one.
    """
    for token in value.lower().split(b","):
        name = token.strip()
        if name in (b"", b"identity"):
            continue
        if name not in _NAMES:
            message = f"content-encoding {name[:40].decode('latin-1')!r} is not supported"
            raise RequestError(415, message, fix="send gzip or deflate, or an uncompressed body", headers=_ACCEPTED)
        if before:
            raise RequestError(415, "the body is compressed twice", fix="compress it once", headers=_ACCEPTED)
        before = _NAMES[name]
    return before


def encoding_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the encoding of a body from all headers; empty for none."""
    encoding = b""
    for name, value in headers:
        if name == b"content-encoding":
            encoding = request_encoding(value, encoding)
    return encoding


def decompressed(body: bytes, encoding: bytes) -> Generator[bytes]:
    """Decompress a body into pieces of at most `STEP` bytes; raise 400 when the body is corrupt.

    A gzip body may have several members. `deflate` is the zlib format, or raw deflate, which some clients send. Each piece costs
    a bounded amount of work, so that the caller can stop at its own limit.
    """
    wbits = 31 if encoding == GZIP else 15 if _is_zlib(body) else -15
    position = 0
    for _ in range(_MOST_MEMBERS):
        position = yield from _member(body, position, zlib.decompressobj(wbits), encoding)
        rest = body[position : position + STEP]
        if encoding == GZIP and not rest.strip(b"\0") and len(rest) < STEP:  # zero padding, which gzip allows
            return
        if not rest:
            return
        if encoding != GZIP or not rest.startswith(_MAGIC):
            raise bad(
                f"{len(body) - position} bytes follow the end of the {encoding.decode()} body", "send nothing after the body"
            )
    raise bad(f"the gzip body has more than {_MOST_MEMBERS} members", "compress it in one piece")


def _member(body: bytes, at: int, inflate: Any, encoding: bytes) -> Generator[bytes, None, int]:
    """Decompress the member at this position of the body; return the position of its end."""
    chunk = b""
    try:
        while not inflate.eof:
            if not chunk:
                # One slice at a time, because zlib copies the input that it does not consume.
                chunk = body[at : at + STEP]
                at += len(chunk)
            piece = inflate.decompress(chunk, STEP)
            if not chunk and not piece and not inflate.eof:
                raise bad(f"the {encoding.decode()} body ends in the middle", "send the whole body")
            chunk = inflate.unconsumed_tail
            yield piece
    except zlib.error as error:
        message = f"the body is not valid {encoding.decode()}: {error}"
        raise bad(message, "compress it again, or send it without Content-Encoding") from None
    return at - len(inflate.unused_data)


def _is_zlib(body: bytes) -> bool:
    return len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0  # RFC 1950


_FRAMED = b"application/grpc"
"""Answers of this content type use an encoding of their own."""


def accepted(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the encoding that a client prefers for the answer; empty for none."""
    weights: dict[bytes, float] = {}
    for name, value in headers:
        if name == b"accept-encoding":
            for token in value.lower().split(b","):
                coding, _, parameter = token.partition(b";")
                weights[coding.strip()] = _weight(parameter)
    default = weights.get(b"*", 0.0)
    gzip, deflate = weights.get(GZIP, weights.get(b"x-gzip", default)), weights.get(DEFLATE, default)
    if max(gzip, deflate) <= 0.0:
        return b""
    return GZIP if gzip >= deflate else DEFLATE


def _weight(parameter: bytes) -> float:
    name, _, value = parameter.strip().partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


class AnswerCompressor:
    """Compresses answers for clients that accept it.

    Promises: an answer below `COMPRESSED_FROM` costs nothing. An answer of more than 64 KiB is compressed in a thread, at most
    two at a time; while both are busy, answers are sent uncompressed.
    """

    def __init__(self) -> None:
        self.running = 0
        """Number of answers being compressed in threads."""

    async def compress(self, answer: ReplicaResponse, headers: list[tuple[bytes, bytes]]) -> ReplicaResponse:
        """Return the answer, compressed if the client accepts it."""
        if len(answer.body) < COMPRESSED_FROM or answer.content_type.startswith(_FRAMED) or not (encoding := accepted(headers)):
            return answer
        if len(answer.body) <= _INLINE:
            return _compressed(answer, encoding)
        if self.running >= _MOST_AT_ONCE:
            return answer
        self.running += 1
        try:
            return await asyncio.to_thread(_compressed, answer, encoding)
        finally:
            self.running -= 1

    def start(self, answer: ReplicaResponse, headers: list[tuple[bytes, bytes]], done: Callable[[ReplicaResponse], None]) -> None:
        """Compress without a task: `done` gets the answer, now or later, on the event loop's thread."""
        encoding = b"" if answer.content_type.startswith(_FRAMED) else accepted(headers)
        if not encoding or (len(answer.body) > _INLINE and self.running >= _MOST_AT_ONCE):
            done(answer)
        elif len(answer.body) <= _INLINE:
            done(_compressed(answer, encoding))
        else:
            self.running += 1
            future = asyncio.get_running_loop().run_in_executor(None, _compressed, answer, encoding)

            def finish(found: asyncio.Future[ReplicaResponse]) -> None:
                self.running -= 1
                done(answer if found.cancelled() or found.exception() is not None else found.result())

            future.add_done_callback(finish)


def _compressed(answer: ReplicaResponse, encoding: bytes) -> ReplicaResponse:
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31 if encoding == GZIP else 15)
    body = deflate.compress(answer.body) + deflate.flush()
    headers = [*answer.headers, (b"content-encoding", encoding), (b"vary", b"accept-encoding")]
    return ReplicaResponse(body, answer.status, headers, answer.content_type)
