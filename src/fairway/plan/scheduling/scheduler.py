"""The scheduler: a fold. `apply` takes changes in, `decide` says who starts and who makes room.

The same changes give the same decisions, and so does a scheduler that is made with the memory of another and is then told
what nodes and queues there are and who waits.
The same code decides on one machine, on a cluster, and on a virtual clock.
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
    """Decides. What it knows is in `ledger`, what it must not forget in `ledger.memory`."""

    def __init__(self, memory: SchedulerMemory | None = None, policy: str = "fairway") -> None:
        self.ledger = Ledger(memory if memory is not None else SchedulerMemory(), policy)
        self._findings = fill.Findings()
        self._lengths = backfill.Lengths()
        self._standings = Standings()

    def apply(self, delta: Delta, now: float) -> None:
        """Take one change in."""
        self.ledger.apply(delta, now)

    def decide(self, now: float) -> Decision:
        """Who starts where, and who leaves for whom. What is decided is taken as done."""
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
        """Carry out a plan of moves: who leaves now. What it names is kept for those who come there, and for nobody else."""
        return moving.begin(self.ledger, plan, now)
