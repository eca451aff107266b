"""Bodies of requests: neither too large nor too slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fairway.serving.replica.problem import RequestError
from fairway.serving.replica.protocols.openinference import LENGTH_HEADER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SWEEP = 1.0
"""Seconds between two looks for bodies that do not come."""
_PATIENCE = 16
"""How many times the largest body is read and dropped before the connection is closed."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a request's body may be."""

    size: int = 64 << 20
    seconds: float = 30.0
    """How long it may take to arrive."""


class GoneError(Exception):
    """The client went away; nobody waits for an answer."""


class Bodies:
    """Reads bodies that are neither too large nor too slow."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._slow: set[asyncio.Task[Any]] = set()
        self._sweeping = False

    async def read(self, scope: Scope, receive: Receive) -> tuple[bytes, bytes | None]:
        """The body, and the length of its JSON where the request is a binary one."""
        head_length, _ = self.admit(scope["headers"])
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = time.monotonic()
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        try:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body", False):
                body = await self._rest(body, receive)
            elif message["type"] != "http.request":
                raise GoneError
        except asyncio.CancelledError:
            if task not in self._slow:
                raise
            self._slow.discard(task)
            task.uncancel()
            raise self.too_slow() from None
        finally:
            del self._reading[task]
        return body, head_length

    def admit(self, headers: list[tuple[bytes, bytes]]) -> tuple[bytes | None, bool]:
        """Refuse a body that will not be read. The length of its JSON where it is a binary one, and whether its own is known."""
        found: bytes | None = None
        known = False
        for name, value in headers:
            if name == b"content-length":
                known = True
                if int(value) > self.limits.size:
                    raise self._too_large()
            elif name == LENGTH_HEADER:
                if found is not None:
                    raise RequestError(400, "Inference-Header-Content-Length is given twice")
                found = value
            elif name == b"content-encoding" and value.lower() != b"identity":
                message = f"content-encoding {value.decode('latin-1')!r} is not understood"
                raise RequestError(415, message, fix="send the body as it is")
        return found, known

    async def _rest(self, first: bytes, receive: Receive) -> bytes:
        parts, size = [first], len(first)
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.size:
                parts.clear()  # the rest is read and dropped, within reason: who still sends does not see an answer
                if size > _PATIENCE * self.limits.size:
                    break
            more = message.get("more_body", False)
        if size > self.limits.size:
            raise self._too_large()
        return b"".join(parts)

    def too_slow(self) -> RequestError:
        """What is said when it does not come."""
        message = f"the body did not arrive within {self.limits.seconds:g} s"
        return RequestError(408, message, headers=((b"connection", b"close"),))

    def _too_large(self) -> RequestError:
        message = f"the body is larger than {self.limits.size} bytes"
        return RequestError(413, message, fix="send fewer rows at once, or start the replica with a larger --max-body")

    def _sweep(self) -> None:
        """Stop waiting for bodies that do not come."""
        now = time.monotonic()
        for task, began in self._reading.items():
            if now - began > self.limits.seconds and task not in self._slow:
                self._slow.add(task)
                task.cancel()
        self._sweeping = bool(self._reading)
        if self._sweeping:
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
