"""Execute a plan of moves: evict its runs and start each at exactly the places that the plan names."""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.scheduling import queue_fill, resource_amount, seat_reservation
from fairway.plan.scheduling.decision import EvictDecision, EvictionCause, SchedulingDecision, SchedulingDraft
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskNodeSelector
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.preemption import defragmentation
from fairway.plan.scheduling.preemption.defragmentation import GangMove, MovePlan
from fairway.plan.scheduling.queueing import queue_rule
from fairway.plan.scheduling.scheduler_memory import SeatReservation
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of

PATIENCE = 120.0
"""Seconds for which the places stay reserved after the last run has left."""


def begin(ledger: SchedulerState, plan: MovePlan, now: float) -> SchedulingDecision:
    """Evict the gangs and reserve their new places. Return an empty decision when the plan is out of date."""
    request = ledger.room.get(plan.whom)
    if request is None or any(not _still_sits(ledger, move) for move in plan.moves):
        return SchedulingDecision()
    for name in defragmentation.behind(ledger, request):
        ledger.unreserve(key_of(name))
    claims = tuple(str(move.key) for move in plan.moves)
    draft = SchedulingDraft()
    for move in plan.moves:
        draft.evictions.append(EvictDecision(move.key, EvictionCause.MOVE, plan.whom, _sizes(move)))
        ledger.mark_leaving(move.key)
        ledger.reserve(move.key, SeatReservation(move.after, now, now, claims, exact=True))
    ledger.reserve(plan.whom, SeatReservation(plan.seats, now, now, claims, exact=True))
    ledger.cluster.keep()
    return draft.finish()


def settle(ledger: SchedulerState, now: float, draft: SchedulingDraft) -> None:
    """Start the runs whose exact places are free, and release reservations that are out of date or have expired."""
    for name, kept in sorted(item for item in ledger.memory.reservations.items() if item[1].exact):
        request = ledger.room.get(key_of(name))
        if request is not None and not _suits(ledger, request, kept):
            ledger.unreserve(request.key)
        elif request is not None and _is_free(ledger, kept):
            ledger.unreserve(request.key)
            ledger.cluster.take(kept.seats)
            queue_fill.start(ledger, request, kept.seats, now, draft)
        elif not seat_reservation.is_coming(ledger, kept) and now >= _until(ledger, kept):
            ledger.unreserve(key_of(name))
        elif not seat_reservation.is_coming(ledger, kept):
            draft.wake(_until(ledger, kept))


def _still_sits(ledger: SchedulerState, move: GangMove) -> bool:
    running = ledger.running.get(move.key)
    return running is not None and not running.leaving and running.seats == move.before


def _sizes(move: GangMove) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for seat in move.after:
        counts[seat.role] = counts.get(seat.role, 0) + 1
    return tuple(sorted(counts.items()))


def _suits(ledger: SchedulerState, request: GangRequest, kept: SeatReservation) -> bool:
    """Return whether the reservation still matches the run's request and the limits of its queue."""
    shapes = {part.role: part.shape for part in request.gang.parts}
    counts = {part.role: 0 for part in request.gang.parts}
    for seat in kept.seats:
        if shapes.get(seat.role) != seat.shape:
            return False
        counts[seat.role] += 1
    if any(not part.least <= counts[part.role] <= max(part.least, part.most) for part in request.gang.parts):
        return False
    taken = resource_amount.of_seats(kept.seats, ledger.nodes)
    return queue_rule.limit(ledger.queue(request.queue), request.user, taken, ledger.accounts) is None


def _is_free(ledger: SchedulerState, kept: SeatReservation) -> bool:
    """Return whether all of these places are free."""
    cluster = ledger.cluster
    mark = cluster.mark()
    cluster.give(kept.seats)
    parts = []
    for number, seat in enumerate(kept.seats):
        where = TaskNodeSelector(nodes=(seat.node,), devices=seat.devices, tolerates=("*",))
        parts.append(GangRole(str(number), replace(seat.shape, where=where)))
    free = cluster.try_place(GangShape(tuple(parts))) is not None
    cluster.undo(mark)
    return free


def _until(ledger: SchedulerState, kept: SeatReservation) -> float:
    """Return until when the places stay reserved after all runs have left."""
    return max(kept.made, *(ledger.memory.left.get(name, 0.0) for name in kept.claims)) + PATIENCE
