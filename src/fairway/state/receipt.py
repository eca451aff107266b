"""A receipt: what a request that carried a key did, so that the same request again does nothing new."""

from __future__ import annotations

from dataclasses import dataclass

LIFE = 24 * 3600.0
"""Seconds for which a receipt is kept."""
MOST = 100_000
"""So many receipts are kept at most; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Is committed together with what the request changed, or, where the change is an object of a cluster, before it."""

    id: str
    """Names the request: the digest of its namespace, its user and its key."""
    digest: str
    """Of what was asked. Another request under the same key is refused."""
    time: float
    made: tuple[str, ...] = ()
    """What it made, in the order in which it was asked for: `default/mnist-7`, `mnist@3`."""
    left_alone: tuple[str, ...] = ()
    """What of it was there before."""
    done: bool = True
    """Whether it did all of it. If not, `made` are names that are reserved for it."""
