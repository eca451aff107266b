"""Where tasks may be placed, which devices they get, and the message when they get none."""

from __future__ import annotations

import pytest

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.gang import CapacityShortfall, GangRole, GangShape, TaskNodeSelector, TaskSeat, TaskShape
from fairway.state.node import ClusterNode, NodeDevice

GIB = 1 << 30
GPU = TaskShape(cpu=1000, gpus=1)


def node(name: str, gpus: int = 4, *, cpu: float = 16, memory: int = 64, kind: str = "a100", **more) -> ClusterNode:
    devices = tuple(NodeDevice(f"{name}-{index}", index, type=kind, memory=40 * GIB) for index in range(gpus))
    return ClusterNode(name, cpu, memory * GIB, more.pop("devices", devices), **more)


def lone(shape: TaskShape, size: int = 1, **rules) -> GangShape:
    return GangShape((GangRole("worker", shape, size, size, **rules),))


def places(found: tuple[TaskSeat, ...] | CapacityShortfall) -> list[str]:
    assert isinstance(found, tuple), found
    return [seat.node for seat in found]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (TaskShape(gpus=1, where=TaskNodeSelector(nodes=("c",))), "c"),
        (TaskShape(gpus=1, where=TaskNodeSelector(labels=(("zone", "2"),))), "b"),
        (TaskShape(gpus=1, gpu_types=("v100", "h100")), "c"),
        (TaskShape(gpus=1, where=TaskNodeSelector(devices=("c-2",))), "c"),
        (TaskShape(other=(("nic", 2),)), "b"),
        (TaskShape(cpu=30_000), "c"),
        (TaskShape(memory=100 * 1024), "b"),
        (TaskShape(gpus=1, gpu_memory=70_000), "d"),
    ],
)
def test_it_goes_where_it_may(shape: TaskShape, expected: str) -> None:
    large = NodeDevice("d-0", 0, type="a100", memory=80 * GIB)
    cluster = ClusterModel(
        [
            node("a"),
            node("b", labels={"zone": "2"}, other={"nic": 2}, memory=128),
            node("c", kind="h100", cpu=32),
            node("d", devices=(large,), taints=("big",)),
        ]
    )
    if expected == "d":
        assert isinstance(cluster.place(lone(shape)), CapacityShortfall)
        shape = TaskShape(gpus=1, gpu_memory=70_000, where=TaskNodeSelector(tolerates=("big",)))
    assert places(cluster.place(lone(shape))) == [expected]


@pytest.mark.parametrize(("tolerates", "comes"), [((), False), (("batch",), False), (("batch", "night"), True), (("*",), True)])
def test_taints_keep_away_who_does_not_tolerate_all_of_them(tolerates: tuple[str, ...], comes: bool) -> None:
    cluster = ClusterModel([node("a", taints=("batch", "night"))])
    shape = TaskShape(gpus=1, where=TaskNodeSelector(tolerates=tolerates))
    assert isinstance(cluster.place(lone(shape)), tuple) is comes
    assert cluster.room(shape) == (3 if comes else 0)


def test_a_device_can_be_named_by_index() -> None:
    found = ClusterModel([node("a")]).place(lone(TaskShape(gpus=2, where=TaskNodeSelector(devices=("3", "1")))))
    assert isinstance(found, tuple)
    assert found[0].devices == ("a-1", "a-3")


def test_a_named_device_may_be_shared() -> None:
    cluster = ClusterModel([node("a")])
    half = TaskShape(gpus=1, gpu_milli=500, where=TaskNodeSelector(devices=("a-2",)))
    assert cluster.room(half) == 2
    found = [cluster.place(lone(half)) for _ in range(3)]
    assert [each[0].devices for each in found[:2] if isinstance(each, tuple)] == [("a-2",), ("a-2",)]
    assert isinstance(found[2], CapacityShortfall)


def test_sick_and_busy_devices_are_not_free() -> None:
    devices = (NodeDevice("x", 0, healthy=False), NodeDevice("y", 1, busy_with="pid 7"), NodeDevice("z", 2))
    cluster = ClusterModel([node("a", devices=devices)])
    assert cluster.free_gpus() == (1000, 1)
    assert cluster.room(GPU) == 1
    placement = cluster.place(lone(GPU))
    assert isinstance(placement, tuple)
    assert placement[0].devices == ("z",)
    assert cluster.ever(lone(TaskShape(gpus=2))) is None
    assert cluster.ever(lone(TaskShape(gpus=3))) == CapacityShortfall("gpu", "worker", 3000, 2000, 2000, 0, 2000)


def test_a_device_that_falls_sick_keeps_its_task_and_takes_no_other() -> None:
    cluster = ClusterModel([node("a", 1)])
    placement = cluster.place(lone(TaskShape(gpus=1, gpu_milli=300)))
    assert isinstance(placement, tuple)
    cluster.put_node(node("a", devices=(NodeDevice("a-0", 0, type="a100", memory=40 * GIB, healthy=False),)))
    cluster.give(placement)
    assert cluster.free_gpus() == (0, 0)
    cluster.take(placement)
    cluster.put_node(node("a", 1))
    assert cluster.free_gpus() == (700, 0)


def test_shares_count_by_compute_or_memory_whichever_is_more() -> None:
    cluster = ClusterModel([node("a", 1)])
    placement = cluster.place(lone(TaskShape(gpus=1, gpu_milli=200, gpu_memory=30 * 1024)))
    assert isinstance(placement, tuple)
    assert placement[0].milli == 750
    assert cluster.free_gpus() == (250, 0)


def test_several_shares_go_to_different_devices() -> None:
    cluster = ClusterModel([node("a", 2)])
    pair = TaskShape(gpus=2, gpu_milli=400)
    assert cluster.room(pair) == 2
    placement = cluster.place(lone(pair, 2))
    assert isinstance(placement, tuple)
    assert [seat.devices for seat in placement] == [("a-0", "a-1"), ("a-0", "a-1")]


def test_who_asks_for_a_whole_device_gets_no_neighbours() -> None:
    cluster = ClusterModel([node("a", 1)])
    cluster.place(lone(TaskShape(gpus=1, gpu_milli=100)))
    assert isinstance(cluster.place(lone(GPU)), CapacityShortfall)


def test_devices_of_one_island_are_taken_together() -> None:
    islands = ["x", "y", "y", "x", "y", "y"]
    devices = tuple(NodeDevice(f"g{index}", index, island=island) for index, island in enumerate(islands))
    found = ClusterModel([node("a", devices=devices)]).place(lone(TaskShape(gpus=2)))
    assert isinstance(found, tuple)
    assert found[0].devices == ("g0", "g3"), "the smallest island with room: the other stays whole"
    four = ClusterModel([node("a", devices=devices)]).place(lone(TaskShape(gpus=4)))
    assert isinstance(four, tuple)
    assert four[0].devices == ("g1", "g2", "g4", "g5")


def test_devices_of_one_numa_node_are_next_best() -> None:
    devices = tuple(NodeDevice(f"g{index}", index, numa=index % 2) for index in range(4))
    found = ClusterModel([node("a", devices=devices)]).place(lone(TaskShape(gpus=2)))
    assert isinstance(found, tuple)
    assert found[0].devices == ("g0", "g2")


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    cluster = ClusterModel([node("a"), node("b")])
    assert isinstance(cluster.place(lone(GPU, 9)), CapacityShortfall)
    assert cluster.free_gpus() == (8000, 8)
    assert len(places(cluster.place(lone(GPU, 8)))) == 8
    assert cluster.free_gpus() == (0, 0)


def test_roles_of_a_gang_differ_in_shape() -> None:
    gang = GangShape((GangRole("ps", TaskShape(cpu=2000), 2, 2), GangRole("worker", TaskShape(cpu=1000, gpus=4), 2, 2)))
    found = ClusterModel([node("a"), node("b")]).place(gang)
    assert isinstance(found, tuple)
    assert [(seat.role, seat.index) for seat in found] == [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    assert [seat.node for seat in found[2:]] == ["a", "b"]


def test_another_way_is_searched_when_the_obvious_one_fails() -> None:
    # The large task fits on either node; the small one, which needs many cores, only on b.
    cluster = ClusterModel([node("a", 1, cpu=4), node("b", 1, cpu=9)], "spread")
    gang = GangShape((GangRole("one", TaskShape(cpu=4000, gpus=1)), GangRole("two", TaskShape(cpu=9000))))
    assert places(cluster.place(gang)) == ["a", "b"]


def test_together_means_one_node() -> None:
    cluster = ClusterModel([node("a", 2), node("b", 3)])
    assert set(places(cluster.place(lone(GPU, 3, together=True)))) == {"b"}


def test_apart_means_as_many_nodes() -> None:
    cluster = ClusterModel([node("a"), node("b"), node("c")])
    assert sorted(places(cluster.place(lone(GPU, 3, apart=True)))) == ["a", "b", "c"]
    assert cluster.place(lone(GPU, 4, apart=True)) == CapacityShortfall("placement", "worker", placed=3)


def test_those_that_run_count_for_the_rules() -> None:
    cluster = ClusterModel([node("a", rack="r"), node("b", rack="r"), node("c", rack="s")])
    sitting = cluster.place(lone(TaskShape(gpus=1, where=TaskNodeSelector(nodes=("b",)))))
    assert isinstance(sitting, tuple)
    grown = cluster.place(lone(GPU, 2, apart=True), running=sitting)
    assert isinstance(grown, tuple)
    assert [(seat.index, seat.node != "b") for seat in grown] == [(1, True)]
    more = cluster.place(GangShape((GangRole("worker", GPU, 1, 4),), same_rack=True), {"worker": 4}, sitting)
    assert isinstance(more, tuple)
    assert [seat.index for seat in more] == [1, 2, 3]
    assert {seat.node for seat in more} <= {"a", "b"}
    beside = cluster.place(lone(TaskShape(cpu=1), 2, together=True), running=sitting)
    assert places(beside) == ["b"]


def test_one_rack_if_it_must_be_one() -> None:
    cluster = ClusterModel([node("a", rack="r"), node("b", rack="s"), node("c", rack="s")])
    assert set(places(cluster.place(GangShape((GangRole("worker", GPU, 8, 8),), same_rack=True)))) == {"b", "c"}
    two_roles = GangShape((GangRole("worker", GPU, 2, 2), GangRole("more", GPU, 2, 2)), same_rack=True)
    assert set(places(cluster.place(two_roles))) == {"a"}


def test_a_gang_too_large_for_any_rack_says_so() -> None:
    cluster = ClusterModel([node("a", rack="r"), node("b", rack="s")])
    assert cluster.place(GangShape((GangRole("worker", GPU, 5, 5),), same_rack=True)) == CapacityShortfall("rack", "worker")


def test_as_few_racks_as_can_be() -> None:
    fleet = [node(f"n{index}", rack=f"r{index % 3}") for index in range(6)]
    cluster = ClusterModel(fleet, "spread")
    racks = {cluster.node(name).rack for name in places(cluster.place(lone(GPU, 8)))}
    assert len(racks) == 1
    racks = {cluster.node(name).rack for name in places(cluster.place(lone(GPU, 16)))}
    assert len(racks) == 2


def test_a_node_takes_so_many_tasks_and_no_more() -> None:
    cluster = ClusterModel([node("a", tasks=2)])
    assert cluster.room(TaskShape(cpu=1)) == 2
    assert cluster.place(lone(TaskShape(cpu=1), 3)) == CapacityShortfall("tasks", "worker", 1, 2, 2, 2, 2)
    assert len(places(cluster.place(lone(TaskShape(cpu=1), 2)))) == 2
    assert isinstance(cluster.place(lone(TaskShape(cpu=1))), CapacityShortfall)


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        (lone(TaskShape(gpus=4)), CapacityShortfall("gpu", "worker", 4000, 3000, 6000, 0, 8000)),
        (lone(TaskShape(gpus=1, gpu_types=("h100",))), CapacityShortfall("gpu", "worker", 1000, 0, 0, 0, 0)),
        (lone(TaskShape(cpu=16_000)), CapacityShortfall("cpu", "worker", 16_000, 15_000, 30_000, 0, 32_000)),
        (
            lone(TaskShape(memory=65 * 1024)),
            CapacityShortfall("memory", "worker", 65 * 1024, 64 * 1024, 128 * 1024, 0, 128 * 1024),
        ),
        (lone(TaskShape(other=(("nic", 1),))), CapacityShortfall("nic", "worker", 1, 0, 0, 0, 0)),
        (lone(TaskShape(where=TaskNodeSelector(nodes=("z",)))), CapacityShortfall("placement", "worker")),
        (lone(TaskShape(gpus=1, where=TaskNodeSelector(devices=("z",)))), CapacityShortfall("placement", "worker")),
        (lone(TaskShape(gpus=2), 3), CapacityShortfall("gpu", "worker", 2000, 3000, 6000, 2, 8000)),
        (lone(TaskShape(gpus=1), 4, together=True), CapacityShortfall("gpu", "worker", 4000, 3000, 6000, 0, 8000)),
    ],
)
def test_what_is_missing_is_said_in_numbers(gang: GangShape, expected: CapacityShortfall) -> None:
    cluster = ClusterModel([node("a"), node("b")])
    cluster.place(lone(GPU, 2, apart=True))
    assert cluster.shortfall(gang) == expected
    assert cluster.place(gang) == expected


def test_without_nodes_nothing_fits() -> None:
    cluster = ClusterModel()
    assert cluster.place(lone(GPU)) == CapacityShortfall("nodes", "worker")
    assert (cluster.room(GPU), cluster.free_gpus(), cluster.names()) == (0, (0, 0), [])


def test_taking_more_than_there_is_counts_until_it_is_given_back() -> None:
    cluster = ClusterModel([node("a", 1, cpu=2)])
    seats = [TaskSeat("worker", index, TaskShape(cpu=2000, gpus=1), "a", ("a-0",)) for index in range(2)]
    cluster.take(seats)
    cluster.give(seats[:1])
    assert cluster.room(TaskShape(cpu=1000)) == 0
    assert cluster.free_gpus() == (0, 0)
    cluster.give(seats[1:])
    assert cluster.room(TaskShape(cpu=1000)) == 2
    cluster.take([TaskSeat("worker", 0, GPU, "gone", ("gone-0",))])


def test_a_log_that_is_kept_begins_anew() -> None:
    cluster = ClusterModel([node("a")])
    cluster.mark()
    cluster.place(lone(GPU))
    cluster.keep()
    mark = cluster.mark()
    cluster.place(lone(GPU))
    cluster.undo(mark)
    assert cluster.free_gpus() == (3000, 3)


def test_marks_nest() -> None:
    cluster = ClusterModel([node("a")])
    outer, inner = cluster.mark(), cluster.mark()
    cluster.undo(inner)
    cluster.place(lone(GPU))
    cluster.undo(outer)
    assert cluster.free_gpus() == (4000, 4)


def test_ties_go_to_the_smallest_rank_else_to_the_first_name() -> None:
    fleet = [node("b"), node("a"), node("c")]
    assert places(ClusterModel(fleet).place(lone(GPU))) == ["a"]
    assert places(ClusterModel(fleet, ranks={"a": 2, "b": 1, "c": 0}).place(lone(GPU))) == ["c"]


@pytest.mark.parametrize("policy", ["best-fit", "bundle", "fairway"])
@pytest.mark.parametrize("seen", [True, False], ids=["a shape that was seen before", "a new shape"])
@pytest.mark.parametrize("over", [TaskShape(cpu=12_000), TaskShape(memory=40 * 1024)], ids=["cores", "memory"])
def test_who_needs_none_of_it_finds_room_where_too_much_was_given_away(over: TaskShape, seen: bool, policy: str) -> None:
    """Reservations may over-commit a node; this affects only tasks that need the over-committed resource."""
    cluster = ClusterModel([node("a")], policy)
    if seen:
        assert places(cluster.place(lone(TaskShape(gpus=1)))) == ["a"]
    free = cluster.room(TaskShape(gpus=1))
    cluster.take([TaskSeat("worker", index, over, "a") for index in range(2)])
    assert cluster.room(TaskShape(gpus=1)) == free
    assert places(cluster.place(lone(TaskShape(gpus=1)))) == ["a"]
    assert cluster.room(TaskShape(gpus=1, cpu=1000, memory=1)) == 0
    assert isinstance(cluster.place(lone(TaskShape(gpus=1, cpu=1000, memory=1))), CapacityShortfall)
