"""Resource accounting: usage by queue and by user of a queue, current and time-averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.resource_amount import Amounts

HALF_LIFE = 6 * 3600.0
"""Half-life of past usage, in seconds."""

Usage = dict[str, tuple[float, float]]
"""By queue: its decayed average share, and the time for which it was computed."""


class UsageAccounts:
    """Running totals. `usage` belongs to the caller and is updated in place: it is part of the scheduler's memory."""

    def __init__(self, usage: Usage) -> None:
        self.totals: Amounts = {}
        self.used: dict[str, Amounts] = {}
        self.used_by: dict[tuple[str, str], Amounts] = {}
        self.usage = usage
        self.changed: set[str] = set()
        """Queues whose usage has changed; readers remove the entries that they have processed."""
        self._eased: set[tuple[str, str]] = set()

    def hold(self, queue: str, user: str, taken: Mapping[str, int], now: float | None) -> None:
        """Add what a run of the user holds; `now` is None when `usage` includes it already."""
        self._change(queue, user, taken, 1, now)

    def release(self, queue: str, user: str, taken: Mapping[str, int], now: float) -> None:
        """Subtract what a run of the user held."""
        self._change(queue, user, taken, -1, now)
        self._eased |= {(queue, user), (queue, "")}

    def take_eased(self) -> set[tuple[str, str]]:
        """Return the (queue, user) pairs with a release since the last call; an empty user stands for the queue as a whole."""
        eased, self._eased = self._eased, set()
        return eased

    @property
    def total(self) -> int:
        """The sum of all capacities; it shows whether the cluster's capacity has changed."""
        return sum(self.totals.values())

    def share(self, queue: str, more: Mapping[str, int] | None = None) -> float:
        """Return the queue's dominant share, 0 to 1: its largest fraction of any resource, with `more` added to its usage."""
        return self.dominant(queue, more)[1]

    def dominant(self, queue: str, more: Mapping[str, int] | None = None) -> tuple[str, float]:
        """Return the dominant resource and the share of it. GPU types do not count as separate resources here."""
        used = self.used.get(queue, {})
        best, share = "", 0.0
        for name, total in self.totals.items():
            held = used.get(name, 0) + (more.get(name, 0) if more else 0)
            if held > share * total and not name.startswith("gpu:"):
                best, share = name, held / total
        return best, share

    def recent(self, queue: str, now: float) -> float:
        """Return the queue's decayed average share: usage of `HALF_LIFE` seconds ago counts half."""
        return self._recent(queue, now, self.share(queue))

    def _recent(self, queue: str, now: float, share: float) -> float:
        value, at = self.usage.get(queue, (0.0, now))
        kept = math.exp2(-max(0.0, now - at) / HALF_LIFE)
        return value * kept + share * (1.0 - kept)

    def had(self, queue: str, now: float, more: Mapping[str, int] | None = None) -> float:
        """Return the sum of the queue's current and recent share; queues with a lower value are served first."""
        share = self.share(queue)
        return (self.share(queue, more) if more else share) + self._recent(queue, now, share)

    def _change(self, queue: str, user: str, taken: Mapping[str, int], times: int, now: float | None) -> None:
        self.changed.add(queue)
        if now is not None:
            self.usage[queue] = (self.recent(queue, now), now)
        resource_amount.add(self.used.setdefault(queue, {}), taken, times)
        own = self.used_by.setdefault((queue, user), {})
        resource_amount.add(own, taken, times)
        resource_amount.add(own, {"runs": 1}, times)
        if not own:
            del self.used_by[queue, user]
