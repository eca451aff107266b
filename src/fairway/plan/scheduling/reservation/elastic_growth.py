"""Grow elastic gangs when no run is blocked."""

from __future__ import annotations

from fairway.plan.scheduling import seat_finder
from fairway.plan.scheduling.decision import EvictDecision, EvictionCause, SchedulingDraft
from fairway.plan.scheduling.gang_request import RunningGang
from fairway.plan.scheduling.scheduler_memory import SeatReservation
from fairway.plan.scheduling.scheduler_state import SchedulerState

SETTLED = 60.0
"""Minimum seconds at one size before a gang grows: growing requires a save and a restart."""


def grow(ledger: SchedulerState, now: float, draft: SchedulingDraft) -> None:
    """Restart one gang with more tasks: the smallest one that can resume. Only one gang grows at a time."""
    if ledger.roster.leaving:
        return
    growable = [running for key in ledger.roster.elastic if _could_grow(running := ledger.running[key])]
    for running in sorted(growable, key=lambda running: (len(running.seats), running.request.key)):
        if now < running.since + SETTLED:
            draft.wake(running.since + SETTLED)
            continue
        mark = ledger.cluster.mark()
        more = seat_finder.more(ledger, running.request, running.seats)
        ledger.cluster.undo(mark)
        if more:
            key, seats = running.request.key, (*running.seats, *more)
            sizes = {part.role: sum(seat.role == part.role for seat in seats) for part in running.request.gang.parts}
            draft.evictions.append(EvictDecision(key, EvictionCause.GROW, None, tuple(sorted(sizes.items()))))
            ledger.mark_leaving(key)
            ledger.reserve(key, SeatReservation(seats, now, now, (str(key),), exact=True))
            return


def _could_grow(running: RunningGang) -> bool:
    return any(sum(seat.role == part.role for seat in running.seats) < part.most for part in running.request.gang.parts)
