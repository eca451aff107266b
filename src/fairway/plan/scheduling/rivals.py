"""Who could give way to whom, seen from all queues at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairway.plan.scheduling import amounts, rights
from fairway.plan.scheduling.amounts import Amounts
from fairway.plan.scheduling.ledger import Ledger, key_of
from fairway.plan.scheduling.rights import Own
from fairway.plan.scheduling.waiting import LineKey
from fairway.state.queue import Queue

MARGIN = 0.9
"""A queue takes back its part only from those that have had clearly more: small differences even out as runs end."""

Hoping = dict[str, dict[int, Amounts]]
"""By queue and priority: the most of each resource that any of those asks for who have places kept for them."""


@dataclass(frozen=True, slots=True)
class Stakes:
    """What does not change as long as nobody starts, leaves or gets places kept."""

    queues: Mapping[str, Queue]
    """Those that count, by name."""
    used: Mapping[str, Amounts]
    """What each queue will use when those have left who are on the way out, and those have started whom they leave for."""
    spare: Mapping[str, Own]
    """What each queue does not use of its own then; below zero what it borrows."""
    borrowing: dict[str, int]
    """Queues that use more than belongs to them, or would if those started for whom places are kept; with the lowest priority
    of those."""
    lowest: int
    """The lowest priority of all that run."""
    lenders: set[str]
    """Queues that borrow nothing while others do."""
    free: Amounts
    """What nobody holds, or will hold any longer when those have left who are on the way out."""

    @classmethod
    def of(cls, ledger: Ledger, hoping: Hoping, more: tuple[str, ...] = ()) -> Stakes:
        """As things stand; `more` are queues that count though nobody of them waits or runs."""
        queues = {queue.name: queue for queue in (*ledger.active(), *(ledger.queue(name) for name in more))}
        own = rights.belongings([queues[name] for name in sorted(queues)], ledger.accounts.totals)
        used = _used(ledger)
        spare = {name: rights.spare(mine, used.get(name, {})) for name, mine in own.items()}
        short = {name for name, left in spare.items() if any(count < 0 for count in left.values())}
        borrowing: dict[str, int] = {}
        for queue, priority in ledger.roster.classes:
            if queue in short:
                borrowing[queue] = min(priority, borrowing.get(queue, priority))
        for queue, asking in hoping.items():
            _add_hoping(queue, asking, None if queue in short else spare[queue], borrowing)
        free = dict(ledger.accounts.totals)
        for held in ledger.roster.held.values():
            amounts.add(free, held, -1)
        lowest = min((priority for _, priority in ledger.roster.classes), default=0)
        lenders = {name for name in spare if borrowing and name not in short}
        return cls(queues, used, spare, borrowing, lowest, lenders, free)


class Standings:
    """Makes `Rivals`, and remembers what has not changed since the last. Forgetting it costs time only."""

    def __init__(self) -> None:
        self._hoped = -1
        self._hoping: Hoping = {}
        self._seen: object = None
        self._stakes: Stakes | None = None

    def at(self, ledger: Ledger, now: float, more: tuple[str, ...] = ()) -> Rivals:
        """As things stand; `more` are queues that count though nobody of them waits or runs."""
        if self._hoped != ledger.hoping:
            self._hoped, self._hoping = ledger.hoping, _hoping(ledger)
        seen = (ledger.hoping, ledger.changes, ledger.roster.changes, frozenset(ledger.room.queues()), more)
        if self._stakes is None or seen != self._seen:
            self._seen, self._stakes = seen, Stakes.of(ledger, self._hoping, more)
        return Rivals(ledger, self._stakes, now)


class Rivals:
    """Who could give way at some time."""

    def __init__(self, ledger: Ledger, stakes: Stakes, now: float) -> None:
        self.used, self.spare, self.free = stakes.used, stakes.spare, stakes.free
        self.borrowing, self.lowest, self._lenders = stakes.borrowing, stakes.lowest, stakes.lenders
        queues, accounts = stakes.queues, ledger.accounts
        self.had = {name: accounts.had(name, now) / queues[name].weight for name in stakes.borrowing}
        """What each queue has and has had lately, by its weight: who has had less is served first."""
        self._owners = {name for name in stakes.lenders if self._owns(ledger, queues[name], now)}
        """Those of the lenders that may take back anything: they have a quota, or have had less than one that borrows."""

    def _owns(self, ledger: Ledger, queue: Queue, now: float) -> bool:
        """Whether the queue may take back anything, however little it asks for."""
        if queue.quota:
            return True
        more = self.more_of(ledger, queue.name, {})
        return ledger.accounts.had(queue.name, now, more) / queue.weight <= MARGIN * max(self.had.values())

    def more_of(self, ledger: Ledger, queue: str, asked: Amounts) -> Amounts:
        """What the queue will use more than now, with what is asked besides."""
        more = dict(asked)
        amounts.add(more, self.used.get(queue, {}))
        amounts.add(more, ledger.accounts.used.get(queue, {}), -1)
        return more

    def matter_to(self, ledger: Ledger, line: LineKey, asked: Amounts) -> bool:
        """Whether anybody of that line might have a claim on somebody. Quick, and generous."""
        if (
            line.priority > self.lowest
            or line.queue in self._owners
            or ledger.roster.surplus
            or ledger.queue(line.queue).time_slice
        ):
            return True
        # Nobody need give way to it, but it may do with what is free anyway.
        return line.queue in self._lenders and all(self.free.get(name, 0) >= count for name, count in asked.items())


def _used(ledger: Ledger) -> dict[str, Amounts]:
    """What queues will use when all who are on the way out have left and those have started whom they leave for."""
    found: dict[str, Amounts] = {}
    for (queue, _), held in ledger.roster.held.items():
        amounts.add(found.setdefault(queue, {}), held)
    if ledger.roster.leaving:
        for name, kept in ledger.memory.reservations.items():
            request = ledger.room.get(key_of(name)) if kept.claims else None
            if request is not None and any(key_of(claim) in ledger.roster.leaving for claim in kept.claims):
                amounts.add(found.setdefault(request.queue, {}), amounts.of_gang(request.gang))
    return found


def _hoping(ledger: Ledger) -> Hoping:
    found: Hoping = {}
    for name in ledger.memory.reservations:
        line = ledger.room.line_at(key_of(name))
        if line is not None:
            most = found.setdefault(line.key.queue, {}).setdefault(line.key.priority, {})
            for what, count in line.asks().items():
                most[what] = max(count, most.get(what, count))
    return found


def _add_hoping(queue: str, asking: dict[int, Amounts], left: Own | None, borrowing: dict[str, int]) -> None:
    """Add the queue where it borrows (`left` is None), or some of those who hope will take it past what belongs to it."""
    for priority, most in sorted(asking.items()):
        if borrowing.get(queue, priority + 1) <= priority:
            return
        if left is None or _exceeds(most, left):
            borrowing[queue] = priority
            return


def _exceeds(asked: Amounts, left: Own) -> bool:
    """Whether more is asked for than is left of anything."""
    return any(what in left and count > left[what] for what, count in asked.items())
