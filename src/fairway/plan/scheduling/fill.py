"""Who starts now: by priority, then the queue that lacks some of its quota or has had least, then who has had least, then age.

Whoever is first and does not fit gets places reserved. Others go past it only with what is not kept for it, or when they
are expected to be gone before it could start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from fairway.plan.scheduling import finding, reservation
from fairway.plan.scheduling.decision import Drafting, Limit, Start
from fairway.plan.scheduling.delta import Asked
from fairway.plan.scheduling.fronts import NEVER, Fronts, names_of
from fairway.plan.scheduling.gains import Gains
from fairway.plan.scheduling.ledger import Ledger, key_of
from fairway.plan.scheduling.request import Request, Running
from fairway.plan.scheduling.shape import Gang, Seat
from fairway.plan.scheduling.waiting import Kind, Line, LineKey
from fairway.plan.scheduling.walk import Hope, Walk, has_room
from fairway.state.job import JobKey

RESERVED_A_QUEUE = 16
"""So many blocked gangs of a queue have places kept for them."""
MOST_ROUNDS = 4
"""Places that were kept for somebody and are not any more are offered again at once, so often at most."""


@dataclass(slots=True)
class Findings:
    """What was found the last time, so that only those are tried for whom something has changed.

    Forgetting it costs time only.
    """

    freed: int = -1
    """`Ledger.freed` when all that wait had been tried."""
    changes: int = -1
    roomy: set[Kind] = field(default_factory=set)
    """What there was room for, by a rough count, when it was tried last."""
    limited: dict[tuple[str, str], dict[int, tuple[Line, Limit]]] = field(default_factory=dict)
    """Lines that a rule keeps waiting, by whose release would change that, with the rule."""
    fronts: Fronts = field(default_factory=Fronts)
    """Who comes first in each queue, and has no room."""
    unsure: dict[LineKey, Line] = field(default_factory=dict)
    """Lines for which another try may succeed though nothing was freed: the search for their places is not exhaustive."""


@dataclass(slots=True)
class Blocked:
    """Who goes on waiting, the first of each queue, in order."""

    for_room: list[Line] = field(default_factory=list)
    by_rule: list[Line] = field(default_factory=list)


def fill(ledger: Ledger, findings: Findings, now: float, draft: Drafting) -> Blocked:
    """Start what fits, in order. Returns who is blocked."""
    for _ in range(MOST_ROUNDS):
        freed = ledger.freed
        walk = _walk(ledger, findings, now, draft)
        if ledger.freed == freed:
            break
    else:
        draft.wake(now)
    return Blocked(walk.blocked(), walk.limited())


def _walk(ledger: Ledger, findings: Findings, now: float, draft: Drafting) -> Walk:
    """Go through those who wait, once.

    There is never more room than at the beginning: what becomes free on the way is offered the next time, to the first first.
    So nobody need be asked who found no room before, whatever becomes of those ahead of it.
    """
    keeping: set[str] = set()
    gains, ledger.freed_nodes = Gains(ledger, ledger.freed_nodes), set()
    walk = _begin(ledger, findings, gains, now)
    unsure = bool(findings.unsure)
    with ledger.holding_back():
        for line, hope in walk:
            if (
                hope is Hope.KIND
                and ledger.freed == findings.freed
                and not (line.kind in findings.roomy or gains.help(line.kind))
            ):
                walk.give_up(line.kind)
                hope = Hope.NONE
            if walk.its_turn(line, hope) and _must_wait(ledger, findings, walk, line, hope, now, draft):
                request = line.first()
                assert request is not None
                reservation.keep(ledger, request, now, draft)
                keeping.add(str(request.key))
            if unsure and findings.changes != ledger.changes:
                # Nothing had changed when the walk began, so that they were left out.
                unsure = False
                _try_again(findings, walk)
    _settle(ledger, findings, walk, keeping, draft)
    return walk


def _may_gain(findings: Findings, gains: Gains, kind: Kind) -> bool:
    """Whether there may be room for this kind though nobody of it found any: there was some, or some was freed."""
    return kind in findings.roomy or gains.help(kind)


def _try_again(findings: Findings, walk: Walk) -> None:
    """Those for whom another try may succeed are worth it after all, as far as they have not come yet."""
    for line in list(findings.unsure.values()):
        if walk.offer(line):
            del findings.unsure[line.key]


def _must_wait(ledger: Ledger, findings: Findings, walk: Walk, line: Line, hope: Hope, now: float, draft: Drafting) -> bool:
    """Start the first of the line if that can be; whether it waits for room instead, as one of the first of its queue."""
    request, rank = line.first(), line.filed
    assert request is not None
    assert rank is not None
    outcome = _outcome(ledger, line, request, hope, now, draft)
    if isinstance(outcome, Start):
        walk.started(line, rank)
        return False
    if hope is not Hope.NONE or isinstance(outcome, Limit):
        _remember(ledger, findings, walk, line, outcome)
    if outcome is not None:
        walk.limit(line)
        ledger.room.unsettled.add(line.key.queue)
        return False
    return walk.passed(line)


def _settle(ledger: Ledger, findings: Findings, walk: Walk, keeping: set[str], draft: Drafting) -> None:
    """Keep nothing but what is kept for the first lines, and remember those."""
    settled = walk.settled().values()
    keeping |= names_of(settled)
    reservation.keep_only(ledger, keeping)
    until = min((front.until for front in settled), default=NEVER)
    if until < NEVER:
        draft.wake(until)
    for name, lines, limited, full in walk.seen():
        findings.fronts.keep(ledger, name, lines, limited, full=full)


def _begin(ledger: Ledger, findings: Findings, gains: Gains, now: float) -> Walk:
    """A walk past those for whom there may be room by now, and past those who come first in each queue."""
    kinds: list[Kind] = []
    if findings.freed != ledger.freed:
        kinds = [kind for kind in ledger.room.kinds() if _may_gain(findings, gains, kind)]
        kinds = [kind for kind in kinds if has_room(ledger, kind.gang)]
        findings.roomy.intersection_update(kinds)
    eager = list(_eager(ledger, findings))
    if eager or kinds or findings.changes != ledger.changes:
        eager += findings.unsure.values()
        findings.unsure.clear()
    findings.freed, findings.changes = ledger.freed, ledger.changes
    return Walk(ledger, eager, kinds, RESERVED_A_QUEUE, now, findings.fronts.begin(ledger, now))


def _outcome(
    ledger: Ledger, line: Line, request: Request, hope: Hope, now: float, draft: Drafting
) -> Start | Limit | Line | None:
    """What becomes of the first of a line: it starts, or a rule keeps it, or there is no room.

    The line itself stands for the rule that forbade the places found the last time: nothing has changed since.
    """
    if hope is not Hope.NONE:
        return _try(ledger, request, now, draft)
    return line if line.mistyped else finding.limit_of(ledger, request)


def start(ledger: Ledger, request: Request, seats: tuple[Seat, ...], now: float, draft: Drafting) -> None:
    """Give a run the places that the cluster has handed out."""
    before = ledger.running.get(request.key)
    ledger.withdraw(request.key)
    if before is not None:
        ledger.cluster.give(seats)
        sitting = replace(before, seats=(*before.seats, *seats), leaving=False)
        ledger.sit(replace(sitting, request=replace(before.request, resumes=request.resumes)), now)
    else:
        ledger.sit(Running(request, seats, now), now, placed=True)
    draft.starts.append(Start(request.key, seats))


def take_back(ledger: Ledger, key: JobKey, seats: Collection[Seat], now: float, draft: Drafting) -> None:
    """A run that was to start does so without these places, or not at all when they are all it has: it waits on."""
    running = ledger.running[key]
    rest = tuple(seat for seat in running.seats if seat not in seats)
    draft.starts = [Start(key, rest) if each.key == key else each for each in draft.starts if rest or each.key != key]
    if rest:
        ledger.sit(replace(running, seats=rest), now)
    else:
        ledger.stand_up(running, now)
        ledger.apply(Asked(running.request), now)


def try_start(ledger: Ledger, request: Request, now: float, draft: Drafting) -> bool:
    """Start the run if there is room for it, whoever else waits."""
    return isinstance(_try(ledger, request, now, draft, sure=True), Start)


def extend(ledger: Ledger, now: float, draft: Drafting) -> None:
    """Give those that start now more tasks, where nobody else can use the room."""
    for number, started in enumerate(draft.starts):
        running = ledger.running[started.key]
        if running.seats != started.seats or all(part.most <= part.least for part in running.request.gang.parts):
            continue
        seats = finding.more(ledger, running.request, running.seats)
        if seats:
            draft.starts[number] = Start(started.key, (*started.seats, *seats))
            ledger.extend(started.key, seats, now)


def is_certain(gang: Gang) -> bool:
    """Whether the gang finds places whenever there are any: then a failure is final until something is freed."""
    return len(gang.parts) == 1 and not (gang.parts[0].shape.shares and gang.parts[0].shape.gpus > 1)


def _eager(ledger: Ledger, findings: Findings) -> Iterator[Line]:
    """The lines that may start though they could not the last time, or are new."""
    yield from ledger.room.take_fresh()
    for rule in ledger.accounts.take_eased():
        yield from _relieved(ledger, findings.limited.get(rule, {}))
    if findings.freed == ledger.freed:
        return
    for name in ledger.memory.reservations:
        waiting = ledger.room.line_at(key_of(name)) if any(ledger.promises.ready(name).values()) else None
        if waiting is not None:
            yield waiting


def _relieved(ledger: Ledger, limited: dict[int, tuple[Line, Limit]]) -> list[Line]:
    """Those that their rule allows now, as far as it alone is looked at."""
    found = []
    for at, (line, limit) in list(limited.items()):
        if line.filed is not None and line.rule is not None:
            of_user = ledger.accounts.used_by.get((limit.queue, limit.user), {})
            used = of_user if limit.of == "per_user" else ledger.accounts.used.get(limit.queue, {})
            if used.get(limit.what, 0) + limit.asked > limit.allowed:
                continue
            line.rule = None
            found.append(line)
        del limited[at]
    return found


def _try(ledger: Ledger, request: Request, now: float, draft: Drafting, *, sure: bool = False) -> Start | Limit | None:
    """Start the run if there is room for it; what is kept for others is not room. None when there is none.

    Unless one is `sure` that it is worth it, only those are tried that have enough room by a rough count.
    """
    limit = finding.limit_of(ledger, request)
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
    found = finding.places(ledger, request)
    if not isinstance(found, tuple):
        ledger.cluster.undo(mark)
        return found
    if kept is not None:
        ledger.cluster.take(kept.seats)
    start(ledger, request, found, now, draft)
    return draft.starts[-1]


def _remember(ledger: Ledger, findings: Findings, walk: Walk, line: Line, outcome: object) -> None:
    """What the failure says of the line, and of others of its kind."""
    request = line.first()
    assert request is not None
    line.mistyped = isinstance(outcome, Limit)
    if isinstance(outcome, Limit) and finding.limit_of(ledger, request) is not None:
        line.rule = (line.key.queue, line.key.user if outcome.of == "per_user" else "")
        findings.limited.setdefault(line.rule, {})[id(line)] = (line, outcome)
        walk.follow(line)
        return
    if isinstance(outcome, Limit) or not is_certain(line.key.gang) or line.key.beside is not None:
        findings.unsure[line.key] = line
    if has_room(ledger, line.kind.gang):
        findings.roomy.add(line.kind)
        walk.follow(line)
    else:
        walk.give_up(line.kind)
