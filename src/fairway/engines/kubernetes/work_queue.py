"""A work queue of keys. Pure: the time is an argument, and nothing sleeps here.

A key is in the queue once, however often it is added. While a key is being processed it is not handed out again; if it is added
meanwhile, it returns when that work is done. A failed key returns after a back-off that doubles with each failure.
"""

from __future__ import annotations

import heapq
from collections import deque

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 1000.0


class WorkQueue:
    """Keys in the order in which they became due."""

    def __init__(self, first_pause: float = FIRST_PAUSE, longest_pause: float = LONGEST_PAUSE) -> None:
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()
        """Keys that are in `_ready`, or will be when their current work is done."""
        self._working: set[str] = set()
        self._later: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        """When a key returns. The heap may hold outdated entries of the key, which are ignored."""
        self._failures: dict[str, int] = {}
        self._number = 0

    def __len__(self) -> int:
        """Number of keys that are ready now."""
        return len(self._ready)

    def add(self, key: str) -> None:
        """Enqueue the key at once."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._ready.append(key)

    def add_after(self, key: str, delay: float, now: float) -> None:
        """Enqueue the key after `delay` seconds; of several delays the one that ends first counts."""
        if delay <= 0:
            self.add(key)
            return
        due = now + delay
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._number += 1
            heapq.heappush(self._later, (due, self._number, key))

    def take(self, now: float) -> str | None:
        """Take the next key, which is being processed from now on; None when none is due."""
        self._wake(now)
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """The work on the key has ended; if it was added meanwhile it is ready again."""
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)

    def succeeded(self, key: str) -> None:
        """The work on the key succeeded: its failures are forgotten."""
        self._failures.pop(key, None)
        self.done(key)

    def failed(self, key: str, now: float) -> float:
        """The work on the key failed: it returns after a back-off. Returns the back-off in seconds."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(self._longest_pause, self._first_pause * 2.0 ** min(count, 60))
        self.done(key)
        self.add_after(key, delay, now)
        return delay

    def failures(self, key: str) -> int:
        """Return how often in a row the key failed."""
        return self._failures.get(key, 0)

    def next_due(self, now: float) -> float | None:
        """Return the seconds until a key is ready: 0 when one is, None when no key is due later."""
        self._wake(now)
        if self._ready:
            return 0.0
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] - now if self._later else None

    def _wake(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
