"""What fits where, as data."""

from __future__ import annotations

from fairway.plan.scheduling import fit
from fairway.spec.resources import Placement
from fairway.state.job import Hold
from fairway.state.node import Device, Node
from fairway.state.task import Need, Task, TaskKey

TWO = (Node("a", cpu=4.0, memory=100), Node("b", cpu=4.0, memory=100))


def tasks(count: int, **need: object) -> list[Task]:
    return [Task(TaskKey("default", "j-1", "worker", index, 0), need=Need(**need)) for index in range(count)]  # type: ignore[arg-type]


def placed(found: list[Task] | Hold) -> list[str]:
    assert not isinstance(found, Hold), found
    return [task.node for task in found]


def test_apart_puts_no_two_on_one_node() -> None:
    wish = {"worker": Placement(apart=True)}
    assert placed(fit.place(tasks(2, cpu=1.0), fit.rooms(TWO, []), wish)) == ["a", "b"]
    assert isinstance(fit.place(tasks(3, cpu=1.0), fit.rooms(TWO, []), wish), Hold)


def test_together_keeps_all_on_one_node() -> None:
    wish = {"worker": Placement(together=True)}
    assert placed(fit.place(tasks(2, cpu=2.0), fit.rooms(TWO, []), wish)) == ["a", "a"]
    assert isinstance(fit.place(tasks(3, cpu=2.0), fit.rooms(TWO, []), wish), Hold)


def test_a_node_by_name_or_by_label() -> None:
    nodes = (TWO[0], Node("c", cpu=4.0, memory=100, labels={"disk": "ssd"}))
    assert placed(fit.place(tasks(1), fit.rooms(nodes, []), {"worker": Placement(nodes=("c",))})) == ["c"]
    assert placed(fit.place(tasks(1), fit.rooms(nodes, []), {"worker": Placement(labels={"disk": "ssd"})})) == ["c"]


def test_a_device_by_index_by_type_and_never_a_busy_or_sick_one() -> None:
    devices = (
        Device("GPU-0", 0, "A100", memory=80),
        Device("GPU-1", 1, "T4", memory=16),
        Device("GPU-2", 2, "T4", memory=16, healthy=False),
        Device("GPU-3", 3, "T4", memory=16, busy_with="pid 7 (python)"),
    )
    rooms = lambda: fit.rooms((Node("a", cpu=4.0, memory=100, devices=devices),), [])  # noqa: E731
    one = fit.place(tasks(1, gpu=1.0), rooms(), {"worker": Placement(devices=("1",))})
    assert not isinstance(one, Hold)
    assert one[0].devices == ("GPU-1",)
    typed = fit.place(tasks(1, gpu=1.0, gpu_type=("T4",)), rooms(), {})
    assert not isinstance(typed, Hold)
    assert typed[0].devices == ("GPU-1",)
    waits = fit.place(tasks(2, gpu=1.0, gpu_type=("T4",)), rooms(), {})
    assert isinstance(waits, Hold)
    assert waits.message == "needs 2 GPUs of type T4 for 2 tasks together; 1 are free (GPU 3: pid 7 (python))"
    assert isinstance(fit.place(tasks(1, gpu=1.0, gpu_memory=90), rooms(), {}), Hold)


def test_nothing_is_taken_when_not_all_fit() -> None:
    rooms = fit.rooms(TWO, [])
    assert isinstance(fit.place(tasks(3, cpu=4.0), rooms, {}), Hold)
    assert [room.cpu for room in rooms] == [4.0, 4.0]


def test_any_countable_resource_counts() -> None:
    node = Node("a", cpu=4.0, memory=100, other={"rdma/hca": 1})
    assert placed(fit.place(tasks(1, other={"rdma/hca": 1}), fit.rooms((node,), []), {})) == ["a"]
    waits = fit.place(tasks(2, other={"rdma/hca": 1}), fit.rooms((node,), []), {})
    assert isinstance(waits, Hold)
    assert waits.reason == "rdma/hca"
