"""When a gang waits only because free GPUs are scattered: the fewest moves that bring them together.

Only gangs that resume from a checkpoint move, each at once to places that are no worse: GPUs of the same type, on no more
nodes and racks, with links as good. Nothing moves by itself: a plan is made when somebody asks, and carried out when told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fairway.plan.scheduling import finding, preempt
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.request import Request, Running
from fairway.plan.scheduling.shape import WHOLE, Gang, Part, Seat, Shape
from fairway.state.job import JobKey
from fairway.state.node import Device

BUDGET = 3
"""Moves, at most."""
MOST_WAITING = 16
"""So many waiting gangs are looked at, the first in order first."""
MOST_MOVERS = 24
"""So many running gangs are thought of: those on the nodes that are nearest to having room, the cheapest first."""
MOST_TRIALS = 2000
"""So many sets of gangs are tried."""


@dataclass(frozen=True, slots=True)
class Move:
    """One gang goes from here to there."""

    key: JobKey
    before: tuple[Seat, ...]
    after: tuple[Seat, ...]
    cost: float
    """GPU-seconds: what is done again since the last checkpoint, and the time to start again."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves, and the gang that starts when they are done."""

    whom: JobKey
    seats: tuple[Seat, ...]
    moves: tuple[Move, ...]

    @property
    def cost(self) -> float:
        """GPU-seconds in all."""
        return sum(move.cost for move in self.moves)


def plan_moves(
    ledger: Ledger, now: float, budget: int = BUDGET, whom: JobKey | None = None, trials: int = MOST_TRIALS
) -> MovePlan | None:
    """The fewest moves that let a waiting gang start, the cheapest of these; None when none do. Nothing is changed.

    It is the first in order that moves help, or the one that is named. With many gangs only likely movers are tried.
    """
    heads = [line.first() for line in sorted(ledger.room.lines(), key=lambda line: line.rank())]
    waiting = [request for request in heads if request is not None][:MOST_WAITING] if whom is None else [ledger.room.get(whom)]
    for request in waiting:
        if request is None or request.key in ledger.running or finding.limit_of(ledger, request) is not None:
            continue
        mark = ledger.cluster.mark()
        for name in behind(ledger, request):
            ledger.cluster.give(ledger.memory.reservations[name].seats)
        found = _fewest(ledger, request, now, budget, trials) if _is_scattered(ledger, request) else None
        ledger.cluster.undo(mark)
        if found is not None:
            return found
    return None


def behind(ledger: Ledger, request: Request) -> list[str]:
    """Whose places are kept and may be given to the gang: its own, and those of gangs that come after it."""
    own = (-request.priority, request.submitted, request.key)
    found = []
    for name, kept in ledger.memory.reservations.items():
        other = ledger.room.get(JobKey(*name.split("/", 1)))
        if not kept.exact and other is not None and (-other.priority, other.submitted, other.key) >= own:
            found.append(name)
    return found


def _is_scattered(ledger: Ledger, request: Request) -> bool:
    """Whether it does not fit, though as much of GPUs is free as it needs: on several nodes, or on devices that are shared."""
    if not request.gang.gpus or ledger.would_fit(request) is not None:
        return False
    wanted: dict[Shape, int] = {}
    for part in request.gang.parts:
        wanted[part.shape] = wanted.get(part.shape, 0) + part.least * part.shape.gpus * part.shape.gpu_milli
    return all(ledger.cluster.free_gpus(shape)[0] >= milli for shape, milli in wanted.items() if milli)


def _fewest(ledger: Ledger, request: Request, now: float, budget: int, trials: int) -> MovePlan | None:
    movers = _movers(ledger, request, now)
    costs = {running.request.key: preempt.leaving_cost(running, now) for running in movers}
    for chosen in _sets(movers, costs, budget, trials):
        found = _try(ledger, request, chosen)
        if found is not None:
            seats, places = found
            moves = tuple(
                Move(running.request.key, running.seats, after, costs[running.request.key])
                for running, after in zip(chosen, places, strict=True)
                if not _same_places(running.seats, after)
            )
            return MovePlan(request.key, seats, moves)
    return None


def _sets(movers: Sequence[Running], costs: dict[JobKey, float], budget: int, trials: int) -> Iterator[tuple[Running, ...]]:
    """Every set of movers, small ones first, among these the cheap ones first."""
    for size in range(1, budget + 1):
        sets = list(combinations(movers, size))
        sets.sort(key=lambda chosen: sum(costs[running.request.key] for running in chosen))
        yield from sets[:trials]
        trials -= len(sets)
        if trials <= 0:
            return


def _movers(ledger: Ledger, request: Request, now: float) -> list[Running]:
    """Who might move: those on the nodes where the fewest would have to."""
    able = [running for running in ledger.running.values() if running.request.resumes and not running.leaving]
    able.sort(key=lambda running: (preempt.leaving_cost(running, now), running.request.key))
    if len(able) <= MOST_MOVERS:
        return able
    need = max(part.shape.gpus * part.shape.gpu_milli for part in request.gang.parts)
    near: dict[JobKey, Running] = {}
    for _, _, name in sorted(_distances(ledger, able, need)):
        for running in able:
            if len(near) < MOST_MOVERS and any(seat.node == name for seat in running.seats):
                near[running.request.key] = running
    return list(near.values())


def _distances(ledger: Ledger, able: Sequence[Running], need: int) -> Iterator[tuple[int, int, str]]:
    """For each node on which the need could be met: how many would have to move away, and what is missing now."""
    free = {name: WHOLE * sum(device.healthy for device in node.devices) for name, node in ledger.nodes.items()}
    for running in ledger.running.values():
        for seat in running.seats:
            if seat.node in free:
                free[seat.node] -= seat.shape.gpus * seat.milli
    movable: dict[str, list[int]] = {}
    for running in able:
        for seat in running.seats:
            movable.setdefault(seat.node, []).append(seat.shape.gpus * seat.milli)
    for name, sizes in movable.items():
        missing, count = need - free.get(name, 0), 0
        for size in sorted(sizes, reverse=True):
            if missing <= 0:
                break
            missing, count = missing - size, count + 1
        if missing <= 0 and count:
            yield count, need - free.get(name, 0), name


def _try(ledger: Ledger, request: Request, chosen: Sequence[Running]) -> tuple[tuple[Seat, ...], list[tuple[Seat, ...]]] | None:
    """Where the waiting gang and the movers would sit when the movers have left; None when there is no way."""
    cluster = ledger.cluster
    base = cluster.mark()
    for running in chosen:
        cluster.give(running.seats)
    if ledger.would_fit(request) is None:
        cluster.undo(base)
        return None
    gangs = [request.gang, *(_again(ledger, running) for running in chosen)]
    found = None
    for order in _orders(gangs):
        mark = cluster.mark()
        seats = _seat_all(ledger, gangs, order)
        cluster.undo(mark)
        places = [_as_asked(each, running) for each, running in zip(seats[1:], chosen, strict=True)] if seats else []
        if seats and all(not _is_worse(ledger, running.seats, after) for running, after in zip(chosen, places, strict=True)):
            found = (seats[0], places)
            break
    cluster.undo(base)
    return found


def _orders(gangs: Sequence[Gang]) -> list[tuple[int, ...]]:
    """In which order to seat them: the waiting one first, or last, or all in one go."""
    movers = sorted(range(1, len(gangs)), key=lambda number: -gangs[number].gpus)
    return [(0, *movers), (*movers, 0), ()]


def _seat_all(ledger: Ledger, gangs: Sequence[Gang], order: Sequence[int]) -> list[tuple[Seat, ...]]:
    if not order:
        return _seat_at_once(ledger, gangs)
    seats: list[tuple[Seat, ...]] = [()] * len(gangs)
    for number in order:
        found = ledger.cluster.try_place(gangs[number])
        if found is None:
            return []
        seats[number] = found
    return seats


def _seat_at_once(ledger: Ledger, gangs: Sequence[Gang]) -> list[tuple[Seat, ...]]:
    """As one gang, for which the cluster searches; racks are one rule for all, so that it may find less than there is."""
    parts = [replace(part, role=f"{number}/{part.role}") for number, gang in enumerate(gangs) for part in gang.parts]
    found = ledger.cluster.try_place(Gang(tuple(parts), any(gang.same_rack for gang in gangs)))
    if found is None:
        return []
    seats: list[list[Seat]] = [[] for _ in gangs]
    for seat in found:
        number, _, role = seat.role.partition("/")
        seats[int(number)].append(replace(seat, role=role))
    return [tuple(each) for each in seats]


def _again(ledger: Ledger, running: Running) -> Gang:
    """What a gang must find elsewhere: as many places as it has, of the same kind, and as close together."""
    parts: list[Part] = []
    for part in running.request.gang.parts:
        own = [seat for seat in running.seats if seat.role == part.role]
        if own:
            kinds = tuple(sorted({device.type for seat in own for device in _devices(ledger, seat) if device.type}))
            shape = replace(part.shape, gpu_types=kinds) if kinds else part.shape
            close = part.together or (len(own) > 1 and len({seat.node for seat in own}) == 1)
            parts.append(replace(part, shape=shape, least=len(own), most=len(own), together=close))
    racks = {ledger.nodes[seat.node].rack for seat in running.seats if seat.node in ledger.nodes}
    return Gang(tuple(parts), running.request.gang.same_rack or (len(racks) == 1 and len(running.seats) > 1))


def _as_asked(seats: Sequence[Seat], running: Running) -> tuple[Seat, ...]:
    """The seats with what the run itself asks for."""
    shapes = {part.role: part.shape for part in running.request.gang.parts}
    return tuple(replace(seat, shape=shapes[seat.role]) for seat in seats)


def _same_places(before: Sequence[Seat], after: Sequence[Seat]) -> bool:
    return sorted((seat.node, seat.devices) for seat in before) == sorted((seat.node, seat.devices) for seat in after)


def _is_worse(ledger: Ledger, before: Sequence[Seat], after: Sequence[Seat]) -> bool:
    """Whether anything about the new places is worse than about the old."""
    was, becomes = _spread(ledger, before), _spread(ledger, after)
    return _kinds(ledger, before) != _kinds(ledger, after) or any(new > old for old, new in zip(was, becomes, strict=True))


def _kinds(ledger: Ledger, seats: Sequence[Seat]) -> list[tuple[str, int]]:
    return sorted((device.type, device.memory) for seat in seats for device in _devices(ledger, seat))


def _spread(ledger: Ledger, seats: Sequence[Seat]) -> tuple[int, int, int, int]:
    """Racks, nodes, and over all tasks the islands of direct links and the NUMA nodes that their GPUs lie on."""
    nodes = {seat.node for seat in seats}
    racks = {ledger.nodes[name].rack for name in nodes if name in ledger.nodes}
    islands = sum(len({device.island or device.uuid for device in _devices(ledger, seat)}) for seat in seats)
    numas = sum(len({device.numa for device in _devices(ledger, seat)}) for seat in seats)
    return len(racks), len(nodes), islands, numas


def _devices(ledger: Ledger, seat: Seat) -> list[Device]:
    node = ledger.nodes.get(seat.node)
    return [device for device in node.devices if device.uuid in seat.devices] if node is not None else []
