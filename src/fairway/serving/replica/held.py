"""How many bytes of requests and answers are in memory, and who gives way when they become too many."""

from __future__ import annotations

from typing import Protocol

_LARGE = 1 << 20
"""Bytes; larger bodies leave a quarter of the room to smaller ones."""


class Holder(Protocol):
    """A connection with a body that arrives, or with an answer that its client does not read."""

    def let_go(self) -> None:
        """End it now: its bytes are needed for others."""
        ...


class Held:
    """The bytes that connections hold.

    Promises: the sum stays within `most`, but for what one connection sends at once. When there is no room, the connection that
    holds the most of what can be dropped is ended first, so that small requests go on while large ones are refused. A request
    that is whole is never dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._sizes: dict[Holder, int] = {}
        self._firm: set[Holder] = set()
        """Those whose request is whole and waits for its answer."""

    @property
    def total(self) -> int:
        """Bytes held now."""
        return self._total

    def take(self, holder: Holder, count: int) -> None:
        """So many bytes more; others, or this one, are ended where there is no room."""
        size = self._sizes.get(holder, 0) + count
        self._sizes[holder] = size
        self._total += count
        most = self._most * 3 // 4 if size > _LARGE else self._most
        while self._total > most:
            loose = [each for each in self._sizes if each not in self._firm]
            if not loose:
                return
            victim = max(loose, key=self._sizes.__getitem__)
            victim.let_go()
            self.free(victim)
            if victim is holder:
                return

    def keep(self, holder: Holder) -> None:
        """The request is whole: it is answered, whatever comes."""
        if holder in self._sizes:
            self._firm.add(holder)

    def free(self, holder: Holder) -> None:
        """It holds nothing any more."""
        self._total -= self._sizes.pop(holder, 0)
        self._firm.discard(holder)
