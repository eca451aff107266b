"""Cluster-wide view of which queues could be preempted or reclaimed from, and by which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.queueing import queue_rule
from fairway.plan.scheduling.queueing.queue_rule import Own
from fairway.plan.scheduling.queueing.waiting_room import WaitingLineKey
from fairway.plan.scheduling.resource_amount import Amounts
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.queue import Queue

MARGIN = 0.9
"""A queue reclaims its share only from queues with clearly more usage: small differences even out as runs end."""

Hoping = dict[str, dict[int, Amounts]]
"""By queue and priority: the largest request for each resource among runs with reservations."""


@dataclass(frozen=True, slots=True)
class QueueBalance:
    """The part of the view that changes only when runs start or leave, or reservations change."""

    queues: Mapping[str, Queue]
    """The active queues by name."""
    used: Mapping[str, Amounts]
    """Usage of each queue after all leaving runs have left and the runs for which they leave have started."""
    spare: Mapping[str, Own]
    """The unused entitlement of each queue then; negative where it borrows."""
    borrowing: dict[str, int]
    """Queues that exceed their entitlement, or would if their runs with reservations started, with the lowest priority of such
    runs."""
    lowest: int
    """The lowest priority of all running gangs."""
    lenders: set[str]
    """Queues that do not borrow while others do."""
    free: Amounts
    """Resources that are free, or will be when the leaving runs have left."""

    @classmethod
    def of(cls, ledger: SchedulerState, hoping: Hoping, more: tuple[str, ...] = ()) -> QueueBalance:
        """Return the view of the current state; `more` are additional queues without waiting or running gangs."""
        queues = {queue.name: queue for queue in (*ledger.active(), *(ledger.queue(name) for name in more))}
        own = queue_rule.belongings([queues[name] for name in sorted(queues)], ledger.accounts.totals)
        used = _used(ledger)
        spare = {name: queue_rule.spare(mine, used.get(name, {})) for name, mine in own.items()}
        borrowers = {name for name, unused in spare.items() if any(count < 0 for count in unused.values())}
        borrowing: dict[str, int] = {}
        for queue, priority in ledger.roster.classes:
            if queue in borrowers:
                borrowing[queue] = min(priority, borrowing.get(queue, priority))
        for queue, asking in hoping.items():
            _add_hoping(queue, asking, None if queue in borrowers else spare[queue], borrowing)
        free = dict(ledger.accounts.totals)
        for held in ledger.roster.held.values():
            resource_amount.add(free, held, -1)
        lowest = min((priority for _, priority in ledger.roster.classes), default=0)
        lenders = {name for name in spare if borrowing and name not in borrowers}
        return cls(queues, used, spare, borrowing, lowest, lenders, free)


class QueueBalanceCache:
    """Creates `PreemptionView` and caches the parts that have not changed. Dropping the cache costs time only."""

    def __init__(self) -> None:
        self._hoped = -1
        self._hoping: Hoping = {}
        self._seen: object = None
        self._stakes: QueueBalance | None = None

    def at(self, ledger: SchedulerState, now: float, more: tuple[str, ...] = ()) -> PreemptionView:
        """Return the view of the current state; `more` are additional queues without waiting or running gangs."""
        if self._hoped != ledger.hoping:
            self._hoped, self._hoping = ledger.hoping, _hoping(ledger)
        state = (ledger.hoping, ledger.changes, ledger.roster.changes, frozenset(ledger.room.queues()), more)
        if self._stakes is None or state != self._seen:
            self._seen, self._stakes = state, QueueBalance.of(ledger, self._hoping, more)
        return PreemptionView(ledger, self._stakes, now)


class PreemptionView:
    """The view at one point in time."""

    def __init__(self, ledger: SchedulerState, stakes: QueueBalance, now: float) -> None:
        self.used, self.spare, self.free = stakes.used, stakes.spare, stakes.free
        self.borrowing, self.lowest, self._lenders = stakes.borrowing, stakes.lowest, stakes.lenders
        queues, accounts = stakes.queues, ledger.accounts
        self.had = {name: accounts.had(name, now) / queues[name].weight for name in stakes.borrowing}
        """Current plus recent usage of each borrowing queue, by weight."""
        self._owners = {name for name in stakes.lenders if self._owns(ledger, queues[name], now)}
        """Lenders that may reclaim: they have a quota, or clearly less usage than some borrowing queue."""

    def _owns(self, ledger: SchedulerState, queue: Queue, now: float) -> bool:
        """Return whether the queue may reclaim anything, however small its request."""
        if queue.quota:
            return True
        more = self.more_of(ledger, queue.name, {})
        return ledger.accounts.had(queue.name, now, more) / queue.weight <= MARGIN * max(self.had.values())

    def more_of(self, ledger: SchedulerState, queue: str, asked: Amounts) -> Amounts:
        """Return what the queue will use in addition to its current usage, including `asked`."""
        more = dict(asked)
        resource_amount.add(more, self.used.get(queue, {}))
        resource_amount.add(more, ledger.accounts.used.get(queue, {}), -1)
        return more

    def matter_to(self, ledger: SchedulerState, line: WaitingLineKey, asked: Amounts) -> bool:
        """Return whether runs of that line might be able to preempt. A fast, optimistic check."""
        if (
            line.priority > self.lowest
            or line.queue in self._owners
            or ledger.roster.surplus
            or ledger.queue(line.queue).time_slice
        ):
            return True
        # It cannot preempt, but the resources that become free anyway may be enough.
        return line.queue in self._lenders and all(self.free.get(name, 0) >= count for name, count in asked.items())


def _used(ledger: SchedulerState) -> dict[str, Amounts]:
    """Return the usage of queues after all leaving runs have left and the runs for which they leave have started."""
    usage: dict[str, Amounts] = {}
    for (queue, _), held in ledger.roster.held.items():
        resource_amount.add(usage.setdefault(queue, {}), held)
    if ledger.roster.leaving:
        for name, kept in ledger.memory.reservations.items():
            request = ledger.room.get(key_of(name)) if kept.claims else None
            if request is not None and any(key_of(claim) in ledger.roster.leaving for claim in kept.claims):
                resource_amount.add(usage.setdefault(request.queue, {}), resource_amount.of_gang(request.gang))
    return usage


def _hoping(ledger: SchedulerState) -> Hoping:
    largest: Hoping = {}
    for name in ledger.memory.reservations:
        line = ledger.room.line_at(key_of(name))
        if line is not None:
            most = largest.setdefault(line.key.queue, {}).setdefault(line.key.priority, {})
            for what, count in line.asks().items():
                most[what] = max(count, most.get(what, count))
    return largest


def _add_hoping(queue: str, asking: dict[int, Amounts], left: Own | None, borrowing: dict[str, int]) -> None:
    """Add the queue to `borrowing` where it borrows (`left` is None) or reserved runs would exceed its unused entitlement."""
    for priority, most in sorted(asking.items()):
        if borrowing.get(queue, priority + 1) <= priority:
            return
        if left is None or _exceeds(most, left):
            borrowing[queue] = priority
            return


def _exceeds(asked: Amounts, left: Own) -> bool:
    """Return whether the request exceeds the unused entitlement of any resource."""
    return any(what in left and count > left[what] for what, count in asked.items())
