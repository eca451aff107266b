"""Reservations for waiting gangs: the places expected to be free first, from the expected ends of running gangs."""

from __future__ import annotations

from collections.abc import Sequence, Set

from fairway.plan.scheduling.decision import SchedulingDraft
from fairway.plan.scheduling.gang import TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.scheduler_memory import SeatReservation
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.job import JobKey

PATIENCE = 60.0
"""Seconds for which an overdue reservation is kept before it is computed again."""
PATIENCE_PART = 0.1
"""Or this fraction of its planned wait, where that is longer."""
MOST_PLAYED = 512
"""Maximum number of running gangs whose endings are simulated; with more, the `Outlook` arrays are used."""
WIDER = (1, 2, 4, 8)
"""Successive multiples of the gang for which devices are searched: the first nodes may lack cores or memory."""


def keep(ledger: SchedulerState, request: GangRequest, now: float, draft: SchedulingDraft) -> None:
    """Make sure that the gang has a reservation; it stays the same until it is overdue.

    In a time-sliced queue places are reserved only while victims are leaving for them: a gang whose turn it is preempts others
    itself, and places that stay empty until then would only be wasted.
    """
    name = str(request.key)
    kept = ledger.memory.reservations.get(name)
    if kept is not None and (kept.exact or is_coming(ledger, kept)):
        return
    if ledger.queue(request.queue).time_slice:
        ledger.unreserve(request.key)
        return
    until = kept_until(kept) if kept is not None else hopeless_until(ledger, name)
    if now < until:
        draft.wake(until)
        return
    ledger.unreserve(request.key)
    mark = ledger.cluster.mark()
    ledger.cluster.give(ledger.held_back or ())
    result = soonest(ledger, request, now)
    ledger.cluster.undo(mark)
    if result is None:
        ledger.memory.hopeless[name] = (now, ledger.accounts.total)
        draft.wake(now + PATIENCE)
        return
    ledger.memory.hopeless.pop(name, None)
    new_reservation = SeatReservation(*result, now)
    ledger.reserve(request.key, new_reservation)
    draft.wake(kept_until(new_reservation))


def kept_until(kept: SeatReservation) -> float:
    """Return when an overdue reservation expires."""
    return max(kept.at, kept.made) + max(PATIENCE, PATIENCE_PART * (kept.at - kept.made))


def hopeless_until(ledger: SchedulerState, name: str) -> float:
    """Return until when no reservation is searched for the run, because the last search failed; 0.0 when none did."""
    since, total = ledger.memory.hopeless.get(name, (0.0, -1))
    return since + PATIENCE if total == ledger.accounts.total else 0.0


def keep_only(ledger: SchedulerState, names: set[str]) -> None:
    """Release all reservations except those of `names`, of runs for which victims are leaving, and of plans of moves."""
    for name, kept in list(ledger.memory.reservations.items()):
        if name not in names and not kept.exact and not (is_coming(ledger, kept) and key_of(name) in ledger.room):
            ledger.unreserve(key_of(name))
    for name in [name for name in ledger.memory.hopeless if name not in names]:
        del ledger.memory.hopeless[name]


def drop_idle(ledger: SchedulerState, waiting: Set[JobKey]) -> None:
    """Release the reservations of runs that no longer wait: they may have ended without a delta."""
    for name, kept in list(ledger.memory.reservations.items()):
        if key_of(name) not in waiting and not kept.exact:
            ledger.unreserve(key_of(name))
    for name in [name for name in ledger.memory.hopeless if key_of(name) not in waiting]:
        del ledger.memory.hopeless[name]


def is_coming(ledger: SchedulerState, kept: SeatReservation) -> bool:
    """Return whether a victim is still leaving for the reservation."""
    return bool(kept.claims) and any(key_of(name) in ledger.roster.leaving for name in kept.claims)


def soonest(ledger: SchedulerState, request: GangRequest, now: float) -> tuple[tuple[TaskSeat, ...], float] | None:
    """Return the places that are free first when all runs end as expected, and when that is."""
    if len(ledger.running) > MOST_PLAYED and request.gang.gpus:
        return _foreseen(ledger, request, now)
    return _played(ledger, request, now)


def _foreseen(ledger: SchedulerState, request: GangRequest, now: float) -> tuple[tuple[TaskSeat, ...], float] | None:
    """Find places from the expected release times of devices; where cores or memory are short, more nodes are considered."""
    outlook = ledger.look_out()
    for times in WIDER:
        result = outlook.soonest(request.gang, times, now)
        if result is None:
            return None
        at, nodes = result
        mark = ledger.cluster.mark()
        for node in nodes:
            for key, seats in ledger.promises.sitters.get(node, {}).items():
                if _end(ledger, ledger.running[key], now) <= at:
                    ledger.cluster.give(seats)
        places = ledger.would_fit(request)
        ledger.cluster.undo(mark)
        if places is not None:
            return places, max(now, at)
    return None


def _played(ledger: SchedulerState, request: GangRequest, now: float) -> tuple[tuple[TaskSeat, ...], float] | None:
    """Find places by simulating the endings one after another. Exact, but slow with very many running gangs."""
    cluster = ledger.cluster
    leaving = sorted(ledger.running.values(), key=lambda running: (_end(ledger, running, now), running.request.key))
    leaving = leaving[:MOST_PLAYED]
    base = cluster.mark()
    # Double the number each time until it fits, then bisect: few trials even with many runs.
    released, fits, step = 0, 0, 1
    while released < len(leaving):
        _release(ledger, leaving[released : released + step])
        released = min(len(leaving), released + step)
        step *= 2
        if ledger.would_fit(request) is not None:
            fits = released
            break
    cluster.undo(base)
    if not fits:
        return None
    too_few = (fits + 1) // 2 - 1
    while fits - too_few > 1:
        middle = (fits + too_few) // 2
        _release(ledger, leaving[:middle])
        fits, too_few = (middle, too_few) if ledger.would_fit(request) is not None else (fits, middle)
        cluster.undo(base)
    _release(ledger, leaving[:fits])
    seats = ledger.would_fit(request)
    cluster.undo(base)
    return (seats, _end(ledger, leaving[fits - 1], now)) if seats is not None else None


def _end(ledger: SchedulerState, running: RunningGang, now: float) -> float:
    return now if running.leaving else ledger.expected_end(running, now)


def _release(ledger: SchedulerState, gangs: Sequence[RunningGang]) -> None:
    for running in gangs:
        ledger.cluster.give(running.seats)
