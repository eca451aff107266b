"""Receipt of a request with an idempotency key: a repeated request has no further effect."""

from __future__ import annotations

from dataclasses import dataclass

LIFE = 24 * 3600.0
"""Lifetime of a receipt, in seconds."""
MOST = 100_000
"""Maximum number of receipts; the oldest are removed first."""


@dataclass(frozen=True, slots=True)
class RequestReceipt:
    """The effects of one request.

    It is committed together with the changes of the request, or before them if the change is an object of a cluster.
    """

    id: str
    """Identifies the request: digest of its namespace, its user and its key."""
    digest: str
    """Digest of the request's content. A different request with the same key is rejected."""
    time: float
    made: tuple[str, ...] = ()
    """Objects that it created, in the order of the request: `default/mnist-7`, `mnist@3`."""
    left_alone: tuple[str, ...] = ()
    """Requested objects that already existed."""
    done: bool = True
    """Whether the request was completed. If not, `made` has the names reserved for it."""
