"""Execute a plan of moves: evict its runs and start each at exactly the places that the plan names."""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.scheduling import amounts, defragment, fill, reservation, rights
from fairway.plan.scheduling.decision import Cause, Decision, Drafting, Evict
from fairway.plan.scheduling.defragment import Move, MovePlan
from fairway.plan.scheduling.ledger import Ledger, key_of
from fairway.plan.scheduling.memory import Reservation
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.shape import Gang, Part, Where

PATIENCE = 120.0
"""Seconds for which the places stay reserved after the last run has left."""


def begin(ledger: Ledger, plan: MovePlan, now: float) -> Decision:
    """Evict the gangs and reserve their new places. Return an empty decision when the plan is out of date."""
    request = ledger.room.get(plan.whom)
    if request is None or any(not _still_sits(ledger, move) for move in plan.moves):
        return Decision()
    for name in defragment.behind(ledger, request):
        ledger.unreserve(key_of(name))
    claims = tuple(str(move.key) for move in plan.moves)
    draft = Drafting()
    for move in plan.moves:
        draft.evictions.append(Evict(move.key, Cause.MOVE, plan.whom, _sizes(move)))
        ledger.mark_leaving(move.key)
        ledger.reserve(move.key, Reservation(move.after, now, now, claims, exact=True))
    ledger.reserve(plan.whom, Reservation(plan.seats, now, now, claims, exact=True))
    ledger.cluster.keep()
    return draft.finish()


def settle(ledger: Ledger, now: float, draft: Drafting) -> None:
    """Start the runs whose exact places are free, and release reservations that are out of date or have expired."""
    for name, kept in sorted(item for item in ledger.memory.reservations.items() if item[1].exact):
        request = ledger.room.get(key_of(name))
        if request is not None and not _suits(ledger, request, kept):
            ledger.unreserve(request.key)
        elif request is not None and _is_free(ledger, kept):
            ledger.unreserve(request.key)
            ledger.cluster.take(kept.seats)
            fill.start(ledger, request, kept.seats, now, draft)
        elif not reservation.is_coming(ledger, kept) and now >= _until(ledger, kept):
            ledger.unreserve(key_of(name))
        elif not reservation.is_coming(ledger, kept):
            draft.wake(_until(ledger, kept))


def _still_sits(ledger: Ledger, move: Move) -> bool:
    running = ledger.running.get(move.key)
    return running is not None and not running.leaving and running.seats == move.before


def _sizes(move: Move) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for seat in move.after:
        counts[seat.role] = counts.get(seat.role, 0) + 1
    return tuple(sorted(counts.items()))


def _suits(ledger: Ledger, request: Request, kept: Reservation) -> bool:
    """Return whether the reservation still matches the run's request and the limits of its queue."""
    shapes = {part.role: part.shape for part in request.gang.parts}
    counts = {part.role: 0 for part in request.gang.parts}
    for seat in kept.seats:
        if shapes.get(seat.role) != seat.shape:
            return False
        counts[seat.role] += 1
    if any(not part.least <= counts[part.role] <= max(part.least, part.most) for part in request.gang.parts):
        return False
    taken = amounts.of_seats(kept.seats, ledger.nodes)
    return rights.limit(ledger.queue(request.queue), request.user, taken, ledger.accounts) is None


def _is_free(ledger: Ledger, kept: Reservation) -> bool:
    """Return whether all of these places are free."""
    cluster = ledger.cluster
    mark = cluster.mark()
    cluster.give(kept.seats)
    parts = []
    for number, seat in enumerate(kept.seats):
        where = Where(nodes=(seat.node,), devices=seat.devices, tolerates=("*",))
        parts.append(Part(str(number), replace(seat.shape, where=where)))
    free = cluster.try_place(Gang(tuple(parts))) is not None
    cluster.undo(mark)
    return free


def _until(ledger: Ledger, kept: Reservation) -> float:
    """Return until when the places stay reserved after all runs have left."""
    return max(kept.made, *(ledger.memory.left.get(name, 0.0) for name in kept.claims)) + PATIENCE
