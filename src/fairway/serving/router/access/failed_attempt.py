"""Failed attempts with invalid keys, counted by the address of the sender.

A key has 256 random bits, so guessing finds none. The limit keeps a sender from filling logs and from being answered in full.
It never refuses a valid key: other clients may share the address (a proxy, NAT), and one sender must not lock them out.
"""

from __future__ import annotations

from collections import OrderedDict

MOST_FAILURES = 20
"""Failed attempts of one address that are answered in full; the count falls by one every `FORGET_SECONDS`."""
FORGET_SECONDS = 3.0
MOST_PEERS = 4096
"""Limit on remembered addresses; the one with the oldest last attempt is forgotten first."""


class FailedAttempts:
    """A bounded table: failures by address, falling by one every `FORGET_SECONDS`."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def add(self, peer: bytes, now: float) -> float:
        """Count a failure. Return 0 to answer it in full, otherwise the seconds until another attempt is."""
        peer = network_of(peer)
        count, since = self._failures.pop(peer, (0.0, now))
        count = max(0.0, count - (now - since) / FORGET_SECONDS) + 1.0
        self._failures[peer] = (min(count, MOST_FAILURES + 1.0), now)
        if len(self._failures) > MOST_PEERS:
            self._failures.popitem(last=False)
        return FORGET_SECONDS * (count - MOST_FAILURES) if count > MOST_FAILURES else 0.0

    def __len__(self) -> int:
        return len(self._failures)


def network_of(peer: bytes) -> bytes:
    """Return the part of an address that a sender cannot choose freely: for IPv6, the first 64 bits."""
    if b":" not in peer:
        return peer
    head, _, tail = peer.partition(b"::")
    groups = [group for group in head.split(b":") if group]
    if tail or peer.endswith(b"::"):
        rest = [group for group in tail.split(b":") if group]
        groups += [b"0"] * max(0, 8 - len(groups) - len(rest)) + rest
    return b":".join(groups[:4])
