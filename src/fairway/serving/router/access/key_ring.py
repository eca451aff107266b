"""API keys: found by their public part, compared in constant time, each with its own rate limit."""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable
from enum import Enum

from fairway.state.serving.access import KeyRule, digest_of, service_tag, split_key

_LONGEST_KEY = 512
"""Limit on the bytes of a key; a longer value is no key and is not hashed."""


class KeyFault(Enum):
    """Why a key is not valid. The client only learns whether it belongs to another service."""

    UNKNOWN = "the API key is not valid for this service: it is wrong, was revoked or has expired"
    OTHER_SERVICE = "the API key belongs to another service"


class LimitedApiKey:
    """One key and the state of its rate limit: a token bucket that holds the requests of one second."""

    __slots__ = ("_refilled", "_tokens", "last_used", "rule")

    def __init__(self, rule: KeyRule, now: float) -> None:
        self.rule = rule
        self.last_used = -math.inf
        """When a request was last admitted, by the caller's clock."""
        self._tokens = self.burst
        self._refilled = now

    @property
    def burst(self) -> float:
        """Requests that may arrive at once."""
        return max(1.0, math.ceil(self.rule.rate))

    @property
    def remaining(self) -> int:
        """Requests that would be admitted at once."""
        return int(self._tokens)

    def take(self, now: float) -> float:
        """Take one request from the rate. Return 0 if it is admitted, otherwise the seconds until the next one is."""
        rate = self.rule.rate
        if not rate:
            return 0.0
        self._tokens = min(self.burst, self._tokens + (now - self._refilled) * rate)
        self._refilled = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / rate

    def follow(self, rule: KeyRule) -> None:
        """Take a changed rule. Used tokens stay used, unless the rate has changed."""
        changed = rule.rate != self.rule.rate
        self.rule = rule
        if changed:
            self._tokens = self.burst


class ApiKeyRing:
    """The keys of one service."""

    __slots__ = ("_tag", "keys")

    def __init__(self, service: str, rules: Iterable[KeyRule], before: ApiKeyRing | None, now: float) -> None:
        self._tag = service_tag(service)
        previous = before.keys if before is not None else {}
        self.keys: dict[str, LimitedApiKey] = {}
        for rule in rules:
            key = previous.get(rule.id)
            if key is None or key.rule.digest != rule.digest:
                key = LimitedApiKey(rule, now)
            else:
                key.follow(rule)
            self.keys[rule.id] = key

    def find(self, given: bytes, wall: float) -> LimitedApiKey | KeyFault:
        """Return the key if it is valid at this time of the wall clock, otherwise what is wrong with it."""
        if len(given) > _LONGEST_KEY:
            return KeyFault.UNKNOWN
        text = given.decode("latin-1")
        parts = split_key(text)
        if parts is None:
            return KeyFault.UNKNOWN
        tag, key_id = parts
        if tag != self._tag:
            return KeyFault.OTHER_SERVICE
        key = self.keys.get(key_id)
        # An unknown id costs the same as a wrong secret. The decision is a comparison in constant time.
        right = hmac.compare_digest(digest_of(text), key.rule.digest if key is not None else "")
        if key is None or not right or (key.rule.expires and key.rule.expires <= wall):
            return KeyFault.UNKNOWN
        return key

    @property
    def expires(self) -> bool:
        """Whether any key has an expiry."""
        return any(key.rule.expires for key in self.keys.values())

    def still_takes(self, rule: KeyRule, wall: float) -> bool:
        """Return whether a key that was valid before still is at this time of the wall clock."""
        key = self.keys.get(rule.id)
        return key is not None and key.rule.digest == rule.digest and not 0 < key.rule.expires <= wall

    def last_used(self) -> dict[str, float]:
        """Return when each used key was last used, by its id."""
        return {key_id: key.last_used for key_id, key in self.keys.items() if key.last_used > -math.inf}
