"""Invariants: no over-commitment, no gang placed in part, everything can be undone, and the result depends on the state alone."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.gang import CapacityShortfall, GangRole, GangShape, TaskSeat, TaskShape, device_memory, milli_on
from fairway.plan.scheduling.placement.policy_catalogue import POLICIES
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.state.node import ClusterNode, NodeDevice

GIB = 1 << 30
TYPES = ["a", "b"]

policies = st.sampled_from(sorted(POLICIES))


@st.composite
def nodes(draw: st.DrawFn, number: int) -> ClusterNode:
    name = f"n{number}"
    mixed = draw(st.booleans())
    kind = draw(st.sampled_from(TYPES))
    devices = tuple(
        NodeDevice(
            f"{name}-{index}",
            index,
            type=draw(st.sampled_from(TYPES)) if mixed else kind,
            memory=draw(st.sampled_from([8, 16])) * GIB if mixed else 16 * GIB,
            healthy=draw(st.sampled_from([True, True, True, False])),
            busy_with=draw(st.sampled_from(["", "", "", "pid 1"])),
            island=draw(st.sampled_from(["", "x", "y"])),
        )
        for index in range(draw(st.integers(0, 4)))
    )
    return ClusterNode(
        name,
        draw(st.integers(0, 8)),
        draw(st.integers(0, 8)) * GIB,
        devices,
        other={"nic": draw(st.integers(0, 2))},
        labels={"zone": draw(st.sampled_from(["1", "2"]))},
        rack=draw(st.sampled_from(["", "r1", "r2"])),
        tasks=draw(st.sampled_from([0, 0, 2])),
    )


fleets = st.integers(1, 4).flatmap(lambda count: st.tuples(*(nodes(number) for number in range(count))))

shapes = st.builds(
    TaskShape,
    cpu=st.integers(0, 4).map(lambda cores: cores * 1000),
    memory=st.integers(0, 3).map(lambda gib: gib * 1024),
    gpus=st.integers(0, 2),
    gpu_milli=st.sampled_from([200, 300, 500, 700, 1000]),
    gpu_memory=st.sampled_from([0, 0, 5000]),
    gpu_types=st.sampled_from([(), (), ("a",), ("a", "b")]),
    other=st.sampled_from([(), (), (("nic", 1),)]),
)

rules = st.sampled_from([{}, {}, {"together": True}, {"apart": True}])


@st.composite
def gangs(draw: st.DrawFn) -> GangShape:
    parts = tuple(
        GangRole(f"role{number}", draw(shapes), size, size, **draw(rules))
        for number, size in enumerate(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    )
    return GangShape(parts, same_rack=draw(st.booleans()))


def used(fleet: tuple[ClusterNode, ...], seats: list[TaskSeat]) -> None:
    """Check that the seats fit on the nodes, counting from scratch."""
    by_name = {node.name: node for node in fleet}
    milli: Counter[str] = Counter()
    totals: dict[str, Counter[str]] = {name: Counter() for name in by_name}
    for seat in seats:
        devices = {device.uuid: device for device in by_name[seat.node].devices}
        assert len(set(seat.devices)) == len(seat.devices) == seat.shape.gpus
        for uuid in seat.devices:
            device = devices[uuid]
            assert device.healthy
            assert not device.busy_with
            assert not seat.shape.gpu_types or device.type in seat.shape.gpu_types
            assert milli_on(seat.shape, device_memory(device)) <= seat.milli
            milli[uuid] += seat.milli
        totals[seat.node].update({"cpu": seat.shape.cpu, "memory": seat.shape.memory, "tasks": 1, **dict(seat.shape.other)})
    assert all(used <= 1000 for used in milli.values())
    for name, total in totals.items():
        node = by_name[name]
        assert total["cpu"] <= node.cpu * 1000
        assert total["memory"] << 20 <= node.memory
        assert total["nic"] <= node.other["nic"]
        assert not node.tasks or total["tasks"] <= node.tasks


def follows_rules(fleet: tuple[ClusterNode, ...], gang: GangShape, seats: tuple[TaskSeat, ...]) -> None:
    racks = {node.name: node.rack for node in fleet}
    wanted = [(part.role, index) for part in gang.parts for index in range(part.least)]
    assert [(seat.role, seat.index) for seat in seats] == wanted
    for part in gang.parts:
        places = [seat.node for seat in seats if seat.role == part.role]
        assert not part.together or len(set(places)) == 1
        assert not part.apart or len(set(places)) == len(places)
    assert not gang.same_rack or len({racks[seat.node] for seat in seats}) == 1


@settings(max_examples=150, deadline=None)
@given(fleets, st.lists(gangs(), max_size=6), policies)
def test_what_is_placed_fits_and_keeps_the_rules(fleet: tuple[ClusterNode, ...], wanted: list[GangShape], policy: str) -> None:
    cluster = ClusterModel(fleet, policy, WorkloadMix.of(part.shape for gang in wanted for part in gang.parts))
    seats: list[TaskSeat] = []
    for gang in wanted:
        before = [cluster.room(part.shape) for part in gang.parts]
        placement = cluster.place(gang)
        if isinstance(placement, CapacityShortfall):
            assert [cluster.room(part.shape) for part in gang.parts] == before
        else:
            follows_rules(fleet, gang, placement)
            seats += placement
    used(fleet, seats)


def answers(cluster: ClusterModel, wanted: list[GangShape]) -> list[object]:
    """Return the answers to all queries, leaving the cluster unchanged."""
    found: list[object] = [cluster.names(), cluster.free_gpus()]
    for gang in wanted:
        mark = cluster.mark()
        found += [cluster.place(gang), cluster.ever(gang)]
        cluster.undo(mark)
        found += [(cluster.room(part.shape), cluster.free_gpus(part.shape)) for part in gang.parts]
    return found


@settings(max_examples=100, deadline=None)
@given(fleets, st.lists(gangs(), min_size=1, max_size=5), policies, st.data())
def test_undo_brings_the_very_state_back(
    fleet: tuple[ClusterNode, ...], wanted: list[GangShape], policy: str, data: st.DataObject
) -> None:
    cluster = ClusterModel(fleet, policy, WorkloadMix.of(part.shape for gang in wanted for part in gang.parts))
    first = cluster.place(wanted[0])
    before = answers(cluster, wanted)
    mark = cluster.mark()
    for gang in wanted:
        cluster.place(gang)
    if not isinstance(first, CapacityShortfall):
        cluster.give(first)
    cluster.drop_node(data.draw(st.sampled_from(cluster.names())))
    cluster.put_node(data.draw(nodes(1)))
    cluster.put_node(data.draw(nodes(9)))
    cluster.place(wanted[-1])
    cluster.undo(mark)
    assert answers(cluster, wanted) == before


@settings(max_examples=100, deadline=None)
@given(fleets, st.lists(gangs(), min_size=1, max_size=5), policies, st.data())
def test_the_state_alone_decides(
    fleet: tuple[ClusterNode, ...], wanted: list[GangShape], policy: str, data: st.DataObject
) -> None:
    mix = WorkloadMix.of(part.shape for gang in wanted for part in gang.parts)
    cluster = ClusterModel(fleet, policy, mix)
    sitting: list[tuple[TaskSeat, ...]] = []
    for gang in [*wanted, *wanted]:
        placement = cluster.place(gang)
        if not isinstance(placement, CapacityShortfall):
            sitting.append(placement)
        if sitting and data.draw(st.booleans()):
            cluster.give(sitting.pop(data.draw(st.integers(0, len(sitting) - 1))))
    changed = data.draw(nodes(0))
    cluster.put_node(changed)
    again = ClusterModel([changed, *fleet[1:]], policy, mix)
    again.take(seat for seats in reversed(sitting) for seat in seats)
    assert answers(again, wanted) == answers(cluster, wanted)


def idle(node: ClusterNode) -> list[int]:
    return [1000 if device.healthy and not device.busy_with else 0 for device in node.devices]


def fits_somehow(fleet: tuple[ClusterNode, ...], tasks: list[TaskShape]) -> bool:
    """The oracle: try every device for every task."""
    start = tuple((node.cpu * 1000, node.memory >> 20, node.tasks or 99, node.other["nic"], *idle(node)) for node in fleet)
    states = {start}
    for shape in tasks:
        states = {after for state in states for after in ways(fleet, state, shape)}
    return bool(states)


def ways(
    fleet: tuple[ClusterNode, ...], state: tuple[tuple[float, ...], ...], shape: TaskShape
) -> list[tuple[tuple[float, ...], ...]]:
    found = []
    for at, (node, (cpu, memory, left, nics, *free)) in enumerate(zip(fleet, state, strict=True)):
        nic = dict(shape.other).get("nic", 0)
        if cpu < shape.cpu or memory < shape.memory or not left or nics < nic:
            continue
        for chosen in product([False, True], repeat=len(free)):
            if sum(chosen) != shape.gpus:
                continue
            after = list(free)
            for index in (index for index, yes in enumerate(chosen) if yes):
                device = node.devices[index]
                wrong = shape.gpu_types and device.type not in shape.gpu_types
                after[index] -= 2000 if wrong else milli_on(shape, device_memory(device))
            if all(milli >= 0 for milli in after):
                here = (cpu - shape.cpu, memory - shape.memory, left - 1, nics - nic, *after)
                found.append((*state[:at], here, *state[at + 1 :]))
    return found


@settings(max_examples=150, deadline=None)
@given(fleets, shapes, st.integers(1, 4), policies)
def test_tasks_of_one_shape_are_placed_exactly_when_they_fit(
    fleet: tuple[ClusterNode, ...], shape: TaskShape, size: int, policy: str
) -> None:
    cluster = ClusterModel(fleet, policy)
    placement = cluster.place(GangShape((GangRole("worker", shape, size, size),)))
    assert isinstance(placement, tuple) == fits_somehow(fleet, [shape] * size)


@settings(max_examples=150, deadline=None)
@given(fleets, shapes, shapes, st.integers(1, 2), st.integers(1, 2))
def test_tasks_of_two_shapes_are_placed_exactly_when_they_fit(
    fleet: tuple[ClusterNode, ...], one: TaskShape, other: TaskShape, ones: int, others: int
) -> None:
    cluster = ClusterModel(fleet)
    placement = cluster.place(GangShape((GangRole("one", one, ones, ones), GangRole("other", other, others, others))))
    assert isinstance(placement, tuple) == fits_somehow(fleet, [one] * ones + [other] * others)


@settings(max_examples=100, deadline=None)
@given(fleets, shapes)
def test_room_is_how_many_fit_one_after_the_other(fleet: tuple[ClusterNode, ...], shape: TaskShape) -> None:
    if not (shape.cpu or shape.memory or shape.gpus or shape.other):
        return
    cluster = ClusterModel(fleet)
    count = cluster.room(shape)
    seats: list[TaskSeat] = []
    while isinstance(placement := cluster.place(GangShape((GangRole("worker", shape),))), tuple):
        seats += placement
        # A task that needs shares of several devices may be placed so that fewer of the next ones fit.
        assert cluster.room(shape) < count if shape.shares and shape.gpus > 1 else cluster.room(shape) == count - len(seats)
    assert cluster.room(shape) == 0
