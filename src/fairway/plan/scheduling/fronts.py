"""The first lines of each queue as they were found the last time, so that nobody walks past them again for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairway.plan.scheduling import reservation
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.waiting import Entry, Rank

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Front:
    """Lines for which there was no room, and what is kept for them. As long as it holds, to look again would change nothing."""

    lines: list[Entry]
    limited: list[Entry]
    """Lines among them that a rule keeps waiting."""
    names: frozenset[str]
    """Of the first run of each line."""
    until: float
    """When something that is kept for one of them is to be looked at again."""
    total: int
    """How much there was of everything; -1 where that does not matter."""
    ruled: bool
    """Whether the queue has rules that may forbid a start."""
    last: Rank | None
    """The rank of the last of them; None when the queue has no others."""

    def reaches(self, rank: Rank) -> bool:
        """Whether a line of that rank is, or would be, among them."""
        return self.last is None or rank <= self.last


class Fronts:
    """By queue. Forgetting them costs time only."""

    def __init__(self) -> None:
        self._kept: dict[str, Front] = {}

    def begin(self, ledger: Ledger, now: float) -> dict[str, Front]:
        """Those that hold; of the other queues it is noted from now on whether anything changes."""
        room, found = ledger.room, dict[str, Front]()
        for name in room.queues():
            front = self._kept.get(name)
            if front is not None and name not in room.unsettled and self._holds(ledger, name, front, now):
                found[name] = front
                continue
            self._kept.pop(name, None)
            room.watch(name, None)
            ledger.accounts.changed.discard(name)
        return found

    def _holds(self, ledger: Ledger, name: str, front: Front, now: float) -> bool:
        if now >= front.until or (front.ruled and name in ledger.accounts.changed):
            return False
        return front.total < 0 or front.total == ledger.accounts.total

    def keep(self, ledger: Ledger, name: str, lines: list[Entry], limited: list[Entry], *, full: bool) -> None:
        """Remember what was found of a queue, unless something has changed there meanwhile, or may by itself.

        `full`: there may be other lines behind these.
        """
        queue = ledger.queue(name)
        ruled = bool(queue.quota or queue.per_user)
        if queue.time_slice or name in ledger.room.unsettled or (ruled and name in ledger.accounts.changed):
            return
        until, total = NEVER, -1
        names = [str(rank[3]) for rank, _ in lines]
        for each in names:
            kept = ledger.memory.reservations.get(each)
            if kept is None and each not in ledger.memory.hopeless:
                return
            if kept is None:
                until, total = min(until, reservation.hopeless_until(ledger, each)), ledger.accounts.total
            elif kept.claims and not kept.exact:
                return
            elif not kept.exact:
                until = min(until, reservation.kept_until(kept))
        last = lines[-1][0] if full else None
        self._kept[name] = Front(lines, limited, frozenset(names), until, total, ruled, last)
        ledger.room.watch(name, last)


def names_of(fronts: Iterable[Front]) -> set[str]:
    """For whom something is kept in any of them."""
    return set().union(*(front.names for front in fronts))
