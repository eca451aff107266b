"""Uploads of files for models and datasets: in pieces, a few megabytes with each request.

A body is a line of JSON, `{"parts": [{"digest", "size", "offset", "length"}]}`, followed by the bytes of all parts in that order.
A part without bytes queries the progress of its content; the response has the progress of each.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any

import msgspec

from fairway.app.port.port import Clock
from fairway.app.upload import Held, nothing_held
from fairway.errors import FairwayError, RefusedError, UnavailableError, UsageError
from fairway.registry.blob import BlobStore
from fairway.registry.upload.content_upload import ContentUploads, ExpectedContent, UploadProgress
from fairway.units.quantity import show_bytes

log = logging.getLogger("fairway.operator")

MOST_BYTES = 1 << 23
"""Maximum number of bytes of all parts of a request."""
MOST_PARTS = 5000
LONGEST_LINE = 1 << 20
SPARE = 1 << 28
"""Bytes that stay free on the disk: the record needs room, too."""
PATIENCE = 10.0
"""Seconds for which a request compares content with its digest; the API server itself waits for sixty."""
AT_ONCE = 2
"""Maximum number of requests that compare at the same time: others need threads, too."""
TIDY_EVERY = 3600.0
_BLOCK = 1 << 20

_Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class UploadPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some bytes of a content, or none."""

    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: _Amount
    """The size of the whole content."""
    offset: _Amount = 0
    length: _Amount = 0

    @property
    def awaited(self) -> ExpectedContent:
        """The content that the part belongs to."""
        return ExpectedContent(self.digest, self.size)


class _UploadHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: Annotated[list[UploadPart], msgspec.Meta(max_length=MOST_PARTS)]


class UploadReceiver:
    """Receives pieces. What a broken request has delivered is kept."""

    def __init__(self, blobs: BlobStore, clock: Clock) -> None:
        self._arriving = ContentUploads(blobs)
        self._clock = clock
        self._locks: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tidying: asyncio.Task[None] | None = None

    async def take(self, stream: AsyncIterator[bytes], user: str, held: Held = nothing_held) -> list[dict[str, Any]]:
        """Store what a request brings and return the progress of each of its contents. `held` contents are here already."""
        body = _UploadBody(stream)
        try:
            return await self._taken(body, user, held)
        except FairwayError:
            # A client that is still sending does not read the response.
            await body.drain()
            raise

    async def tidy(self) -> int:
        """Remove abandoned uploads and return how many files remain."""
        return await asyncio.to_thread(self._arriving.tidy, self._clock.now())

    async def _taken(self, body: _UploadBody, user: str, held: Held) -> list[dict[str, Any]]:
        parts = _read_head(await body.line())
        async with AsyncExitStack() as locks:
            # In a fixed order, so that two requests never deadlock.
            for digest in sorted({part.digest for part in parts}):
                await locks.enter_async_context(self._lock(user, digest))
            await asyncio.to_thread(self._check_room, user, parts, held)
            for part in parts:
                await self._receive(body, user, part, held)
            if not await body.is_over():
                message = "the request has more bytes than its parts"
                raise UsageError(message, fix="send the length of each part")
            async with self._slots:
                awaited = [part.awaited for part in parts]
                standings = await asyncio.to_thread(self._arriving.settle, user, awaited, PATIENCE, held)
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(self._tidy_later())
        return [_told(standing) for standing in standings]

    def _lock(self, user: str, digest: str) -> asyncio.Lock:
        return self._locks.setdefault((user, digest), asyncio.Lock())

    def _check_room(self, user: str, parts: Sequence[UploadPart], held: Held) -> None:
        lacking = {part.awaited: part.size - self._arriving.standing(user, part.awaited, held).have for part in parts}
        needed, room = sum(lacking.values()), self._arriving.room() - SPARE
        if needed > room:
            message = (
                f"{show_bytes(needed)} must still be sent, but the operator's volume has room for {show_bytes(max(room, 0))}"
            )
            raise UnavailableError(message, fix="delete unused versions, or make the volume larger (record_size)")

    async def _receive(self, body: _UploadBody, user: str, part: UploadPart, held: Held) -> None:
        at = part.offset
        async for block in body.blocks(part.length):
            await asyncio.to_thread(self._arriving.append, user, part.awaited, at, block, held)
            at += len(block)

    async def _tidy_later(self) -> None:
        """Tidy up periodically until no unfinished uploads remain."""
        remaining = 1
        while remaining:
            await asyncio.sleep(TIDY_EVERY)
            try:
                remaining = await self.tidy()
            except OSError as error:
                log.warning("abandoned uploads could not be removed; this is retried: %s", error)


def _read_head(line: bytes) -> list[UploadPart]:
    try:
        parts = msgspec.json.decode(line, type=_UploadHead).parts
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the first line of the request is wrong: {error}"
        raise UsageError(message, fix="the command and the cluster may differ in version") from None
    total = sum(part.length for part in parts)
    if total > MOST_BYTES:
        message = f"the parts have {show_bytes(total)}, more than the {show_bytes(MOST_BYTES)} of a request"
        raise RefusedError(message, fix="send them in smaller pieces")
    return parts


def _told(standing: UploadProgress) -> dict[str, Any]:
    return {"have": standing.have, "checked": standing.checked, "whole": standing.whole}


class _UploadBody:
    """The bytes of a request as they arrive; never more than a block of them is kept in memory."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._rest = bytearray()

    async def line(self) -> bytes:
        """Read up to the end of the line."""
        while (end := self._rest.find(b"\n")) < 0:
            if len(self._rest) > LONGEST_LINE or not await self._more():
                message = "the request does not begin with a line of JSON"
                raise UsageError(message, fix="the command and the cluster may differ in version")
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line

    async def blocks(self, length: int) -> AsyncIterator[bytes]:
        """Read this many bytes, in blocks."""
        while length:
            size = min(length, _BLOCK)
            while len(self._rest) < size:
                if not await self._more():
                    message = "the request ends early"
                    raise UsageError(message, fix="send as many bytes as the parts have")
            yield bytes(self._rest[:size])
            del self._rest[:size]
            length -= size

    async def is_over(self) -> bool:
        """Whether no bytes follow."""
        while not self._rest:
            if not await self._more():
                return True
        return False

    async def drain(self) -> None:
        """Read the rest of a request, up to the largest allowed size."""
        remaining = MOST_BYTES + LONGEST_LINE
        while remaining > 0:
            remaining -= len(self._rest)
            self._rest.clear()
            if not await self._more():
                return

    async def _more(self) -> bool:
        piece = await anext(self._stream, None)
        self._rest += piece or b""
        return piece is not None
