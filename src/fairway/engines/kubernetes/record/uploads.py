"""The files that callers send for models and datasets: pieces of them, a few megabytes with each request.

A body is a line of JSON, `{"parts": [{"digest", "size", "offset", "length"}]}`, and then the bytes of all parts in that order.
A part without bytes asks how far its content has come; the answer says so for each.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any

import msgspec

from fairway.app.ports import Clock
from fairway.app.sent import Held, nothing_held
from fairway.errors import FairwayError, RefusedError, UnavailableError, UsageError
from fairway.registry.arriving import Arriving, Awaited, Standing
from fairway.registry.blobs import Blobs
from fairway.units.quantity import show_bytes

log = logging.getLogger("fairway.operator")

MOST_BYTES = 1 << 23
"""Bytes of all parts of a request."""
MOST_PARTS = 5000
LONGEST_LINE = 1 << 20
SPARE = 1 << 28
"""Bytes that stay free on the disk: the record needs room too."""
PATIENCE = 10.0
"""Seconds that a request compares content with its digest; the API server itself waits for sixty."""
AT_ONCE = 2
"""Requests that compare at the same time: others need threads, too."""
TIDY_EVERY = 3600.0
_BLOCK = 1 << 20

_Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some bytes of a content, or none."""

    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: _Amount
    """Of the whole content."""
    offset: _Amount = 0
    length: _Amount = 0

    @property
    def awaited(self) -> Awaited:
        """The content that it is of."""
        return Awaited(self.digest, self.size)


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: Annotated[list[Part], msgspec.Meta(max_length=MOST_PARTS)]


class Uploads:
    """Takes pieces. What came of a request that broke off stays."""

    def __init__(self, blobs: Blobs, clock: Clock) -> None:
        self._arriving = Arriving(blobs)
        self._clock = clock
        self._locks: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tidying: asyncio.Task[None] | None = None

    async def take(self, stream: AsyncIterator[bytes], user: str, held: Held = nothing_held) -> list[dict[str, Any]]:
        """Write down what a request brings; how far each of its contents has come then. What is `held` is here already."""
        body = _Body(stream)
        try:
            return await self._taken(body, user, held)
        except FairwayError:
            # Who still speaks does not listen to the answer.
            await body.drain()
            raise

    async def tidy(self) -> int:
        """Remove what was abandoned; how many files are left."""
        return await asyncio.to_thread(self._arriving.tidy, self._clock.now())

    async def _taken(self, body: _Body, user: str, held: Held) -> list[dict[str, Any]]:
        parts = _read_head(await body.line())
        async with AsyncExitStack() as locks:
            # In one order, so that two requests never wait for each other.
            for digest in sorted({part.digest for part in parts}):
                await locks.enter_async_context(self._lock(user, digest))
            await asyncio.to_thread(self._check_room, user, parts, held)
            for part in parts:
                await self._receive(body, user, part, held)
            if not await body.is_over():
                message = "the request has more bytes than its parts"
                raise UsageError(message, fix="say the length of each part")
            async with self._slots:
                awaited = [part.awaited for part in parts]
                found = await asyncio.to_thread(self._arriving.settle, user, awaited, PATIENCE, held)
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(self._tidy_later())
        return [_told(one) for one in found]

    def _lock(self, user: str, digest: str) -> asyncio.Lock:
        return self._locks.setdefault((user, digest), asyncio.Lock())

    def _check_room(self, user: str, parts: Sequence[Part], held: Held) -> None:
        lacking = {part.awaited: part.size - self._arriving.standing(user, part.awaited, held).have for part in parts}
        needed, room = sum(lacking.values()), self._arriving.room() - SPARE
        if needed > room:
            message = f"{show_bytes(needed)} are to come, and the operator's volume has room for {show_bytes(max(room, 0))}"
            raise UnavailableError(message, fix="delete versions that nobody needs, or make the volume larger (record_size)")

    async def _receive(self, body: _Body, user: str, part: Part, held: Held) -> None:
        at = part.offset
        async for block in body.blocks(part.length):
            await asyncio.to_thread(self._arriving.append, user, part.awaited, at, block, held)
            at += len(block)

    async def _tidy_later(self) -> None:
        """Until nothing is left that could be abandoned."""
        left = 1
        while left:
            await asyncio.sleep(TIDY_EVERY)
            try:
                left = await self.tidy()
            except OSError as error:
                log.warning("what callers began to send and left could not be removed; it is tried again: %s", error)


def _read_head(line: bytes) -> list[Part]:
    try:
        parts = msgspec.json.decode(line, type=_Head).parts
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the first line of what is sent is wrong: {error}"
        raise UsageError(message, fix="the command and the cluster may differ in version") from None
    total = sum(part.length for part in parts)
    if total > MOST_BYTES:
        message = f"the parts have {show_bytes(total)}, more than the {show_bytes(MOST_BYTES)} of a request"
        raise RefusedError(message, fix="send them in smaller pieces")
    return parts


def _told(standing: Standing) -> dict[str, Any]:
    return {"have": standing.have, "checked": standing.checked, "whole": standing.whole}


class _Body:
    """The bytes of a request as they come; never more than a block of them is held."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._rest = bytearray()

    async def line(self) -> bytes:
        """All up to the end of the line."""
        while (end := self._rest.find(b"\n")) < 0:
            if len(self._rest) > LONGEST_LINE or not await self._more():
                message = "what is sent does not begin with a line of JSON"
                raise UsageError(message, fix="the command and the cluster may differ in version")
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line

    async def blocks(self, length: int) -> AsyncIterator[bytes]:
        """So many bytes, in blocks."""
        while length:
            wanted = min(length, _BLOCK)
            while len(self._rest) < wanted:
                if not await self._more():
                    message = "what is sent breaks off"
                    raise UsageError(message, fix="send as many bytes as the parts have")
            yield bytes(self._rest[:wanted])
            del self._rest[:wanted]
            length -= wanted

    async def is_over(self) -> bool:
        """Whether nothing follows."""
        while not self._rest:
            if not await self._more():
                return True
        return False

    async def drain(self) -> None:
        """Hear a request of the largest size to its end."""
        left = MOST_BYTES + LONGEST_LINE
        while left > 0:
            left -= len(self._rest)
            self._rest.clear()
            if not await self._more():
                return

    async def _more(self) -> bool:
        piece = await anext(self._stream, None)
        self._rest += piece or b""
        return piece is not None
