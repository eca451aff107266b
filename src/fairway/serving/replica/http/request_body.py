"""Reads request bodies, with limits for size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fairway.serving.replica.http.content_encoding import STEP, decompressed, encoding_of, request_encoding
from fairway.serving.replica.http.memory_budget import MemoryBudget
from fairway.serving.replica.protocols.open_inference import LENGTH_HEADER
from fairway.serving.replica.request_error import RequestError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SWEEP = 1.0
"""Interval in seconds of the check for slow bodies."""
_PATIENCE = 2
"""Maximum number of bytes read and dropped before the connection is closed, as a multiple of the largest body."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits for request bodies."""

    size: int = 64 << 20
    json: int = 16 << 20
    """Maximum size of JSON, which takes more memory when decoded."""
    seconds: float = 30.0
    """Timeout for the arrival of a body."""
    held: int = 256 << 20
    """Maximum bytes of all requests and unread answers together."""


class ClientDisconnectedError(Exception):
    """The client has disconnected, and no answer is needed."""


class BodyReader:
    """Reads request bodies within limits of size and time."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._json = min(limits.json, limits.size)
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._stopped: dict[asyncio.Task[Any], RequestError] = {}
        """Tasks whose body is no longer awaited, with the reason."""
        self._holders: dict[asyncio.Task[Any], _BodyReadHolder] = {}
        self.held = MemoryBudget(limits.held)
        self._sweeping = False

    async def read(self, scope: Scope, receive: Receive) -> tuple[bytes, bytes | None]:
        """Read a body; return it and, for a binary request, the length of its JSON."""
        head_length, length_known = self.admit(scope["headers"])
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = time.monotonic()
        holder = self._holders[task] = _BodyReadHolder(self, task)
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        try:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body", False):
                body = await self._rest(body, receive, holder, head_length)
            elif message["type"] != "http.request":
                raise ClientDisconnectedError
            if not length_known and (encoding := encoding_of(scope["headers"])):
                body = await self._decompressed(body, encoding, holder, head_length)
        except asyncio.CancelledError:
            if task not in self._stopped:
                raise
            task.uncancel()
            raise self._stopped[task] from None
        finally:
            del self._reading[task]
            self._stopped.pop(task, None)
        self.held.keep(holder)
        return body, head_length

    def done(self) -> None:
        """Release the memory held for the current task's body, after the request was answered."""
        holder = self._holders.pop(asyncio.current_task(), None)  # type: ignore[arg-type]  # there is a current task
        if holder is not None:
            self.held.free(holder)

    def admit(self, headers: list[tuple[bytes, bytes]]) -> tuple[bytes | None, bool]:
        """Check the headers of a request and refuse a body that will not be read.

        Returns the length of the JSON of a binary request, and whether the length of the body is known, which is not the case for
        a compressed body.
        """
        head_length: bytes | None = None
        encoding = b""
        length_known = False
        size = 0
        for name, value in headers:
            if name == b"content-length":
                length_known = True
                size = int(value)
            elif name == LENGTH_HEADER:
                if head_length is not None:
                    raise RequestError(400, "Inference-Header-Content-Length is given twice")
                head_length = value
            elif name == b"content-encoding":
                encoding = request_encoding(value, encoding)
        if size > self._json or head_length is not None:
            self._check(size, head_length)
        return head_length, length_known and not encoding

    def _check(self, size: int, head_length: bytes | None) -> None:
        limits = self.limits
        if size > limits.size:
            raise self.too_large()
        json = size
        if head_length is not None:
            json = (
                int(head_length) if len(head_length) < 20 and head_length.isdigit() else 0
            )  # a value that is not a number gets 400 later
        if json > self._json:
            message = f"the JSON of this request is larger than {self._json} bytes"
            fix = "send binary tensors or fewer rows at once, or start the replica with a larger --max-json"
            raise RequestError(413, message, fix=fix)

    def hold(self, count: int) -> None:
        """Count additional bytes for the request of the current task until it is answered."""
        holder = self._holders.get(asyncio.current_task())  # type: ignore[arg-type]  # there is a current task
        if holder is not None:
            self.held.take(holder, count)
            self.held.keep(holder)

    async def _rest(self, first: bytes, receive: Receive, holder: _BodyReadHolder, head_length: bytes | None) -> bytes:
        parts, size = [first], len(first)
        limit = self.limits.size if head_length is not None else self._json
        has_more = True
        while has_more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnectedError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self.held.take(holder, len(parts[-1]))
            if size > limit:
                self.held.free(holder)
                parts.clear()  # read and drop the rest, up to a bound: a client that is still sending does not read the answer
                if size > _PATIENCE * limit:
                    break
            has_more = message.get("more_body", False)
        if size > limit:
            self._check(size, head_length)
        return b"".join(parts)

    async def _decompressed(self, body: bytes, encoding: bytes, holder: _BodyReadHolder, head_length: bytes | None) -> bytes:
        """Decompress a body within the same limits, a bounded piece in each iteration of the event loop."""
        limit = self.limits.size if head_length is not None else self._json
        parts, size = [], 0
        for piece in decompressed(body, encoding):
            parts.append(piece)
            size += len(piece)
            if size > limit:
                parts.clear()
                self.held.free(holder)
                self._check(size, head_length)
            if size > STEP:  # yield to other tasks; a small body needs only one step
                self.held.take(holder, len(piece))
                await asyncio.sleep(0)
        content = b"".join(parts)
        if size > STEP:
            self.held.resize(holder, size)
        return content

    def too_slow(self) -> RequestError:
        """Return the error for a body that did not arrive in time."""
        message = f"the body did not arrive within {self.limits.seconds:g} s"
        return RequestError(408, message, headers=((b"connection", b"close"),))

    def no_room(self) -> RequestError:
        """Return the error for a request whose memory is needed for others."""
        message = f"requests hold more than {self.limits.held} bytes, and this is the largest"
        return RequestError(429, message, fix="try again later", retry_after=1.0, headers=((b"connection", b"close"),))

    def too_large(self) -> RequestError:
        """Return the error for a body that is longer than allowed."""
        message = f"the body is larger than {self.limits.size} bytes"
        fix = "send fewer rows at once, or start the replica with a larger --max-body"
        return RequestError(413, message, fix=fix)

    def stop(self, task: asyncio.Task[Any], why: RequestError) -> None:
        """Cancel a task that waits for its body, with this error."""
        if task in self._reading and task not in self._stopped:
            self._stopped[task] = why
            task.cancel()

    def _sweep(self) -> None:
        """Cancel tasks whose body has not arrived in time."""
        now = time.monotonic()
        for task, began in self._reading.items():
            if now - began > self.limits.seconds:
                self.stop(task, self.too_slow())
        self._sweeping = bool(self._reading)
        if self._sweeping:
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)


class _BodyReadHolder:
    """A body that is being read, as a holder of memory."""

    def __init__(self, bodies: BodyReader, task: asyncio.Task[Any]) -> None:
        self._bodies = bodies
        self._task = task

    def let_go(self) -> None:
        """Cancel the request to free its memory."""
        self._bodies.stop(self._task, self._bodies.no_room())
