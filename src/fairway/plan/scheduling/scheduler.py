"""The scheduler as a fold: `apply` processes changes, `decide` returns which runs start and which are evicted.

The same changes give the same decisions. So does a scheduler that is created with the memory of another one and then receives
the current nodes, queues and waiting runs. The same code decides on one machine, on a cluster and on a virtual clock.
"""

from __future__ import annotations

from fairway.plan.scheduling import backfill, elastic, fill, moving, preempt
from fairway.plan.scheduling.decision import Decision, Drafting
from fairway.plan.scheduling.defragment import MovePlan
from fairway.plan.scheduling.delta import Delta
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.memory import SchedulerMemory
from fairway.plan.scheduling.rivals import Standings


class Scheduler:
    """The scheduler. Its state is `ledger`; the part to persist is `ledger.memory`."""

    def __init__(self, memory: SchedulerMemory | None = None, policy: str = "fairway") -> None:
        self.ledger = Ledger(memory if memory is not None else SchedulerMemory(), policy)
        self._findings = fill.Findings()
        self._lengths = backfill.Lengths()
        self._standings = Standings()

    def apply(self, delta: Delta, now: float) -> None:
        """Apply one change."""
        self.ledger.apply(delta, now)

    def decide(self, now: float) -> Decision:
        """Return which runs start where, and which are evicted for which. The decision is recorded as carried out."""
        draft = Drafting()
        climbs = self.ledger.take_turns(now)
        if climbs is not None:
            draft.wake(climbs)
        moving.settle(self.ledger, now, draft)
        blocked = fill.fill(self.ledger, self._findings, now, draft)
        backfill.backfill(self.ledger, self._lengths, now, draft)
        fill.extend(self.ledger, now, draft)
        if blocked.for_room or blocked.by_rule:
            preempt.make_room(self.ledger, self._standings, blocked, now, draft)
        if not blocked.for_room:
            elastic.grow(self.ledger, now, draft)
        for started in draft.starts:
            self.ledger.learn(started.seats)
        self.ledger.cluster.keep()
        return draft.finish()

    def move(self, plan: MovePlan, now: float) -> Decision:
        """Begin a plan of moves: return the evictions, and reserve the planned places exclusively for the moving runs."""
        return moving.begin(self.ledger, plan, now)
