"""Find places for a waiting run within the limits of its queue."""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.decision import LimitObstacle
from fairway.plan.scheduling.gang import GangShape, TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.queueing import queue_rule
from fairway.plan.scheduling.queueing.queue_rule import Gone
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.state.queue import GPU_TYPE

Seats = tuple[TaskSeat, ...]


def limit_of(ledger: SchedulerState, request: GangRequest, gone: Gone = ()) -> LimitObstacle | None:
    """Return the queue limit that blocks the run, whatever is free; None when there is none."""
    queue = ledger.queue(request.queue)
    if not queue.quota and not queue.per_user:
        return None
    return queue_rule.limit(queue, request.user, resource_amount.of_gang(request.gang), ledger.accounts, gone)


def places(ledger: SchedulerState, request: GangRequest, gone: Gone = ()) -> Seats | LimitObstacle | None:
    """Take places for the gang's minimum size and return them; a limit that forbids them; or None when there are none.

    The GPU types are known only after places are found: where the limit of that type is reached, other types are tried.
    """
    running = ledger.running.get(request.key)
    current_seats = running.seats if running is not None else ()
    mark = ledger.cluster.mark()
    seats = ledger.try_places(request.gang, current_seats)
    if seats is None:
        return None
    limit = _forbids(ledger, request, seats, gone)
    if limit is None:
        return seats
    ledger.cluster.undo(mark)
    if not limit.what.startswith(GPU_TYPE):
        return limit
    for kind in sorted(name for name in ledger.accounts.totals if name.startswith(GPU_TYPE)):
        seats_of_type = ledger.try_places(_of_type(request.gang, kind.removeprefix(GPU_TYPE)), current_seats)
        if seats_of_type is None:
            continue
        if _forbids(ledger, request, seats_of_type, gone) is None:
            return _as_asked(ledger, request.gang, seats_of_type)
        ledger.cluster.undo(mark)
    return limit


def would_do(ledger: SchedulerState, request: GangRequest, gone: Gone = ()) -> Seats | None:
    """Return the places that the run would get now, without taking them."""
    mark = ledger.cluster.mark()
    result = places(ledger, request, gone)
    ledger.cluster.undo(mark)
    return result if isinstance(result, tuple) else None


def more(ledger: SchedulerState, request: GangRequest, seats: Seats) -> Seats:
    """Take and return places for additional tasks of a gang with these seats, up to its maximum."""
    new_seats: Seats = ()
    own_usage = [(request.user, ledger.taken(request.key))]
    for part in request.gang.parts:
        count = sum(seat.role == part.role for seat in seats)
        step = part.most - count
        while step > 0 and count < part.most:
            step = min(step, part.most - count)
            mark = ledger.cluster.mark()
            extra_gang = GangShape((replace(part, least=step, most=step),), request.gang.same_rack)
            added = ledger.try_places(extra_gang, (*seats, *new_seats))
            if added is None or _forbids(ledger, request, (*seats, *new_seats, *added), own_usage) is not None:
                ledger.cluster.undo(mark)
                step //= 2
                continue
            new_seats, count = (*new_seats, *added), count + step
    return new_seats


def _forbids(ledger: SchedulerState, request: GangRequest, seats: Seats, gone: Gone = ()) -> LimitObstacle | None:
    queue = ledger.queue(request.queue)
    if not queue.quota and not queue.per_user:
        return None
    return queue_rule.limit(queue, request.user, resource_amount.of_seats(seats, ledger.nodes), ledger.accounts, gone)


def _of_type(gang: GangShape, kind: str) -> GangShape:
    parts = tuple(
        replace(part, shape=replace(part.shape, gpu_types=(kind,)))
        if part.shape.gpus and (not part.shape.gpu_types or kind in part.shape.gpu_types)
        else part
        for part in gang.parts
    )
    return replace(gang, parts=parts)


def _as_asked(ledger: SchedulerState, gang: GangShape, seats: Seats) -> Seats:
    """Take the same places with the gang's own shapes instead."""
    shapes = {part.role: part.shape for part in gang.parts}
    requested = tuple(replace(seat, shape=shapes[seat.role]) for seat in seats)
    ledger.cluster.give(seats)
    ledger.cluster.take(requested)
    return requested
