"""Places kept for gangs that wait: those expected to be free first, judged by when running gangs are thought to end."""

from __future__ import annotations

from collections.abc import Sequence, Set

from fairway.plan.scheduling.decision import Drafting
from fairway.plan.scheduling.ledger import Ledger, key_of
from fairway.plan.scheduling.memory import Reservation
from fairway.plan.scheduling.request import Request, Running
from fairway.plan.scheduling.shape import Seat
from fairway.state.job import JobKey

PATIENCE = 60.0
"""Seconds that a reservation which did not come true in time is kept before it is made anew."""
PATIENCE_PART = 0.1
"""Or this part of the time that it was made for, where that is more."""
MOST_PLAYED = 512
"""So many endings are played through to find the first that help; where more run, it is foreseen from arrays."""
WIDER = (1, 2, 4, 8)
"""How many times the gang must find devices, in one attempt after the other: the first may lack cores or memory."""


def keep(ledger: Ledger, request: Request, now: float, draft: Drafting) -> None:
    """See that the gang has places kept for it; they stay the same until they prove to be a mistake.

    Where runs take turns, places are kept only while somebody is on the way out: a gang whose turn it is makes room for itself,
    and places that stand empty until then would cost everybody.
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
    found = soonest(ledger, request, now)
    ledger.cluster.undo(mark)
    if found is None:
        ledger.memory.hopeless[name] = (now, ledger.accounts.total)
        draft.wake(now + PATIENCE)
        return
    ledger.memory.hopeless.pop(name, None)
    made = Reservation(*found, now)
    ledger.reserve(request.key, made)
    draft.wake(kept_until(made))


def kept_until(kept: Reservation) -> float:
    """When a reservation that did not come true is given up."""
    return max(kept.at, kept.made) + max(PATIENCE, PATIENCE_PART * (kept.at - kept.made))


def hopeless_until(ledger: Ledger, name: str) -> float:
    """Until when nobody looks again for places that could be kept for the run; not at all where none were looked for in vain."""
    since, total = ledger.memory.hopeless.get(name, (0.0, -1))
    return since + PATIENCE if total == ledger.accounts.total else 0.0


def keep_only(ledger: Ledger, names: set[str]) -> None:
    """Let go of what is kept for anybody else, apart from those for whom others are on the way out, and from plans of moves."""
    for name, kept in list(ledger.memory.reservations.items()):
        if name not in names and not kept.exact and not (is_coming(ledger, kept) and key_of(name) in ledger.room):
            ledger.unreserve(key_of(name))
    for name in [name for name in ledger.memory.hopeless if name not in names]:
        del ledger.memory.hopeless[name]


def drop_idle(ledger: Ledger, waiting: Set[JobKey]) -> None:
    """Let go of what was kept for runs that do not wait any more: they may have ended while nobody was told."""
    for name, kept in list(ledger.memory.reservations.items()):
        if key_of(name) not in waiting and not kept.exact:
            ledger.unreserve(key_of(name))
    for name in [name for name in ledger.memory.hopeless if key_of(name) not in waiting]:
        del ledger.memory.hopeless[name]


def is_coming(ledger: Ledger, kept: Reservation) -> bool:
    """Whether somebody is still on the way out for it."""
    return bool(kept.claims) and any(key_of(name) in ledger.roster.leaving for name in kept.claims)


def soonest(ledger: Ledger, request: Request, now: float) -> tuple[tuple[Seat, ...], float] | None:
    """The places that are free first when everybody ends as expected, and when that is."""
    if len(ledger.running) > MOST_PLAYED and request.gang.gpus:
        return _foreseen(ledger, request, now)
    return _played(ledger, request, now)


def _foreseen(ledger: Ledger, request: Request, now: float) -> tuple[tuple[Seat, ...], float] | None:
    """By when devices are expected to be free; where cores or memory are short, more nodes are looked at."""
    outlook = ledger.look_out()
    for times in WIDER:
        found = outlook.soonest(request.gang, times, now)
        if found is None:
            return None
        at, nodes = found
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


def _played(ledger: Ledger, request: Request, now: float) -> tuple[tuple[Seat, ...], float] | None:
    """By letting those who run end one after the other. Exact, and slow when very many run."""
    cluster = ledger.cluster
    leaving = sorted(ledger.running.values(), key=lambda running: (_end(ledger, running, now), running.request.key))
    leaving = leaving[:MOST_PLAYED]
    base = cluster.mark()
    # Twice as many each time until it fits, then halve the step: few trials even when many run.
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


def _end(ledger: Ledger, running: Running, now: float) -> float:
    return now if running.leaving else ledger.expected_end(running, now)


def _release(ledger: Ledger, gangs: Sequence[Running]) -> None:
    for running in gangs:
        ledger.cluster.give(running.seats)
