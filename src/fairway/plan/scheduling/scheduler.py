"""The scheduler as a fold: `apply` processes changes, `decide` returns which runs start and which are evicted.

The same changes give the same decisions. So does a scheduler that is created with the memory of another one and then receives
the current nodes, queues and waiting runs. The same code decides on one machine, on a cluster and on a virtual clock.
"""

from __future__ import annotations

from fairway.plan.scheduling import queue_fill
from fairway.plan.scheduling.decision import SchedulingDecision, SchedulingDraft
from fairway.plan.scheduling.delta import Delta
from fairway.plan.scheduling.preemption import move_execution, preemption
from fairway.plan.scheduling.preemption.defragmentation import MovePlan
from fairway.plan.scheduling.preemption.queue_balance import QueueBalanceCache
from fairway.plan.scheduling.reservation import backfill, elastic_growth
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory
from fairway.plan.scheduling.scheduler_state import SchedulerState


class Scheduler:
    """The scheduler. Its state is `ledger`; the part to persist is `ledger.memory`."""

    def __init__(self, memory: SchedulerMemory | None = None, policy: str = "fairway") -> None:
        self.ledger = SchedulerState(memory if memory is not None else SchedulerMemory(), policy)
        self._findings = queue_fill.QueueFillCache()
        self._lengths = backfill.DurationBoundCache()
        self._standings = QueueBalanceCache()

    def apply(self, delta: Delta, now: float) -> None:
        """Apply one change."""
        self.ledger.apply(delta, now)

    def decide(self, now: float) -> SchedulingDecision:
        """Return which runs start where, and which are evicted for which. The decision is recorded as carried out."""
        draft = SchedulingDraft()
        climbs = self.ledger.take_turns(now)
        if climbs is not None:
            draft.wake(climbs)
        move_execution.settle(self.ledger, now, draft)
        blocked = queue_fill.fill(self.ledger, self._findings, now, draft)
        backfill.backfill(self.ledger, self._lengths, now, draft)
        queue_fill.extend(self.ledger, now, draft)
        if blocked.for_room or blocked.by_rule:
            preemption.make_room(self.ledger, self._standings, blocked, now, draft)
        if not blocked.for_room:
            elastic_growth.grow(self.ledger, now, draft)
        for started in draft.starts:
            self.ledger.learn(started.seats)
        self.ledger.cluster.keep()
        return draft.finish()

    def move(self, plan: MovePlan, now: float) -> SchedulingDecision:
        """Begin a plan of moves: return the evictions, and reserve the planned places exclusively for the moving runs."""
        return move_execution.begin(self.ledger, plan, now)
