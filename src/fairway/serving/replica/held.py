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
    that is whole is never dropped, but for large JSON: that is decoded first (`decoding.py`).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._sizes: dict[Holder, int] = {}
        self._firm: set[Holder] = set()
        """Those whose request is whole and waits for its answer."""
        self._loose: list[dict[Holder, None]] = [{} for _ in range(64)]
        """The others, by the length of their size in bits: the largest is found without a look at all."""

    @property
    def total(self) -> int:
        """Bytes held now."""
        return self._total

    @property
    def most_of_one(self) -> int:
        """Bytes that one large body may have, with all that is made of it."""
        return self._most * 3 // 4

    def has_room(self, count: int) -> bool:
        """Whether so many bytes more fit without another's end."""
        return self._total + count <= (self.most_of_one if count > _LARGE else self._most)

    def take(self, holder: Holder, count: int) -> None:
        """So many bytes more; others, or this one, are ended where there is no room."""
        size = self._set(holder, self._sizes.get(holder, 0) + count)
        most = self.most_of_one if size > _LARGE else self._most
        while self._total > most:
            victim = self._largest()
            if victim is None:
                return
            victim.let_go()
            self.free(victim)
            if victim is holder:
                return

    def resize(self, holder: Holder, size: int) -> None:
        """So many bytes from now on."""
        more = size - self._sizes.get(holder, 0)
        if more > 0:
            self.take(holder, more)
        elif more:
            self._set(holder, size)

    def keep(self, holder: Holder) -> None:
        """The request is whole: it is answered, whatever comes."""
        if holder in self._sizes and holder not in self._firm:
            self._firm.add(holder)
            del self._loose[self._sizes[holder].bit_length()][holder]

    def free(self, holder: Holder) -> None:
        """It holds nothing any more."""
        size = self._sizes.pop(holder, None)
        if size is None:
            return
        self._total -= size
        if holder in self._firm:
            self._firm.discard(holder)
        else:
            del self._loose[size.bit_length()][holder]

    def _set(self, holder: Holder, size: int) -> int:
        before = self._sizes.get(holder)
        self._sizes[holder] = size
        self._total += size - (before or 0)
        if holder not in self._firm and (before is None or before.bit_length() != size.bit_length()):
            if before is not None:
                del self._loose[before.bit_length()][holder]
            self._loose[size.bit_length()][holder] = None
        return size

    def _largest(self) -> Holder | None:
        """Of those that can be dropped."""
        for group in reversed(self._loose):
            if group:
                return max(group, key=self._sizes.__getitem__)
        return None
