"""Bodies of requests: neither too large nor too slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fairway.serving.replica.encodings import STEP, decompressed, encoding_of, request_encoding
from fairway.serving.replica.held import Held
from fairway.serving.replica.problem import RequestError
from fairway.serving.replica.protocols.openinference import LENGTH_HEADER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SWEEP = 1.0
"""Seconds between two looks for bodies that do not come."""
_PATIENCE = 2
"""How many times the largest body is read and dropped before the connection is closed."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a request's body may be."""

    size: int = 64 << 20
    json: int = 16 << 20
    """The same of JSON, which takes more memory than its bytes when it is decoded."""
    seconds: float = 30.0
    """How long it may take to arrive."""
    held: int = 256 << 20
    """Bytes of all requests and unread answers together."""


class GoneError(Exception):
    """The client went away; nobody waits for an answer."""


class Bodies:
    """Reads bodies that are neither too large nor too slow."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._json = min(limits.json, limits.size)
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._stopped: dict[asyncio.Task[Any], RequestError] = {}
        """Those whose body is not waited for any longer, and why."""
        self._holders: dict[asyncio.Task[Any], _Reading] = {}
        self.held = Held(limits.held)
        self._sweeping = False

    async def read(self, scope: Scope, receive: Receive) -> tuple[bytes, bytes | None]:
        """The body, and the length of its JSON where the request is a binary one."""
        head_length, known = self.admit(scope["headers"])
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = time.monotonic()
        holder = self._holders[task] = _Reading(self, task)
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        try:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body", False):
                body = await self._rest(body, receive, holder, head_length)
            elif message["type"] != "http.request":
                raise GoneError
            if not known and (encoding := encoding_of(scope["headers"])):
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
        """The request of this task is answered: its body is held no longer."""
        holder = self._holders.pop(asyncio.current_task(), None)  # type: ignore[arg-type]  # there is one
        if holder is not None:
            self.held.free(holder)

    def admit(self, headers: list[tuple[bytes, bytes]]) -> tuple[bytes | None, bool]:
        """Refuse a body that will not be read. The length of its JSON where it is a binary one, and whether its own is known.

        Of a compressed body it is not.
        """
        found: bytes | None = None
        encoding = b""
        known = False
        size = 0
        for name, value in headers:
            if name == b"content-length":
                known = True
                size = int(value)
            elif name == LENGTH_HEADER:
                if found is not None:
                    raise RequestError(400, "Inference-Header-Content-Length is given twice")
                found = value
            elif name == b"content-encoding":
                encoding = request_encoding(value, encoding)
        if size > self._json or found is not None:
            self._check(size, found)
        return found, known and not encoding

    def _check(self, size: int, head_length: bytes | None) -> None:
        limits = self.limits
        if size > limits.size:
            raise self.too_large()
        json = size
        if head_length is not None:
            json = int(head_length) if len(head_length) < 20 and head_length.isdigit() else 0  # 400 later, if it is no number
        if json > self._json:
            message = f"the JSON of this request is larger than {self._json} bytes"
            fix = "send binary tensors or fewer rows at once, or start the replica with a larger --max-json"
            raise RequestError(413, message, fix=fix)

    def hold(self, count: int) -> None:
        """The request of this task takes so many bytes more until it is answered."""
        holder = self._holders.get(asyncio.current_task())  # type: ignore[arg-type]  # there is one
        if holder is not None:
            self.held.take(holder, count)
            self.held.keep(holder)

    async def _rest(self, first: bytes, receive: Receive, holder: _Reading, head_length: bytes | None) -> bytes:
        parts, size = [first], len(first)
        most = self.limits.size if head_length is not None else self._json
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self.held.take(holder, len(parts[-1]))
            if size > most:
                self.held.free(holder)
                parts.clear()  # the rest is read and dropped, within reason: who still sends does not see an answer
                if size > _PATIENCE * most:
                    break
            more = message.get("more_body", False)
        if size > most:
            self._check(size, head_length)
        return b"".join(parts)

    async def _decompressed(self, body: bytes, encoding: bytes, holder: _Reading, head_length: bytes | None) -> bytes:
        """The content of a compressed body, within the same limits, a bounded piece in each turn of the loop."""
        most = self.limits.size if head_length is not None else self._json
        parts, size = [], 0
        for piece in decompressed(body, encoding):
            parts.append(piece)
            size += len(piece)
            if size > most:
                parts.clear()
                self.held.free(holder)
                self._check(size, head_length)
            if size > STEP:  # others have their turn; a small body needs no more than one
                self.held.take(holder, len(piece))
                await asyncio.sleep(0)
        found = b"".join(parts)
        if size > STEP:
            self.held.resize(holder, size)
        return found

    def too_slow(self) -> RequestError:
        """What is said when it does not come."""
        message = f"the body did not arrive within {self.limits.seconds:g} s"
        return RequestError(408, message, headers=((b"connection", b"close"),))

    def no_room(self) -> RequestError:
        """The answer where others need the memory."""
        message = f"requests hold more than {self.limits.held} bytes, and this is the largest"
        return RequestError(429, message, fix="try again later", retry_after=1.0, headers=((b"connection", b"close"),))

    def too_large(self) -> RequestError:
        """What is said to a body that is longer than allowed."""
        message = f"the body is larger than {self.limits.size} bytes"
        fix = "send fewer rows at once, or start the replica with a larger --max-body"
        return RequestError(413, message, fix=fix)

    def stop(self, task: asyncio.Task[Any], why: RequestError) -> None:
        """Wait no longer for a body."""
        if task in self._reading and task not in self._stopped:
            self._stopped[task] = why
            task.cancel()

    def _sweep(self) -> None:
        """Stop waiting for bodies that do not come."""
        now = time.monotonic()
        for task, began in self._reading.items():
            if now - began > self.limits.seconds:
                self.stop(task, self.too_slow())
        self._sweeping = bool(self._reading)
        if self._sweeping:
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)


class _Reading:
    """A body that is being read, as a holder of memory."""

    def __init__(self, bodies: Bodies, task: asyncio.Task[Any]) -> None:
        self._bodies = bodies
        self._task = task

    def let_go(self) -> None:
        """Others need the room."""
        self._bodies.stop(self._task, self._bodies.no_room())
