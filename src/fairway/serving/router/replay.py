"""Request bodies that are kept so that they can be sent again, held or copied; and the budget for all of them together.

The budget is one for the process. A request whose backend has it can do without its copy: it is only never sent again. So
when the budget is used up, such copies are dropped first, the oldest first. A request that waits for a backend cannot do
without; when nothing is left to drop, it is answered 503.
"""

from __future__ import annotations

SMALL = 64 * 1024
"""A body of at most this size may use the whole budget, a larger one three quarters: a few large ones leave room for others."""


class Budget:
    """Bytes that are kept in this process, at most `limit`."""

    __slots__ = ("_spare", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._spare: dict[Replay, None] = {}
        """Copies that may be dropped, the oldest first."""

    def take(self, size: int, owner: Replay) -> bool:
        """Count `size` more bytes for `owner`; False, and nothing is counted, when there is no room for them."""
        limit = self.limit if owner.size + size <= SMALL else self.limit * 3 // 4
        while self.used + size > limit and self._spare:
            next(iter(self._spare)).drop()
        if self.used + size > limit:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Count `size` bytes less."""
        self.used -= size

    def may_drop(self, replay: Replay, may: bool) -> None:
        """Whether a copy may be dropped for others."""
        if may:
            self._spare[replay] = None
        else:
            self._spare.pop(replay, None)


class Replay:
    """The body of one request, as far as it came. `whole` is False once some of it was dropped: it can never be sent again."""

    __slots__ = ("_budget", "_head", "pieces", "size", "whole")

    def __init__(self, budget: Budget) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.whole = True
        self._budget = budget
        self._head = 0

    def add(self, piece: bytes) -> bool:
        """Keep another piece; False, and it is not kept, when the budget has no room for it."""
        if not self._budget.take(len(piece), self):
            return False
        if not self.whole:
            # What had to be dropped for this piece was the rest of the same body.
            self._budget.give(len(piece))
            return False
        self.pieces.append(piece)
        self.size += len(piece)
        return True

    def add_head(self, size: int) -> bool:
        """Count the head of the request, which is kept for as long as the request lives; False when there is no room."""
        if not self._budget.take(size, self):
            return False
        self._head += size
        return True

    def drop(self) -> None:
        """Do without the body from now on."""
        self._budget.give(self.size)
        self._budget.may_drop(self, False)
        self.pieces = []
        self.size = 0
        self.whole = False

    def may_drop(self, may: bool) -> None:
        """Whether the body may be dropped when others need the room: a backend has all of it that came."""
        self._budget.may_drop(self, may and self.size > 0)

    def close(self) -> None:
        """The request is over."""
        self.drop()
        self._budget.give(self._head)
        self._head = 0
