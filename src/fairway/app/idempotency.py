"""Requests with an idempotency key are executed once: a repeated request gets the answer of the first.

A client creates a key for one intended change, and sends the same key when it repeats the request after a lost answer.
Guarantees:
1. Of all requests with one key in one namespace, by one user, exactly one changes something, also across restarts.
2. The same key with a different request is refused, and nothing is changed.
3. This holds for `LIFE` after the first request, and for the `MOST` newest keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from fairway.app.port.port import Clock, Store
from fairway.errors import ConflictError, UsageError
from fairway.state.request_receipt import LIFE, RequestReceipt

_KEY = re.compile(r"[A-Za-z0-9._:/@+=-]{1,200}")


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key of one request, with its scope."""

    text: str
    namespace: str
    user: str = ""

    @property
    def id(self) -> str:
        """Identifies the key among all keys."""
        return hashlib.sha256("\0".join((self.namespace, self.user, self.text)).encode()).hexdigest()

    def part(self, name: str) -> IdempotencyKey:
        """Return the key of one part of the request, for requests whose parts are executed one after the other."""
        # A caller's key cannot contain this character, so it never equals the key of a part.
        return replace(self, text=f"{self.text}\0{name}")


def request_key(text: str, namespace: str, user: str = "") -> IdempotencyKey | None:
    """Return the key that a caller sent; None if it sent none."""
    if not text:
        return None
    if not _KEY.fullmatch(text):
        message = f"key={text[:200]!r} is not a valid key"
        raise UsageError(message, fix="write up to 200 letters, digits and ._:/@+=- without spaces")
    return IdempotencyKey(text, namespace, user)


@dataclass(slots=True)
class IdempotentRequest:
    """A request in progress. Without a key it is executed every time."""

    key: IdempotencyKey | None
    digest: str
    time: float
    known: RequestReceipt | None = None
    """The receipt of an earlier request with the same key."""

    @property
    def id(self) -> str:
        """The id of the key; empty without one."""
        return self.key.id if self.key is not None else ""

    @property
    def over(self) -> bool:
        """Whether the request was already executed completely."""
        return self.known is not None and self.known.done

    def receipt(
        self, made: Sequence[object] = (), left_alone: Sequence[object] = (), *, done: bool = True
    ) -> tuple[RequestReceipt, ...]:
        """Return the receipt to commit together with the request's changes; nothing without a key."""
        if self.key is None:
            return ()
        return (RequestReceipt(self.id, self.digest, self.time, tuple(map(str, made)), tuple(map(str, left_alone)), done),)


class ReceiptBook:
    """Finds and issues the receipts of requests with keys."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """By key: a lock held while a request is in progress, and the number of requests that hold it or wait for it."""

    @asynccontextmanager
    async def once(self, key: IdempotencyKey | None, *asked: str) -> AsyncIterator[IdempotentRequest]:
        """Run one request; another one with the same key waits until it is over.

        `asked` is the complete content of the request.
        """
        digest = hashlib.sha256("\0".join(asked).encode("utf-8", "surrogatepass")).hexdigest()
        if key is None:
            yield IdempotentRequest(None, digest, self._clock.now())
            return
        name = key.id
        lock, waiting = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, waiting + 1)
        try:
            async with lock:
                yield IdempotentRequest(key, digest, self._clock.now(), self._find(key, digest))
        finally:
            lock, waiting = self._locks.pop(name)
            if waiting > 1:
                self._locks[name] = (lock, waiting - 1)

    def _find(self, key: IdempotencyKey, digest: str) -> RequestReceipt | None:
        receipt = self._store.receipt(key.id)
        if receipt is None or receipt.time + LIFE <= self._clock.now():
            return None
        if receipt.digest != digest:
            what = f" ({', '.join(receipt.made)})" if receipt.made else ""
            message = f"the key {key.text.partition(chr(0))[0]!r} was used for another request{what}; nothing was changed"
            raise ConflictError(message, fix="use a new key for each request")
        return receipt
