"""Backfill: start a run on reserved places if it is expected to end before they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairway.plan.scheduling import queue_fill, seat_finder
from fairway.plan.scheduling.decision import SchedulingDraft
from fairway.plan.scheduling.gang import GangShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.queue_walk import QueueWalk
from fairway.plan.scheduling.queueing.waiting_room import WaitingLine
from fairway.plan.scheduling.reservation import idle_reserved_node
from fairway.plan.scheduling.reservation.idle_reserved_node import IdleReservedNode
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.state.job import JobKey

MOST_LOOKS = 32
"""Maximum number of lines tried in one decision, in queue order."""
DEPTH = 48
"""Number of blocked lines of each queue that are considered."""
MOST_KEPT = 4096


@dataclass(slots=True)
class DurationBoundCache:
    """Cache of the expected maximum durations of runs, valid until the history changes. Dropping it costs time only."""

    count: int = -1
    found: dict[JobKey, tuple[GangRequest, tuple[float, float] | None, float | None]] = field(default_factory=dict)

    def of(self, ledger: SchedulerState, request: GangRequest) -> float | None:
        """Return the expected maximum duration of a run; None when it is unknown."""
        if self.count != ledger.memory.history.count or len(self.found) > MOST_KEPT:
            self.count = ledger.memory.history.count
            self.found.clear()
        ran = ledger.memory.ran.get(str(request.key))
        entry = self.found.get(request.key)
        if entry is None or entry[0] is not request or entry[1] != ran:
            entry = self.found[request.key] = (request, ran, ledger.longest(request))
        return entry[2]


def backfill(ledger: SchedulerState, lengths: DurationBoundCache, now: float, draft: SchedulingDraft) -> None:
    """Start runs that fit on places reserved for others and are expected to end before those are needed."""
    nodes = [idle for idle in idle_reserved_node.idle_nodes(ledger) if idle.until > now]
    if not nodes:
        return
    walk = QueueWalk(ledger, (), (), DEPTH, now)
    looks = 0
    may_hold: dict[GangShape, bool] = {}
    for line, _ in walk:
        request = line.first()
        if request is not None and seat_finder.limit_of(ledger, request) is not None:
            # Treat it as if the walk had skipped it: whether its limit is recorded by now depends on the walk's history.
            continue
        walk.passed(line)
        gang, rank = line.key.gang, line.filed
        assert rank is not None
        if gang not in may_hold:
            may_hold[gang] = idle_reserved_node.may_hold(gang, nodes)
        if not may_hold[gang]:
            continue
        looks += 1
        if looks > MOST_LOOKS:
            return
        if _one_of(ledger, lengths, line, nodes, now, draft):
            nodes = [idle for idle in idle_reserved_node.idle_nodes(ledger) if idle.until > now]
            may_hold.clear()
            walk.started(line, rank)


def _one_of(
    ledger: SchedulerState,
    lengths: DurationBoundCache,
    line: WaitingLine,
    nodes: Sequence[IdleReservedNode],
    now: float,
    draft: SchedulingDraft,
) -> bool:
    """Start the line's first run, or the one with the shortest limit; return whether one was started."""
    if not nodes:
        return False
    first, briefest = line.first(), line.briefest()
    for request in (first, briefest if briefest is not first else None):
        if request is None:
            continue
        longest = lengths.of(ledger, request)
        gone_by = now + longest if longest is not None else nodes[0].until + 1.0
        if _slip_in(ledger, request, [idle for idle in nodes if idle.until >= gone_by], now, draft):
            return True
    return False


def _slip_in(
    ledger: SchedulerState, request: GangRequest, nodes: Sequence[IdleReservedNode], now: float, draft: SchedulingDraft
) -> bool:
    own = ledger.memory.reservations.get(str(request.key))
    if own is not None and (own.exact or own.claims):
        return False
    if not nodes or not idle_reserved_node.may_hold(request.gang, nodes) or seat_finder.limit_of(ledger, request) is not None:
        return False
    mark = ledger.cluster.mark()
    idle_reserved_node.give(ledger, request, nodes)
    seats = seat_finder.places(ledger, request)
    ledger.cluster.undo(mark)
    if not isinstance(seats, tuple):
        return False
    ledger.cluster.take(seats)
    queue_fill.start(ledger, request, seats, now, draft)
    return True
