"""The cheapest changes that would let a waiting run start: each is tried and rolled back; only those that help are returned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fairway.plan.scheduling import seat_finder, seat_reservation
from fairway.plan.scheduling.forecast import duration_estimate
from fairway.plan.scheduling.gang import WHOLE, GangRole, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.preemption import preemption
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.state.job import JobKey

MOST_TOLD = 5
MOST_ENDS = 64
"""Maximum number of running gangs examined for one whose end would be enough, in order of expected end."""
MOST_OTHERS = 64
"""Maximum number of lines that may use the run's reservation first when the run gives it up."""
LEAST_TIMEOUT = 60.0
"""Shorter timeouts are not proposed."""


class StartHintKind(StrEnum):
    """What is changed, in order of cost to the user."""

    TIMEOUT = "timeout"
    TYPE = "gpu_type"
    PLACEMENT = "placement"
    QUEUE = "queue"
    GPUS = "gpus"
    CPU = "cpu"
    MEMORY = "memory"
    REPLICAS = "replicas"
    PRIORITY = "priority"
    ENDS = "ends"


_ORDER = {kind: number for number, kind in enumerate(StartHintKind)}


@dataclass(frozen=True, slots=True)
class StartHint:
    """A change that lets the run start."""

    kind: StartHintKind
    request: GangRequest
    """The changed request; unchanged where the run only waits for others to end."""
    role: str = ""
    """The role that is changed."""
    value: str = ""
    """The new value: a number, a GPU type, the name of a queue, or the placement rule to drop."""
    after: tuple[JobKey, ...] = ()
    """The runs that are evicted or must end first; empty when the run starts at once."""
    wait: duration_estimate.DurationEstimate | None = None
    """The expected time until they end, where they end by themselves."""
    lost: float = 0.0
    """The cost of the change; only the cheapest one of each kind is returned."""


def cheapest(ledger: SchedulerState, key: JobKey, now: float, queues: Sequence[str] = ()) -> list[StartHint]:
    """Return the changes that would let the run start, the cheapest first, one of each kind.

    `queues` are the alternative queues. A run with placed tasks can only wait for others to end.
    """
    request = ledger.room.get(key)
    if request is None:
        return []
    best_changes: dict[StartHintKind, StartHint] = {}
    for change in _all(ledger, request, now, queues):
        best_of_kind = best_changes.get(change.kind)
        if best_of_kind is None or change.lost < best_of_kind.lost:
            best_changes[change.kind] = change
    ordered = sorted(best_changes.values(), key=lambda change: _ORDER[change.kind])
    waits = [change for change in ordered if change.kind is StartHintKind.ENDS]
    return [change for change in ordered if change.kind is not StartHintKind.ENDS][: MOST_TOLD - len(waits)] + waits


def _all(ledger: SchedulerState, request: GangRequest, now: float, queues: Sequence[str]) -> Iterator[StartHint]:
    if request.key not in ledger.running:
        yield from _shorter(ledger, request, now)
        mark = ledger.cluster.mark()
        _step_aside(ledger, request, now)
        asked_otherwise = [*_of_parts(ledger, request), *_elsewhere(ledger, request), *_other_queues(ledger, request, queues)]
        ledger.cluster.undo(mark)
        yield from asked_otherwise
        yield from _more_urgent(ledger, request, now)
    yield from _ends(ledger, request, now)


def _of_parts(ledger: SchedulerState, request: GangRequest) -> Iterator[StartHint]:
    for part in request.gang.parts:
        yield from _other_types(ledger, request, part)
        yield from _fewer_gpus(ledger, request, part)
        yield from _smaller(ledger, request, part)
        yield from _fewer_replicas(ledger, request, part)


def _step_aside(ledger: SchedulerState, request: GangRequest, now: float) -> None:
    """Give up the run's reservation, and let the lines ahead of a new request take the freed places."""
    kept = ledger.memory.reservations.get(str(request.key))
    if kept is None:
        return
    ledger.cluster.give(kept.seats)
    for line in sorted(ledger.room.lines(), key=lambda line: line.rank())[:MOST_OTHERS]:
        others = sorted((other for other in line.members.values() if other.key != request.key), key=lambda other: other.submitted)
        if not others or str(others[0].key) in ledger.memory.reservations or seat_finder.limit_of(ledger, others[0]) is not None:
            continue
        if not isinstance(seat_finder.places(ledger, others[0]), tuple):
            later = seat_reservation.soonest(ledger, others[0], now)
            ledger.cluster.take(later[0] if later is not None else ())


def _starts(ledger: SchedulerState, changed: GangRequest) -> bool:
    """Return whether the changed request would start at once, after `_step_aside`."""
    return seat_finder.limit_of(ledger, changed) is None and seat_finder.would_do(ledger, changed) is not None


def _with_part(request: GangRequest, part: GangRole, changed: GangRole) -> GangRequest:
    parts = tuple(changed if existing is part else existing for existing in request.gang.parts)
    return replace(request, gang=replace(request.gang, parts=parts))


def _with_shape(request: GangRequest, part: GangRole, shape: TaskShape) -> GangRequest:
    return _with_part(request, part, replace(part, shape=shape))


def _other_types(ledger: SchedulerState, request: GangRequest, part: GangRole) -> Iterator[StartHint]:
    shape = part.shape
    if not shape.gpus or not shape.gpu_types:
        return
    available = {device.type for node in ledger.nodes.values() for device in node.devices if device.type and device.healthy}
    for kind in sorted(available.difference(shape.gpu_types)):
        changed = _with_shape(request, part, replace(shape, gpu_types=(kind,)))
        if _starts(ledger, changed):
            yield StartHint(StartHintKind.TYPE, changed, part.role, kind)


def _fewer_gpus(ledger: SchedulerState, request: GangRequest, part: GangRole) -> Iterator[StartHint]:
    for count in range(part.shape.gpus - 1, 0, -1):
        changed = _with_shape(request, part, replace(part.shape, gpus=count))
        if _starts(ledger, changed):
            yield StartHint(StartHintKind.GPUS, changed, part.role, str(count), lost=1 - count / part.shape.gpus)
            return


def _fewer_replicas(ledger: SchedulerState, request: GangRequest, part: GangRole) -> Iterator[StartHint]:
    too_many, enough = part.least, 0
    while too_many - enough > 1:
        middle = (too_many + enough) // 2
        if _starts(ledger, _with_part(request, part, replace(part, least=middle, most=middle))):
            enough = middle
        else:
            too_many = middle
    if enough:
        changed = _with_part(request, part, replace(part, least=enough, most=enough))
        yield StartHint(StartHintKind.REPLICAS, changed, part.role, str(enough), lost=1 - enough / part.least)


def _smaller(ledger: SchedulerState, request: GangRequest, part: GangRole) -> Iterator[StartHint]:
    """Yield a change to fewer cores or less memory for each task: as much as the emptiest nodes have, in round numbers."""
    shortfall = ledger.cluster.shortfall(request.gang)
    if shortfall is None or shortfall.role != part.role or shortfall.what not in ("cpu", "memory"):
        return
    shape, cores = part.shape, shortfall.what == "cpu"
    requested = shape.cpu if cores else shape.memory
    for amount in _round_amounts(shortfall.what, shortfall.most_on_a_node // (part.least if part.together else 1)):
        changed = _with_shape(request, part, replace(shape, cpu=amount) if cores else replace(shape, memory=amount))
        if _starts(ledger, changed):
            yield StartHint(
                StartHintKind.CPU if cores else StartHintKind.MEMORY, changed, part.role, str(amount), lost=1 - amount / requested
            )
            return


def _round_amounts(what: str, most: int) -> Iterator[int]:
    """Yield `most` rounded down to half cores or 256 MiB, then successive halves."""
    step = 500 if what == "cpu" else 256
    while most >= step:
        yield most // step * step
        most //= 2


def _elsewhere(ledger: SchedulerState, request: GangRequest) -> Iterator[StartHint]:
    """Yield changes that drop one placement rule."""
    gang = request.gang
    if gang.same_rack:
        yield from _lifted(ledger, replace(request, gang=replace(gang, same_rack=False)), "same_rack", "")
    for part in gang.parts:
        where = part.shape.where
        without = {
            "together": replace(part, together=False),
            "apart": replace(part, apart=False),
            "nodes": replace(part, shape=replace(part.shape, where=replace(where, nodes=()))),
            "devices": replace(part, shape=replace(part.shape, where=replace(where, devices=()))),
            "labels": replace(part, shape=replace(part.shape, where=replace(where, labels=()))),
        }
        for rule, changed in without.items():
            if changed != part:
                yield from _lifted(ledger, _with_part(request, part, changed), rule, part.role)


def _lifted(ledger: SchedulerState, changed: GangRequest, rule: str, role: str) -> Iterator[StartHint]:
    if _starts(ledger, changed):
        yield StartHint(StartHintKind.PLACEMENT, changed, role, rule)


def _other_queues(ledger: SchedulerState, request: GangRequest, queues: Iterable[str]) -> Iterator[StartHint]:
    for name in queues:
        changed = replace(request, queue=name)
        if name != request.queue and _starts(ledger, changed):
            yield StartHint(StartHintKind.QUEUE, changed, value=name)


def _more_urgent(ledger: SchedulerState, request: GangRequest, now: float) -> Iterator[StartHint]:
    """Yield the lowest priority, allowed by its queue, with which it would preempt others."""
    highest = ledger.queue(request.queue).priority
    others = {running.request.priority for running in ledger.running.values() if not running.leaving}
    for priority in sorted(other + 1 for other in others if other >= request.priority):
        if priority > 1000 or (highest is not None and priority > highest):
            return
        changed = replace(request, priority=priority)
        leaving = () if _others_first(ledger, changed) else _leaving_for(ledger, changed, now)
        if leaving:
            yield StartHint(StartHintKind.PRIORITY, changed, value=str(priority), after=leaving)
            return


def _others_first(ledger: SchedulerState, changed: GangRequest) -> bool:
    """Return whether another run of at least this priority would take the run's reserved places first."""
    kept = ledger.memory.reservations
    return str(changed.key) in kept and any(
        other.priority >= changed.priority and other.key != changed.key and str(other.key) not in kept
        for other in ledger.room.requests()
    )


def _leaving_for(ledger: SchedulerState, changed: GangRequest, now: float) -> tuple[JobKey, ...]:
    if seat_finder.limit_of(ledger, changed) is not None:
        return ()
    return tuple(victim.running.request.key for victim in preemption.would_leave(ledger, changed, now))


def _shorter(ledger: SchedulerState, request: GangRequest, now: float) -> Iterator[StartHint]:
    """Yield a timeout short enough for the run to be backfilled before the next reservation is needed.

    It does not apply to a run that has a reservation itself, or that shares its line with other runs.
    """
    kept = ledger.memory.reservations
    if any(request.key in line.members and len(line.members) > 1 for line in ledger.room.lines()):
        return
    until = min((reservation.at for reservation in kept.values()), default=now)
    spare = _round_seconds(until - now)
    if not spare or str(request.key) in kept or (request.limit is not None and request.limit <= spare):
        return
    changed = replace(request, limit=spare)
    if _slips_in(ledger, changed):
        yield StartHint(StartHintKind.TIMEOUT, changed, value=f"{spare:.0f}")


def _slips_in(ledger: SchedulerState, changed: GangRequest) -> bool:
    if ledger.longest(changed) is None or seat_finder.limit_of(ledger, changed) is not None:
        return False
    cluster = ledger.cluster
    mark = cluster.mark()
    for kept in ledger.memory.reservations.values():
        cluster.give(kept.seats)
    seats = seat_finder.would_do(ledger, changed)
    cluster.undo(mark)
    return seats is not None


def _round_seconds(span: float) -> float:
    """Return the span rounded down to a usual unit; 0 when it is too short."""
    for step in (86400.0, 3600.0, 900.0, 300.0, 60.0):
        if span >= 2 * step or (step == LEAST_TIMEOUT and span >= step):
            return span // step * step
    return 0.0


def _ends(ledger: SchedulerState, request: GangRequest, now: float) -> Iterator[StartHint]:
    """Yield the runs whose end would be enough: the single one expected to end first, or else several together."""
    leaving = sorted(ledger.running.values(), key=lambda running: (_expected(ledger, running, now).median, running.request.key))
    others = [running for running in leaving if running.request.key != request.key][:MOST_ENDS]
    together: list[RunningGang] = []
    for running in others:
        if _starts_without(ledger, request, [running]):
            yield StartHint(StartHintKind.ENDS, request, after=(running.request.key,), wait=_expected(ledger, running, now))
            return
    for running in others:
        together.append(running)
        if _starts_without(ledger, request, together):
            needed = _spared(together, lambda rest: _starts_without(ledger, request, rest))
            last = max(needed, key=lambda run: _expected(ledger, run, now).median)
            keys = tuple(run.request.key for run in needed)
            yield StartHint(StartHintKind.ENDS, request, after=keys, wait=_expected(ledger, last, now))
            return


def _spared(gangs: Sequence[RunningGang], enough: Callable[[Sequence[RunningGang]], bool]) -> list[RunningGang]:
    """Return only the gangs that are needed."""
    needed = list(gangs)
    for running in gangs[:-1]:
        rest = [member for member in needed if member is not running]
        if enough(rest):
            needed = rest
    return needed


def _starts_without(ledger: SchedulerState, request: GangRequest, gone: Sequence[RunningGang]) -> bool:
    """Return whether the run would start if these had ended."""
    same_queue = [running for running in gone if running.request.queue == request.queue]
    held = [(running.request.user, ledger.taken(running.request.key)) for running in same_queue]
    if seat_finder.limit_of(ledger, request, held) is not None:
        return False
    cluster = ledger.cluster
    mark = cluster.mark()
    own = ledger.memory.reservations.get(str(request.key))
    if own is not None:
        cluster.give(own.seats)
    for running in gone:
        cluster.give(running.seats)
    seats = seat_finder.would_do(ledger, request, held)
    cluster.undo(mark)
    return seats is not None


def _expected(ledger: SchedulerState, running: RunningGang, now: float) -> duration_estimate.DurationEstimate:
    request = running.request
    if request.service:
        return duration_estimate.DurationEstimate(math.inf, math.inf, math.inf, 0.0, "service")
    ran = ledger.memory.ran.get(str(request.key), (0.0, 0.0))[0] + max(0.0, now - running.since)
    return duration_estimate.estimate(
        ledger.memory.history, request.user, request.name, request.gang.gpus / WHOLE, request.limit, ran
    )
