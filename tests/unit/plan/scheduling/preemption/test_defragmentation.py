"""Moves that bring free GPUs together: as few as possible, no run worse off, and carried out exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from fairway.plan.scheduling import scheduler_memory
from fairway.plan.scheduling.decision import EvictionCause
from fairway.plan.scheduling.delta import NodeChanged, NodeRemoved, QueueDefined, RunPlaced, RunStopped, RunWaiting
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskSeat, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.preemption import defragmentation
from fairway.plan.scheduling.preemption.defragmentation import MovePlan, plan_moves
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import Queue

NOW = 10_000.0
WAITER = JobKey("default", "wide-1")


def node(name: str, gpus: int, kind: str = "A100", rack: str = "") -> ClusterNode:
    devices = tuple(NodeDevice(f"{name}-{index}", index, kind, 80 << 30) for index in range(gpus))
    return ClusterNode(name, cpu=256.0, memory=1 << 40, devices=devices, rack=rack)


def request(name: str, gpus: int, tasks: int = 1, *, resumes: bool = True, kind: tuple[str, ...] = ()) -> GangRequest:
    part = GangRole("worker", TaskShape(cpu=1000, gpus=gpus, gpu_types=kind), tasks, tasks)
    return GangRequest(JobKey("default", name), GangShape((part,)), 0.0, resumes=resumes)


def sitting(name: str, *places: tuple[str, int, int], resumes: bool = True, saved: float | None = None) -> RunningGang:
    """Return a gang with a task on each place: node, first device, number of devices."""
    asked = request(name, places[0][2], len(places), resumes=resumes)
    shape = asked.gang.parts[0].shape
    seats = [
        TaskSeat("worker", index, shape, at, tuple(f"{at}-{first + each}" for each in range(count)))
        for index, (at, first, count) in enumerate(places)
    ]
    return RunningGang(asked, tuple(seats), 0.0, saved)


def scheduler(
    nodes: Sequence[ClusterNode], running: Sequence[RunningGang], *waiting: GangRequest, queues: Sequence[Queue] = ()
) -> Scheduler:
    made = Scheduler()
    for each in nodes:
        made.apply(NodeChanged(each), 0.0)
    for queue in queues:
        made.apply(QueueDefined(queue), 0.0)
    for each in running:
        made.apply(RunPlaced(each), 0.0)
    for number, asked in enumerate(waiting):
        made.apply(RunWaiting(replace(asked, submitted=float(number))), NOW)
    made.decide(NOW)
    return made


def carry_out(made: Scheduler, plan: MovePlan) -> dict[JobKey, tuple[TaskSeat, ...]]:
    """Play the engine: every evicted run ends and is submitted again. Return the final seats of all runs."""
    decision = made.move(plan, NOW)
    assert [evict.cause for evict in decision.evictions] == [EvictionCause.MOVE] * len(plan.moves)
    asking = {evict.key: made.ledger.running[evict.key].request for evict in decision.evictions}
    for number, (key, again) in enumerate(asking.items()):
        made.apply(RunStopped(key, NOW + number), NOW + number)
        made.decide(NOW + number)
        made.apply(RunWaiting(again), NOW + number + 0.5)
        made.decide(NOW + number + 0.5)
    made.decide(NOW + 10)
    return {key: running.seats for key, running in made.ledger.running.items()}


def nodes_of(seats: Sequence[TaskSeat]) -> list[str]:
    return sorted({seat.node for seat in seats})


def test_one_move_where_one_is_enough() -> None:
    running = [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 2))]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    assert plan.whom == WAITER
    assert len(plan.moves) == 1
    assert nodes_of(plan.moves[0].before) != nodes_of(plan.moves[0].after)
    seats = carry_out(core, plan)
    assert nodes_of(seats[WAITER]) == nodes_of(plan.seats)
    assert seats[plan.moves[0].key] == plan.moves[0].after
    assert not core.ledger.memory.reservations


def test_the_cheaper_of_two_moves_is_taken() -> None:
    running = [sitting("a-1", ("n1", 0, 2), saved=NOW - 5000), sitting("b-1", ("n2", 0, 2), saved=NOW - 10)]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    assert [move.key.name for move in plan.moves] == ["b-1"]
    assert plan.cost == pytest.approx(2 * (10 + 60))


def test_who_cannot_resume_does_not_move() -> None:
    running = [sitting("a-1", ("n1", 0, 2), resumes=False), sitting("b-1", ("n2", 0, 2), resumes=False)]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    assert plan_moves(core.ledger, NOW) is None


def test_the_budget_bounds_the_moves() -> None:
    running = [sitting(f"{at}-{index}", (at, index, 1)) for at in ("n1", "n2") for index in range(2)]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    assert plan_moves(core.ledger, NOW, budget=1) is None
    plan = plan_moves(core.ledger, NOW, budget=2)
    assert plan is not None
    assert len(plan.moves) == 2


def test_nobody_gets_gpus_of_another_type_or_more_nodes_or_racks() -> None:
    other = [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 3), resumes=False)]
    core = scheduler([node("n1", 4), node("n2", 4), node("n3", 2, "T4")], other, request("wide-1", 4, kind=("A100",)))
    assert plan_moves(core.ledger, NOW) is None, "the only room is on GPUs of another type"
    pair = [sitting("a-1", ("n1", 0, 1), ("n1", 1, 1)), *(sitting(f"s-{at}", (at, 0, 3), resumes=False) for at in ("n2", "n3"))]
    core = scheduler([node("n1", 4), node("n2", 4), node("n3", 4)], pair, request("wide-1", 4))
    assert plan_moves(core.ledger, NOW) is None, "the two tasks would no longer be on one node"


def test_links_do_not_get_worse() -> None:
    linked = replace(node("n1", 4), devices=tuple(replace(device, island="x", numa=0) for device in node("n1", 4).devices))
    loose = replace(node("n2", 4), devices=tuple(replace(device, numa=device.index % 2) for device in node("n2", 4).devices))
    core = scheduler(
        [linked, loose], [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 2), resumes=False)], request("wide-1", 4)
    )
    assert plan_moves(core.ledger, NOW) is None


def test_nothing_helps_where_too_little_is_free_or_a_rule_is_in_the_way() -> None:
    running = [sitting("a-1", ("n1", 0, 3)), sitting("b-1", ("n2", 0, 2))]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    assert plan_moves(core.ledger, NOW) is None, "three are free in all"
    running = [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 2))]
    queue = Queue("default", quota={"gpu": 7000}, borrow=False)
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4), queues=[queue])
    assert plan_moves(core.ledger, NOW) is None


def test_halves_of_two_gpus_become_one_whole() -> None:
    def half(name: str, device: str) -> RunningGang:
        shape = TaskShape(cpu=1000, gpus=1, gpu_milli=500)
        asked = GangRequest(JobKey("default", name), GangShape((GangRole("worker", shape),)), 0.0, resumes=True)
        return RunningGang(asked, (TaskSeat("worker", 0, shape, "here", (device,), 500),), 0.0, NOW - 1)

    core = scheduler([node("here", 2)], [half("a-1", "here-0"), half("b-1", "here-1")], request("wide-1", 1))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    assert len(plan.moves) == 1
    seats = carry_out(core, plan)
    assert seats[JobKey("default", "a-1")][0].devices == seats[JobKey("default", "b-1")][0].devices
    assert seats[WAITER] == plan.seats


def test_a_plan_that_is_not_true_any_more_moves_nobody() -> None:
    running = [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 2))]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    core.apply(RunStopped(plan.moves[0].key, NOW + 1, finished=True), NOW + 1)
    assert core.move(plan, NOW + 1).empty
    assert core.decide(NOW + 1).starts, "the end of that gang made the room"


def test_places_are_not_kept_for_ever_for_somebody_who_never_comes() -> None:
    running = [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 2))]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    core.move(plan, NOW)
    core.apply(RunStopped(plan.moves[0].key, NOW + 5, finished=True), NOW + 5)
    wake = core.decide(NOW + 5).wake_at
    assert wake is not None
    assert str(plan.moves[0].key) in core.ledger.memory.reservations
    core.decide(NOW + 500)
    assert str(plan.moves[0].key) not in core.ledger.memory.reservations


def test_a_node_that_goes_takes_its_part_of_the_plan_with_it() -> None:
    running = [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 2))]
    core = scheduler([node("n1", 4), node("n2", 4)], running, request("wide-1", 4))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    core.move(plan, NOW)
    core.apply(NodeRemoved(plan.moves[0].after[0].node), NOW + 1)
    core.decide(NOW + 1)
    assert str(plan.moves[0].key) not in core.ledger.memory.reservations


Crowd = tuple[list[ClusterNode], list[RunningGang], GangRequest]


def crowd(seed: int) -> Crowd:
    """Return up to four nodes of four GPUs, nearly full with gangs of one task, most of them resumable, and a waiting run."""
    dice = Random(seed)
    nodes = [node(f"n{index}", 4, dice.choice(["A100", "A100", "A100", "T4"])) for index in range(dice.randint(2, 4))]
    running: list[RunningGang] = []
    for each in nodes:
        first = 0
        for size in dice.choice([(1,), (1, 1), (1, 2), (2,), (2, 1), (3,), (1, 1, 1), (1, 1, 2), (2, 2), ()]):
            running.append(sitting(f"r-{len(running)}", (each.name, first, size), resumes=dice.random() < 0.85))
            first += size
    return nodes, running, request("wide-1", dice.choice([2, 3, 4, 4]), dice.choice([1, 1, 2]))


THREE_MOVES = (225, 239, 306, 351, 1087, 1937)
"""Seeds of crowds that are known to need three moves."""
CROWDS = (*range(200), *THREE_MOVES)


def fewest(nodes: Sequence[ClusterNode], running: Sequence[RunningGang], waiting: GangRequest, budget: int) -> int | None:
    """Return the number of moves needed, by exhaustive search. Only sizes matter: the requests have no other constraints."""
    kinds = {node.name: node.devices[0].type for node in nodes}
    free = {node.name: 4 - sum(run.seats[0].shape.gpus for run in running if run.seats[0].node == node.name) for node in nodes}
    part = waiting.gang.parts[0]
    movers = [run for run in running if run.request.resumes]
    for count in range(budget + 1):
        for chosen in combinations(movers, count):
            left = dict(free)
            for run in chosen:
                left[run.seats[0].node] += run.seats[0].shape.gpus
            for places in packings(part.shape.gpus, part.least, left):
                if can_pack([(run.seats[0].shape.gpus, kinds[run.seats[0].node]) for run in chosen], places, kinds):
                    return count
    return None


def packings(gpus: int, tasks: int, free: dict[str, int]) -> Iterator[dict[str, int]]:
    if not tasks:
        yield free
        return
    for name, left in free.items():
        if left >= gpus:
            yield from packings(gpus, tasks - 1, {**free, name: left - gpus})


def can_pack(gangs: Sequence[tuple[int, str]], free: dict[str, int], kinds: dict[str, str]) -> bool:
    if not gangs:
        return True
    (size, kind), *rest = gangs
    return any(
        can_pack(rest, {**free, name: left - size}, kinds) for name, left in free.items() if left >= size and kinds[name] == kind
    )


def test_as_few_moves_as_trying_everything_finds() -> None:
    seen: Counter[int | None] = Counter()
    for seed in CROWDS:
        nodes, running, waiting = crowd(seed)
        needed = fewest(nodes, running, waiting, 3) or None
        plan = plan_moves(scheduler(nodes, running, waiting).ledger, NOW)
        assert (None if plan is None else len(plan.moves)) == needed, seed
        seen[needed] += 1
    assert all(seen[count] >= 5 for count in (None, 1, 2)), "every kind of case was tried"
    assert seen[3] == len(THREE_MOVES)


def test_carried_out_nobody_loses_and_the_gang_starts() -> None:
    carried = 0
    for seed in CROWDS:
        nodes, running, waiting = crowd(seed)
        core = scheduler(nodes, running, waiting)
        before = (core.ledger.memory.encode(), core.ledger.cluster.free_gpus())
        plan = plan_moves(core.ledger, NOW)
        assert (core.ledger.memory.encode(), core.ledger.cluster.free_gpus()) == before, "planning changes nothing"
        if plan is None:
            continue
        carried += 1
        seats = carry_out(core, plan)
        moved = {move.key: move for move in plan.moves}
        assert seats[WAITER] == plan.seats
        for run in running:
            now_at = seats[run.request.key]
            assert now_at == (moved[run.request.key].after if run.request.key in moved else run.seats), seed
        held = [uuid for each in seats.values() for seat in each for uuid in seat.devices]
        assert len(held) == len(set(held)), "no device is held twice"
    assert carried > 20


def test_a_scheduler_made_anew_in_the_middle_of_it_goes_on() -> None:
    running = [sitting("a-1", ("n1", 0, 2)), sitting("b-1", ("n2", 0, 2))]
    nodes = [node("n1", 4), node("n2", 4)]
    core = scheduler(nodes, running, request("wide-1", 4))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    core.move(plan, NOW)
    other = Scheduler(scheduler_memory.decode(core.ledger.memory.encode()))
    for each in nodes:
        other.apply(NodeChanged(each), NOW + 1)
    other.apply(RunWaiting(request("wide-1", 4)), NOW + 1)
    mover = other.ledger.running[plan.moves[0].key].request
    other.apply(RunStopped(mover.key, NOW + 2), NOW + 2)
    other.apply(RunWaiting(mover), NOW + 2)
    starts = {start.key: start.seats for start in other.decide(NOW + 2).starts}
    assert starts == {WAITER: plan.seats, mover.key: plan.moves[0].after}


def test_with_many_gangs_the_likely_ones_are_tried() -> None:
    running = [sitting(f"r-{at}-{index}", (f"n{at:02}", 2 * index, 2)) for at in range(30) for index in range(2)]
    running[10:12] = [sitting("lone-1", ("n05", 0, 2))]
    running[20:21] = []
    nodes = [node(f"n{at:02}", 4) for at in range(30)]
    core = scheduler(nodes, running, request("wide-1", 4))
    plan = plan_moves(core.ledger, NOW)
    assert plan is not None
    assert len(plan.moves) == 1
    assert len(running) > defragmentation.MOST_MOVERS
