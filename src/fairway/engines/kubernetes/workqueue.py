"""Keys that wait to be looked at. Pure: the time is an argument, and nothing sleeps here.

A key stands in the queue once, however often it is added. While one is in work it is not handed out again; added meanwhile, it
comes back when that work is done. A failure comes back later, each time twice as late.
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
        """What is in `_ready`, or will be when its work is done."""
        self._working: set[str] = set()
        self._later: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        """When a key comes back; the heap may hold older entries of it, which count for nothing."""
        self._failures: dict[str, int] = {}
        self._number = 0

    def __len__(self) -> int:
        """Keys that are ready now."""
        return len(self._ready)

    def add(self, key: str) -> None:
        """Look at it as soon as possible."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._ready.append(key)

    def add_after(self, key: str, delay: float, now: float) -> None:
        """Look at it again after `delay` seconds; of several such wishes the earliest counts."""
        if delay <= 0:
            self.add(key)
            return
        due = now + delay
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._number += 1
            heapq.heappush(self._later, (due, self._number, key))

    def take(self, now: float) -> str | None:
        """The next key, which is in work from now on; none when nothing is due."""
        self._wake(now)
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """The work on it is over; if it was added meanwhile it is ready again."""
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)

    def succeeded(self, key: str) -> None:
        """The work on it is over and went well: its failures are forgotten."""
        self._failures.pop(key, None)
        self.done(key)

    def failed(self, key: str, now: float) -> float:
        """The work on it is over and did not go well: it comes back after a while. Returns how long."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(self._longest_pause, self._first_pause * 2.0 ** min(count, 60))
        self.done(key)
        self.add_after(key, delay, now)
        return delay

    def failures(self, key: str) -> int:
        """How often in a row it failed."""
        return self._failures.get(key, 0)

    def next_due(self, now: float) -> float | None:
        """Seconds until something is ready: 0 when something is, none when nothing will be by itself."""
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
