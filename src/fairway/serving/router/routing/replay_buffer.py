"""Request bodies that are kept so that they can be retried, held or mirrored; and one memory budget for all of them.

The process has one budget. A request that has a backend can lose its copy: it is then never retried. So when the budget is used
up, such copies are dropped, oldest first. A request that waits for a backend needs its copy; if no copy is left to drop, it is
answered 503.
"""

from __future__ import annotations

SMALL = 64 * 1024
"""A body of at most this size may use the whole budget, a larger one three quarters: a few large ones leave room for others."""


class ReplayBudget:
    """Bytes kept in this process, at most `limit`."""

    __slots__ = ("_spare", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._spare: dict[ReplayBuffer, None] = {}
        """Copies that may be dropped, oldest first."""

    def take(self, size: int, owner: ReplayBuffer) -> bool:
        """Reserve `size` more bytes for `owner`; return False and reserve nothing if there is no room for them."""
        limit = self.limit if owner.size + size <= SMALL else self.limit * 3 // 4
        while self.used + size > limit and self._spare:
            next(iter(self._spare)).drop()
        if self.used + size > limit:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Release `size` bytes."""
        self.used -= size

    def may_drop(self, replay: ReplayBuffer, may: bool) -> None:
        """Set whether a copy may be dropped to make room for others."""
        if may:
            self._spare[replay] = None
        else:
            self._spare.pop(replay, None)


class ReplayBuffer:
    """The body of one request, as far as it has arrived. `whole` is False once some was dropped: it can no longer be resent."""

    __slots__ = ("_budget", "_head", "pieces", "size", "whole")

    def __init__(self, budget: ReplayBudget) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.whole = True
        self._budget = budget
        self._head = 0

    def add(self, piece: bytes) -> bool:
        """Keep another piece; return False and do not keep it if the budget has no room for it."""
        if not self._budget.take(len(piece), self):
            return False
        if not self.whole:
            # To make room for this piece, the budget dropped the rest of the same body.
            self._budget.give(len(piece))
            return False
        self.pieces.append(piece)
        self.size += len(piece)
        return True

    def add_head(self, size: int) -> bool:
        """Reserve room for the request's head, which is kept as long as the request lives; return False if there is no room."""
        if not self._budget.take(size, self):
            return False
        self._head += size
        return True

    def drop(self) -> None:
        """Drop the body and keep none of it from now on."""
        self._budget.give(self.size)
        self._budget.may_drop(self, False)
        self.pieces = []
        self.size = 0
        self.whole = False

    def may_drop(self, may: bool) -> None:
        """Set whether the body may be dropped to make room for others: a backend has everything that has arrived."""
        self._budget.may_drop(self, may and self.size > 0)

    def close(self) -> None:
        """Release the body and the head: the request has ended."""
        self.drop()
        self._budget.give(self._head)
        self._head = 0
