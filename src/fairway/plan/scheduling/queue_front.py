"""Cache of the first blocked lines of each queue, so that later walks can skip them while nothing changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairway.plan.scheduling import seat_reservation
from fairway.plan.scheduling.queueing.waiting_room import Entry, Rank
from fairway.plan.scheduling.scheduler_state import SchedulerState

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class QueueFront:
    """The first blocked lines of a queue. While the entry is valid, trying them again would change nothing."""

    lines: list[Entry]
    limited: list[Entry]
    """The lines blocked by a limit."""
    names: frozenset[str]
    """Names of the first run of each line; these may have reservations."""
    until: float
    """When a reservation of one of them, or a failed search for one, expires."""
    total: int
    """`Accounts.total` at the time; -1 where the entry does not depend on it."""
    ruled: bool
    """Whether the queue has limits."""
    last: Rank | None
    """The rank of the last of these lines; None when the queue has no further lines."""

    def reaches(self, rank: Rank) -> bool:
        """Return whether a line of that rank is, or would be, among these lines."""
        return self.last is None or rank <= self.last


class QueueFrontCache:
    """The fronts by queue. Dropping them costs time only."""

    def __init__(self) -> None:
        self._kept: dict[str, QueueFront] = {}

    def begin(self, ledger: SchedulerState, now: float) -> dict[str, QueueFront]:
        """Return the valid fronts; drop the others and start to record changes of their queues."""
        room, valid = ledger.room, dict[str, QueueFront]()
        for name in room.queues():
            front = self._kept.get(name)
            if front is not None and name not in room.unsettled and self._holds(ledger, name, front, now):
                valid[name] = front
                continue
            self._kept.pop(name, None)
            room.watch(name, None)
            ledger.accounts.changed.discard(name)
        return valid

    def _holds(self, ledger: SchedulerState, name: str, front: QueueFront, now: float) -> bool:
        if now >= front.until or (front.ruled and name in ledger.accounts.changed):
            return False
        return front.total < 0 or front.total == ledger.accounts.total

    def keep(self, ledger: SchedulerState, name: str, lines: list[Entry], limited: list[Entry], *, full: bool) -> None:
        """Store the front of a queue, unless the queue has changed in the meantime or changes with time.

        `full`: the queue may have further lines behind these.
        """
        queue = ledger.queue(name)
        ruled = bool(queue.quota or queue.per_user)
        if queue.time_slice or name in ledger.room.unsettled or (ruled and name in ledger.accounts.changed):
            return
        until, total = NEVER, -1
        names = [str(rank[3]) for rank, _ in lines]
        for run_name in names:
            kept = ledger.memory.reservations.get(run_name)
            if kept is None and run_name not in ledger.memory.hopeless:
                return
            if kept is None:
                until, total = min(until, seat_reservation.hopeless_until(ledger, run_name)), ledger.accounts.total
            elif kept.claims and not kept.exact:
                return
            elif not kept.exact:
                until = min(until, seat_reservation.kept_until(kept))
        last = lines[-1][0] if full else None
        self._kept[name] = QueueFront(lines, limited, frozenset(names), until, total, ruled, last)
        ledger.room.watch(name, last)


def names_of(fronts: Iterable[QueueFront]) -> set[str]:
    """Return the names of all runs in these fronts."""
    return set().union(*(front.names for front in fronts))
