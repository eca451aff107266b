"""Limits the memory that requests and answers hold, and chooses which ones to drop when it is exceeded."""

from __future__ import annotations

from typing import Protocol

_LARGE = 1 << 20
"""Bytes; larger bodies must leave a quarter of the memory to smaller ones."""


class MemoryHolder(Protocol):
    """A connection with a body that is arriving, or with an answer that its client does not read."""

    def let_go(self) -> None:
        """End the connection now, to free its memory."""
        ...


class MemoryBudget:
    """The bytes that connections hold.

    Promises: the sum stays within `most`, except for what one connection sends at once. When the memory is exhausted, the largest
    holder that can be dropped is ended first, so that small requests continue while large ones are refused. A request that has
    arrived completely is never dropped, except for large JSON, which must be decoded first (`json_decoder.py`).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._sizes: dict[MemoryHolder, int] = {}
        self._firm: set[MemoryHolder] = set()
        """Holders whose request is complete and waits for its answer."""
        self._loose: list[dict[MemoryHolder, None]] = [{} for _ in range(64)]
        """The other holders, grouped by the bit length of their size, so that the largest is found without a full scan."""

    @property
    def total(self) -> int:
        """Bytes held now."""
        return self._total

    @property
    def most_of_one(self) -> int:
        """Maximum bytes of one large body, including everything derived from it."""
        return self._most * 3 // 4

    def has_room(self, count: int) -> bool:
        """Whether this many additional bytes fit without ending another connection."""
        return self._total + count <= (self.most_of_one if count > _LARGE else self._most)

    def take(self, holder: MemoryHolder, count: int) -> None:
        """Add bytes to a holder; end others, or this one, while the limit is exceeded."""
        size = self._set(holder, self._sizes.get(holder, 0) + count)
        limit = self.most_of_one if size > _LARGE else self._most
        while self._total > limit:
            victim = self._largest()
            if victim is None:
                return
            victim.let_go()
            self.free(victim)
            if victim is holder:
                return

    def resize(self, holder: MemoryHolder, size: int) -> None:
        """Set the bytes of a holder."""
        growth = size - self._sizes.get(holder, 0)
        if growth > 0:
            self.take(holder, growth)
        elif growth:
            self._set(holder, size)

    def keep(self, holder: MemoryHolder) -> None:
        """Mark a holder's request as complete: it will be answered in any case."""
        if holder in self._sizes and holder not in self._firm:
            self._firm.add(holder)
            del self._loose[self._sizes[holder].bit_length()][holder]

    def free(self, holder: MemoryHolder) -> None:
        """Remove a holder."""
        size = self._sizes.pop(holder, None)
        if size is None:
            return
        self._total -= size
        if holder in self._firm:
            self._firm.discard(holder)
        else:
            del self._loose[size.bit_length()][holder]

    def _set(self, holder: MemoryHolder, size: int) -> int:
        previous = self._sizes.get(holder)
        self._sizes[holder] = size
        self._total += size - (previous or 0)
        if holder not in self._firm and (previous is None or previous.bit_length() != size.bit_length()):
            if previous is not None:
                del self._loose[previous.bit_length()][holder]
            self._loose[size.bit_length()][holder] = None
        return size

    def _largest(self) -> MemoryHolder | None:
        """Return the largest holder that can be dropped."""
        for group in reversed(self._loose):
            if group:
                return max(group, key=self._sizes.__getitem__)
        return None
