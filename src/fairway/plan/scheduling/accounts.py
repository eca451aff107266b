"""Who uses how much: by queue, by user of a queue, now and lately."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fairway.plan.scheduling import amounts
from fairway.plan.scheduling.amounts import Amounts

HALF_LIFE = 6 * 3600.0
"""Seconds after which use counts half."""

Usage = dict[str, tuple[float, float]]
"""By queue: its share, averaged over the past with older use counting less, and when that was true."""


class Accounts:
    """Running totals. `usage` is the caller's and is kept up to date in place: it is part of what is remembered."""

    def __init__(self, usage: Usage) -> None:
        self.totals: Amounts = {}
        self.used: dict[str, Amounts] = {}
        self.used_by: dict[tuple[str, str], Amounts] = {}
        self.usage = usage
        self.changed: set[str] = set()
        """Queues that hold more or less than when somebody took them out of here."""
        self._eased: set[tuple[str, str]] = set()

    def hold(self, queue: str, user: str, taken: Mapping[str, int], now: float | None) -> None:
        """A run of the user holds so much from now on; None: it did already when `usage` was written."""
        self._change(queue, user, taken, 1, now)

    def release(self, queue: str, user: str, taken: Mapping[str, int], now: float) -> None:
        """It holds it no longer."""
        self._change(queue, user, taken, -1, now)
        self._eased |= {(queue, user), (queue, "")}

    def take_eased(self) -> set[tuple[str, str]]:
        """Queue and user of whatever was released since one last asked; without a user for the queue as a whole."""
        found, self._eased = self._eased, set()
        return found

    @property
    def total(self) -> int:
        """All that there is, as one number: it tells whether there is more or less than before."""
        return sum(self.totals.values())

    def share(self, queue: str, more: Mapping[str, int] | None = None) -> float:
        """The largest part that the queue holds of any resource, 0 to 1; as if it held `more` besides."""
        return self.dominant(queue, more)[1]

    def dominant(self, queue: str, more: Mapping[str, int] | None = None) -> tuple[str, float]:
        """Which resource that is, and the part. Types of GPUs are not resources of their own here."""
        used = self.used.get(queue, {})
        best, part = "", 0.0
        for name, total in self.totals.items():
            held = used.get(name, 0) + (more.get(name, 0) if more else 0)
            if held > part * total and not name.startswith("gpu:"):
                best, part = name, held / total
        return best, part

    def recent(self, queue: str, now: float) -> float:
        """Its share lately: an average over the past in which use of `HALF_LIFE` ago counts half."""
        return self._recent(queue, now, self.share(queue))

    def _recent(self, queue: str, now: float, share: float) -> float:
        value, at = self.usage.get(queue, (0.0, now))
        kept = math.exp2(-max(0.0, now - at) / HALF_LIFE)
        return value * kept + share * (1.0 - kept)

    def had(self, queue: str, now: float, more: Mapping[str, int] | None = None) -> float:
        """What it has and has had lately, as one number: who has had less is served first."""
        share = self.share(queue)
        return (self.share(queue, more) if more else share) + self._recent(queue, now, share)

    def _change(self, queue: str, user: str, taken: Mapping[str, int], times: int, now: float | None) -> None:
        self.changed.add(queue)
        if now is not None:
            self.usage[queue] = (self.recent(queue, now), now)
        amounts.add(self.used.setdefault(queue, {}), taken, times)
        own = self.used_by.setdefault((queue, user), {})
        amounts.add(own, taken, times)
        amounts.add(own, {"runs": 1}, times)
        if not own:
            del self.used_by[queue, user]
