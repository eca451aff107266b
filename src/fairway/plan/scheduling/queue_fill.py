"""Start waiting runs in order: by priority, then queue (below quota first, then least used), then least service, then age.

The first runs that do not fit get reservations. Runs behind them start only on places that are not reserved, or by backfill.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from fairway.plan.scheduling import seat_finder, seat_reservation
from fairway.plan.scheduling.decision import LimitObstacle, SchedulingDraft, StartDecision
from fairway.plan.scheduling.delta import RunWaiting
from fairway.plan.scheduling.freed_node_filter import FreedNodeFilter
from fairway.plan.scheduling.gang import GangShape, TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.queue_front import NEVER, QueueFrontCache, names_of
from fairway.plan.scheduling.queue_walk import QueueWalk, TryReason, has_room
from fairway.plan.scheduling.queueing.waiting_room import RequestKind, WaitingLine, WaitingLineKey
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.job import JobKey

RESERVED_A_QUEUE = 16
"""Maximum number of blocked gangs of a queue with reservations."""
MOST_ROUNDS = 4
"""Maximum number of walks in one decision; a walk is repeated when reservations were released during it."""


@dataclass(slots=True)
class QueueFillCache:
    """Results of the last walk, so that the next one tries only lines that a change may affect.

    Dropping it costs time only.
    """

    freed: int = -1
    """`SchedulerState.freed` when all waiting lines had been tried."""
    changes: int = -1
    roomy: set[RequestKind] = field(default_factory=set)
    """Kinds that fitted by a rough count when they were tried last."""
    limited: dict[tuple[str, str], dict[int, tuple[WaitingLine, LimitObstacle]]] = field(default_factory=dict)
    """Lines blocked by a limit, with the limit, by the (queue, user) whose release may lift it."""
    fronts: QueueFrontCache = field(default_factory=QueueFrontCache)
    """The first blocked lines of each queue."""
    unsure: dict[WaitingLineKey, WaitingLine] = field(default_factory=dict)
    """Lines that a retry may place although nothing was freed: the search for their places is not exhaustive."""


@dataclass(slots=True)
class BlockedLines:
    """The first blocked lines of each queue, in order: those that lack places and those blocked by a limit."""

    for_room: list[WaitingLine] = field(default_factory=list)
    by_rule: list[WaitingLine] = field(default_factory=list)


def fill(ledger: SchedulerState, findings: QueueFillCache, now: float, draft: SchedulingDraft) -> BlockedLines:
    """Start the runs that fit, in order. Return the blocked lines."""
    for _ in range(MOST_ROUNDS):
        freed = ledger.freed
        walk = _walk(ledger, findings, now, draft)
        if ledger.freed == freed:
            break
    else:
        draft.wake(now)
    return BlockedLines(walk.blocked(), walk.limited())


def _walk(ledger: SchedulerState, findings: QueueFillCache, now: float, draft: SchedulingDraft) -> QueueWalk:
    """Go through the waiting lines once.

    Free capacity never grows during a walk: reservations released on the way are offered in the next walk, again in order.
    So a line that did not fit before need not be tried again, whatever happens to the lines ahead of it.
    """
    keeping: set[str] = set()
    gains, ledger.freed_nodes = FreedNodeFilter(ledger, ledger.freed_nodes), set()
    walk = _begin(ledger, findings, gains, now)
    unsure = bool(findings.unsure)
    with ledger.holding_back():
        for line, hope in walk:
            if (
                hope is TryReason.KIND
                and ledger.freed == findings.freed
                and not (line.kind in findings.roomy or gains.help(line.kind))
            ):
                walk.give_up(line.kind)
                hope = TryReason.NONE
            if walk.its_turn(line, hope) and _must_wait(ledger, findings, walk, line, hope, now, draft):
                request = line.first()
                assert request is not None
                seat_reservation.keep(ledger, request, now, draft)
                keeping.add(str(request.key))
            if unsure and findings.changes != ledger.changes:
                # Nothing had changed when the walk began, so the unsure lines were left out.
                unsure = False
                _try_again(findings, walk)
    _settle(ledger, findings, walk, keeping, draft)
    return walk


def _may_gain(findings: QueueFillCache, gains: FreedNodeFilter, kind: RequestKind) -> bool:
    """Return whether lines of this kind may fit: they did by a rough count, or freed nodes may help."""
    return kind in findings.roomy or gains.help(kind)


def _try_again(findings: QueueFillCache, walk: QueueWalk) -> None:
    """Offer the unsure lines to the walk, as far as it has not passed them yet."""
    for line in list(findings.unsure.values()):
        if walk.offer(line):
            del findings.unsure[line.key]


def _must_wait(
    ledger: SchedulerState,
    findings: QueueFillCache,
    walk: QueueWalk,
    line: WaitingLine,
    hope: TryReason,
    now: float,
    draft: SchedulingDraft,
) -> bool:
    """Try to start the line's first run; return whether it is blocked for lack of places and among the first of its queue."""
    request, rank = line.first(), line.filed
    assert request is not None
    assert rank is not None
    outcome = _outcome(ledger, line, request, hope, now, draft)
    if isinstance(outcome, StartDecision):
        walk.started(line, rank)
        return False
    if hope is not TryReason.NONE or isinstance(outcome, LimitObstacle):
        _remember(ledger, findings, walk, line, outcome)
    if outcome is not None:
        walk.limit(line)
        ledger.room.unsettled.add(line.key.queue)
        return False
    return walk.passed(line)


def _settle(ledger: SchedulerState, findings: QueueFillCache, walk: QueueWalk, keeping: set[str], draft: SchedulingDraft) -> None:
    """Release all reservations except those of the first lines, and record these lines in `findings`."""
    settled = walk.settled().values()
    keeping |= names_of(settled)
    seat_reservation.keep_only(ledger, keeping)
    until = min((front.until for front in settled), default=NEVER)
    if until < NEVER:
        draft.wake(until)
    for name, lines, limited, full in walk.seen():
        findings.fronts.keep(ledger, name, lines, limited, full=full)


def _begin(ledger: SchedulerState, findings: QueueFillCache, gains: FreedNodeFilter, now: float) -> QueueWalk:
    """Return a walk over the lines that may fit by now and the first lines of each queue."""
    kinds: list[RequestKind] = []
    if findings.freed != ledger.freed:
        kinds = [kind for kind in ledger.room.kinds() if _may_gain(findings, gains, kind)]
        kinds = [kind for kind in kinds if has_room(ledger, kind.gang)]
        findings.roomy.intersection_update(kinds)
    eager = list(_eager(ledger, findings))
    if eager or kinds or findings.changes != ledger.changes:
        eager += findings.unsure.values()
        findings.unsure.clear()
    findings.freed, findings.changes = ledger.freed, ledger.changes
    return QueueWalk(ledger, eager, kinds, RESERVED_A_QUEUE, now, findings.fronts.begin(ledger, now))


def _outcome(
    ledger: SchedulerState, line: WaitingLine, request: GangRequest, hope: TryReason, now: float, draft: SchedulingDraft
) -> StartDecision | LimitObstacle | WaitingLine | None:
    """Return the result for a line's first run: its start, the limit that blocks it, or None when it does not fit.

    The line itself is returned for the limit that forbade the places found the last time: nothing has changed since.
    """
    if hope is not TryReason.NONE:
        return _try(ledger, request, now, draft)
    return line if line.mistyped else seat_finder.limit_of(ledger, request)


def start(ledger: SchedulerState, request: GangRequest, seats: tuple[TaskSeat, ...], now: float, draft: SchedulingDraft) -> None:
    """Record the start of a run on seats that are already taken in the cluster."""
    previous = ledger.running.get(request.key)
    ledger.withdraw(request.key)
    if previous is not None:
        ledger.cluster.give(seats)
        extended = replace(previous, seats=(*previous.seats, *seats), leaving=False)
        ledger.sit(replace(extended, request=replace(previous.request, resumes=request.resumes)), now)
    else:
        ledger.sit(RunningGang(request, seats, now), now, placed=True)
    draft.starts.append(StartDecision(request.key, seats))


def take_back(ledger: SchedulerState, key: JobKey, seats: Collection[TaskSeat], now: float, draft: SchedulingDraft) -> None:
    """Remove these seats from a run started in this decision; without any seats left it returns to the queue."""
    running = ledger.running[key]
    rest = tuple(seat for seat in running.seats if seat not in seats)
    draft.starts = [
        StartDecision(key, rest) if started.key == key else started for started in draft.starts if rest or started.key != key
    ]
    if rest:
        ledger.sit(replace(running, seats=rest), now)
    else:
        ledger.stand_up(running, now)
        ledger.apply(RunWaiting(running.request), now)


def try_start(ledger: SchedulerState, request: GangRequest, now: float, draft: SchedulingDraft) -> bool:
    """Start the run if it fits, regardless of the queue order; return whether it started."""
    return isinstance(_try(ledger, request, now, draft, sure=True), StartDecision)


def extend(ledger: SchedulerState, now: float, draft: SchedulingDraft) -> None:
    """Extend the gangs started in this decision beyond their minimum, on places that no other run can use."""
    for number, started in enumerate(draft.starts):
        running = ledger.running[started.key]
        if running.seats != started.seats or all(part.most <= part.least for part in running.request.gang.parts):
            continue
        seats = seat_finder.more(ledger, running.request, running.seats)
        if seats:
            draft.starts[number] = StartDecision(started.key, (*started.seats, *seats))
            ledger.extend(started.key, seats, now)


def is_certain(gang: GangShape) -> bool:
    """Return whether the placement search is exhaustive for the gang: then a failure is final until something is freed."""
    return len(gang.parts) == 1 and not (gang.parts[0].shape.shares and gang.parts[0].shape.gpus > 1)


def _eager(ledger: SchedulerState, findings: QueueFillCache) -> Iterator[WaitingLine]:
    """Yield the lines that are new, or may start though they could not the last time."""
    yield from ledger.room.take_fresh()
    for rule in ledger.accounts.take_eased():
        yield from _relieved(ledger, findings.limited.get(rule, {}))
    if findings.freed == ledger.freed:
        return
    for name in ledger.memory.reservations:
        waiting = ledger.room.line_at(key_of(name)) if any(ledger.promises.ready(name).values()) else None
        if waiting is not None:
            yield waiting


def _relieved(ledger: SchedulerState, limited: dict[int, tuple[WaitingLine, LimitObstacle]]) -> list[WaitingLine]:
    """Return the lines whose recorded limit no longer blocks them, and forget their limit."""
    relieved = []
    for at, (line, limit) in list(limited.items()):
        if line.filed is not None and line.rule is not None:
            of_user = ledger.accounts.used_by.get((limit.queue, limit.user), {})
            used = of_user if limit.of == "per_user" else ledger.accounts.used.get(limit.queue, {})
            if used.get(limit.what, 0) + limit.asked > limit.allowed:
                continue
            line.rule = None
            relieved.append(line)
        del limited[at]
    return relieved


def _try(
    ledger: SchedulerState, request: GangRequest, now: float, draft: SchedulingDraft, *, sure: bool = False
) -> StartDecision | LimitObstacle | None:
    """Start the run if it fits outside of the places reserved for others. None when it does not fit.

    Unless `sure`, the full search is skipped when the run does not fit by a rough count.
    """
    limit = seat_finder.limit_of(ledger, request)
    if limit is not None:
        return limit
    kept = ledger.memory.reservations.get(str(request.key))
    if kept is not None and kept.exact:
        return None
    ready = ledger.promises.ready(str(request.key))
    if not sure and any(ledger.cluster.room(part.shape) + ready.get(part.role, 0) < part.least for part in request.gang.parts):
        return None
    mark = ledger.cluster.mark()
    if kept is not None:
        ledger.cluster.give(kept.seats)
    seats = seat_finder.places(ledger, request)
    if not isinstance(seats, tuple):
        ledger.cluster.undo(mark)
        return seats
    if kept is not None:
        ledger.cluster.take(kept.seats)
    start(ledger, request, seats, now, draft)
    return draft.starts[-1]


def _remember(ledger: SchedulerState, findings: QueueFillCache, walk: QueueWalk, line: WaitingLine, outcome: object) -> None:
    """Record what the failure implies for the line and for others of its kind."""
    request = line.first()
    assert request is not None
    line.mistyped = isinstance(outcome, LimitObstacle)
    if isinstance(outcome, LimitObstacle) and seat_finder.limit_of(ledger, request) is not None:
        line.rule = (line.key.queue, line.key.user if outcome.of == "per_user" else "")
        findings.limited.setdefault(line.rule, {})[id(line)] = (line, outcome)
        walk.follow(line)
        return
    if isinstance(outcome, LimitObstacle) or not is_certain(line.key.gang) or line.key.beside is not None:
        findings.unsure[line.key] = line
    if has_room(ledger, line.kind.gang):
        findings.roomy.add(line.kind)
        walk.follow(line)
    else:
        walk.give_up(line.kind)
