"""Places for a run that waits, within the rules of its queue."""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.scheduling import amounts, rights
from fairway.plan.scheduling.decision import Limit
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.rights import Gone
from fairway.plan.scheduling.shape import Gang, Seat
from fairway.state.queue import GPU_TYPE

Seats = tuple[Seat, ...]


def limit_of(ledger: Ledger, request: Request, gone: Gone = ()) -> Limit | None:
    """The rule of its queue that keeps the run waiting, whatever room there is."""
    queue = ledger.queue(request.queue)
    if not queue.quota and not queue.per_user:
        return None
    return rights.limit(queue, request.user, amounts.of_gang(request.gang), ledger.accounts, gone)


def places(ledger: Ledger, request: Request, gone: Gone = ()) -> Seats | Limit | None:
    """Places for the least of the gang, taken; or the rule that forbids those there are; or None when there are none.

    Only when places are found it is known of which type their GPUs are: where that type is used up, another may do.
    """
    sitting = ledger.running.get(request.key)
    beside = sitting.seats if sitting is not None else ()
    mark = ledger.cluster.mark()
    seats = ledger.try_places(request.gang, beside)
    if seats is None:
        return None
    limit = _forbids(ledger, request, seats, gone)
    if limit is None:
        return seats
    ledger.cluster.undo(mark)
    if not limit.what.startswith(GPU_TYPE):
        return limit
    for kind in sorted(name for name in ledger.accounts.totals if name.startswith(GPU_TYPE)):
        found = ledger.try_places(_of_type(request.gang, kind.removeprefix(GPU_TYPE)), beside)
        if found is None:
            continue
        if _forbids(ledger, request, found, gone) is None:
            return _as_asked(ledger, request.gang, found)
        ledger.cluster.undo(mark)
    return limit


def would_do(ledger: Ledger, request: Request, gone: Gone = ()) -> Seats | None:
    """The places that the run would get as things stand; they are not taken."""
    mark = ledger.cluster.mark()
    found = places(ledger, request, gone)
    ledger.cluster.undo(mark)
    return found if isinstance(found, tuple) else None


def more(ledger: Ledger, request: Request, seats: Seats) -> Seats:
    """Places for more tasks of a running gang than these, as many as it wants and there are; they are taken."""
    found: Seats = ()
    gone = [(request.user, ledger.taken(request.key))]
    for part in request.gang.parts:
        count = sum(seat.role == part.role for seat in seats)
        step = part.most - count
        while step > 0 and count < part.most:
            step = min(step, part.most - count)
            mark = ledger.cluster.mark()
            one = Gang((replace(part, least=step, most=step),), request.gang.same_rack)
            added = ledger.try_places(one, (*seats, *found))
            if added is None or _forbids(ledger, request, (*seats, *found, *added), gone) is not None:
                ledger.cluster.undo(mark)
                step //= 2
                continue
            found, count = (*found, *added), count + step
    return found


def _forbids(ledger: Ledger, request: Request, seats: Seats, gone: Gone = ()) -> Limit | None:
    queue = ledger.queue(request.queue)
    if not queue.quota and not queue.per_user:
        return None
    return rights.limit(queue, request.user, amounts.of_seats(seats, ledger.nodes), ledger.accounts, gone)


def _of_type(gang: Gang, kind: str) -> Gang:
    parts = tuple(
        replace(part, shape=replace(part.shape, gpu_types=(kind,)))
        if part.shape.gpus and (not part.shape.gpu_types or kind in part.shape.gpu_types)
        else part
        for part in gang.parts
    )
    return replace(gang, parts=parts)


def _as_asked(ledger: Ledger, gang: Gang, seats: Seats) -> Seats:
    """The same places, taken by tasks that ask for what they asked for."""
    shapes = {part.role: part.shape for part in gang.parts}
    asked = tuple(replace(seat, shape=shapes[seat.role]) for seat in seats)
    ledger.cluster.give(seats)
    ledger.cluster.take(asked)
    return asked
