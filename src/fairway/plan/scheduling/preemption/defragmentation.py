"""Defragmentation: the fewest moves of running gangs that let a gang start which waits only because free GPUs are scattered.

Only gangs that resume from a checkpoint move, each in one step to places that are no worse: GPUs of the same type, on no more
nodes and racks, with equally good links. Nothing moves automatically: a user requests a plan, and requests its execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fairway.plan.scheduling import seat_finder
from fairway.plan.scheduling.gang import WHOLE, GangRole, GangShape, TaskSeat, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.preemption import preemption
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.state.job import JobKey
from fairway.state.node import NodeDevice

BUDGET = 3
"""Maximum number of moves."""
MOST_WAITING = 16
"""Maximum number of waiting gangs considered, in queue order."""
MOST_MOVERS = 24
"""Maximum number of running gangs considered: those on the nodes that need the fewest moves, the cheapest first."""
MOST_TRIALS = 2000
"""Maximum number of sets of gangs tried."""


@dataclass(frozen=True, slots=True)
class GangMove:
    """One gang moves from its current seats to new ones."""

    key: JobKey
    before: tuple[TaskSeat, ...]
    after: tuple[TaskSeat, ...]
    cost: float
    """GPU-seconds lost: the work since the last checkpoint, and the restart."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves, and the gang that can start after them."""

    whom: JobKey
    seats: tuple[TaskSeat, ...]
    moves: tuple[GangMove, ...]

    @property
    def cost(self) -> float:
        """Total GPU-seconds lost."""
        return sum(move.cost for move in self.moves)


def plan_moves(
    ledger: SchedulerState, now: float, budget: int = BUDGET, whom: JobKey | None = None, trials: int = MOST_TRIALS
) -> MovePlan | None:
    """Return the fewest moves that let a waiting gang start, the cheapest of equal number; None when no moves help.

    The gang is `whom`, or the first in queue order that moves help. With many running gangs only likely ones are tried. The
    ledger is left unchanged.
    """
    heads = [line.first() for line in sorted(ledger.room.lines(), key=lambda line: line.rank())]
    waiting = [request for request in heads if request is not None][:MOST_WAITING] if whom is None else [ledger.room.get(whom)]
    for request in waiting:
        if request is None or request.key in ledger.running or seat_finder.limit_of(ledger, request) is not None:
            continue
        mark = ledger.cluster.mark()
        for name in behind(ledger, request):
            ledger.cluster.give(ledger.memory.reservations[name].seats)
        plan = _fewest(ledger, request, now, budget, trials) if _is_scattered(ledger, request) else None
        ledger.cluster.undo(mark)
        if plan is not None:
            return plan
    return None


def behind(ledger: SchedulerState, request: GangRequest) -> list[str]:
    """Return the names of the runs whose reservations the gang may use: its own, and those of gangs ranked after it."""
    own = (-request.priority, request.submitted, request.key)
    names = []
    for name, reservation in ledger.memory.reservations.items():
        other = ledger.room.get(JobKey(*name.split("/", 1)))
        if not reservation.exact and other is not None and (-other.priority, other.submitted, other.key) >= own:
            names.append(name)
    return names


def _is_scattered(ledger: SchedulerState, request: GangRequest) -> bool:
    """Return whether the gang does not fit although enough GPU capacity is free, scattered over nodes or shared devices."""
    if not request.gang.gpus or ledger.would_fit(request) is not None:
        return False
    needed: dict[TaskShape, int] = {}
    for part in request.gang.parts:
        needed[part.shape] = needed.get(part.shape, 0) + part.least * part.shape.gpus * part.shape.gpu_milli
    return all(ledger.cluster.free_gpus(shape)[0] >= milli for shape, milli in needed.items() if milli)


def _fewest(ledger: SchedulerState, request: GangRequest, now: float, budget: int, trials: int) -> MovePlan | None:
    movers = _movers(ledger, request, now)
    costs = {running.request.key: preemption.leaving_cost(running, now) for running in movers}
    for chosen in _sets(movers, costs, budget, trials):
        result = _try(ledger, request, chosen)
        if result is not None:
            seats, places = result
            moves = tuple(
                GangMove(running.request.key, running.seats, after, costs[running.request.key])
                for running, after in zip(chosen, places, strict=True)
                if not _same_places(running.seats, after)
            )
            return MovePlan(request.key, seats, moves)
    return None


def _sets(
    movers: Sequence[RunningGang], costs: dict[JobKey, float], budget: int, trials: int
) -> Iterator[tuple[RunningGang, ...]]:
    """Yield sets of movers, smaller sets first, cheaper ones first within a size, up to `trials` sets."""
    for size in range(1, budget + 1):
        sets = list(combinations(movers, size))
        sets.sort(key=lambda chosen: sum(costs[running.request.key] for running in chosen))
        yield from sets[:trials]
        trials -= len(sets)
        if trials <= 0:
            return


def _movers(ledger: SchedulerState, request: GangRequest, now: float) -> list[RunningGang]:
    """Return gangs that might move: those on the nodes that need the fewest moves."""
    able = [running for running in ledger.running.values() if running.request.resumes and not running.leaving]
    able.sort(key=lambda running: (preemption.leaving_cost(running, now), running.request.key))
    if len(able) <= MOST_MOVERS:
        return able
    need = max(part.shape.gpus * part.shape.gpu_milli for part in request.gang.parts)
    near: dict[JobKey, RunningGang] = {}
    for _, _, name in sorted(_distances(ledger, able, need)):
        for running in able:
            if len(near) < MOST_MOVERS and any(seat.node == name for seat in running.seats):
                near[running.request.key] = running
    return list(near.values())


def _distances(ledger: SchedulerState, able: Sequence[RunningGang], need: int) -> Iterator[tuple[int, int, str]]:
    """Yield, for each node that could provide `need`: how many gangs must move away, the missing amount, and the node's name."""
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


def _try(
    ledger: SchedulerState, request: GangRequest, chosen: Sequence[RunningGang]
) -> tuple[tuple[TaskSeat, ...], list[tuple[TaskSeat, ...]]] | None:
    """Return seats for the waiting gang and for the movers once the movers have left; None when there are none."""
    cluster = ledger.cluster
    base = cluster.mark()
    for running in chosen:
        cluster.give(running.seats)
    if ledger.would_fit(request) is None:
        cluster.undo(base)
        return None
    gangs = [request.gang, *(_again(ledger, running) for running in chosen)]
    result = None
    for order in _orders(gangs):
        mark = cluster.mark()
        seats = _seat_all(ledger, gangs, order)
        cluster.undo(mark)
        places = [_as_asked(moved, running) for moved, running in zip(seats[1:], chosen, strict=True)] if seats else []
        if seats and all(not _is_worse(ledger, running.seats, after) for running, after in zip(chosen, places, strict=True)):
            result = (seats[0], places)
            break
    cluster.undo(base)
    return result


def _orders(gangs: Sequence[GangShape]) -> list[tuple[int, ...]]:
    """Return the placement orders to try: the waiting gang first, last, or all gangs at once (empty)."""
    movers = sorted(range(1, len(gangs)), key=lambda number: -gangs[number].gpus)
    return [(0, *movers), (*movers, 0), ()]


def _seat_all(ledger: SchedulerState, gangs: Sequence[GangShape], order: Sequence[int]) -> list[tuple[TaskSeat, ...]]:
    if not order:
        return _seat_at_once(ledger, gangs)
    seats: list[tuple[TaskSeat, ...]] = [()] * len(gangs)
    for number in order:
        placed = ledger.cluster.try_place(gangs[number])
        if placed is None:
            return []
        seats[number] = placed
    return seats


def _seat_at_once(ledger: SchedulerState, gangs: Sequence[GangShape]) -> list[tuple[TaskSeat, ...]]:
    """Place all gangs as one gang, for which the cluster searches.

    The rack rule then applies to all of them together, so that a solution may be missed.
    """
    parts = [replace(part, role=f"{number}/{part.role}") for number, gang in enumerate(gangs) for part in gang.parts]
    placed = ledger.cluster.try_place(GangShape(tuple(parts), any(gang.same_rack for gang in gangs)))
    if placed is None:
        return []
    seats: list[list[TaskSeat]] = [[] for _ in gangs]
    for seat in placed:
        number, _, role = seat.role.partition("/")
        seats[int(number)].append(replace(seat, role=role))
    return [tuple(gang_seats) for gang_seats in seats]


def _again(ledger: SchedulerState, running: RunningGang) -> GangShape:
    """Return what a gang needs elsewhere: as many seats as it has, of the same GPU types, and as close together."""
    parts: list[GangRole] = []
    for part in running.request.gang.parts:
        own = [seat for seat in running.seats if seat.role == part.role]
        if own:
            kinds = tuple(sorted({device.type for seat in own for device in _devices(ledger, seat) if device.type}))
            shape = replace(part.shape, gpu_types=kinds) if kinds else part.shape
            close = part.together or (len(own) > 1 and len({seat.node for seat in own}) == 1)
            parts.append(replace(part, shape=shape, least=len(own), most=len(own), together=close))
    racks = {ledger.nodes[seat.node].rack for seat in running.seats if seat.node in ledger.nodes}
    return GangShape(tuple(parts), running.request.gang.same_rack or (len(racks) == 1 and len(running.seats) > 1))


def _as_asked(seats: Sequence[TaskSeat], running: RunningGang) -> tuple[TaskSeat, ...]:
    """Return the seats with the shapes that the run itself requests."""
    shapes = {part.role: part.shape for part in running.request.gang.parts}
    return tuple(replace(seat, shape=shapes[seat.role]) for seat in seats)


def _same_places(before: Sequence[TaskSeat], after: Sequence[TaskSeat]) -> bool:
    return sorted((seat.node, seat.devices) for seat in before) == sorted((seat.node, seat.devices) for seat in after)


def _is_worse(ledger: SchedulerState, before: Sequence[TaskSeat], after: Sequence[TaskSeat]) -> bool:
    """Return whether the new places are worse than the old ones in any respect."""
    old_spread, new_spread = _spread(ledger, before), _spread(ledger, after)
    return _kinds(ledger, before) != _kinds(ledger, after) or any(
        new > old for old, new in zip(old_spread, new_spread, strict=True)
    )


def _kinds(ledger: SchedulerState, seats: Sequence[TaskSeat]) -> list[tuple[str, int]]:
    return sorted((device.type, device.memory) for seat in seats for device in _devices(ledger, seat))


def _spread(ledger: SchedulerState, seats: Sequence[TaskSeat]) -> tuple[int, int, int, int]:
    """Return the numbers of racks and nodes, and, summed over all tasks, of link islands and NUMA nodes that their GPUs span."""
    nodes = {seat.node for seat in seats}
    racks = {ledger.nodes[name].rack for name in nodes if name in ledger.nodes}
    islands = sum(len({device.island or device.uuid for device in _devices(ledger, seat)}) for seat in seats)
    numas = sum(len({device.numa for device in _devices(ledger, seat)}) for seat in seats)
    return len(racks), len(nodes), islands, numas


def _devices(ledger: SchedulerState, seat: TaskSeat) -> list[NodeDevice]:
    node = ledger.nodes.get(seat.node)
    return [device for device in node.devices if device.uuid in seat.devices] if node is not None else []
