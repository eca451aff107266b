from __future__ import annotations

import pytest

from fairway.errors import UsageError
from fairway.plan.scheduling.shape import Shape
from fairway.simulation import runs
from fairway.simulation.queue.entry import Entry
from fairway.simulation.queue.floor import Nodes
from fairway.simulation.traces import Order
from fairway.state.node import Device, Node


def a_node(name: str, gpus: int = 4, cpu: float = 16.0) -> Node:
    return Node(name, cpu, 64 << 30, tuple(Device(f"{name}/{index}", index, type="A") for index in range(gpus)))


NODES = [a_node("a"), a_node("b"), a_node("c", gpus=2), a_node("d"), a_node("e", gpus=0)]
PODS = [Shape(1000, 1, 1), Shape(1000, 1, 1, 500), Shape(1000, 1)]


def silent(_policy: str, _done: int, _total: int) -> None:
    pass


def test_policies_stand_side_by_side_on_the_same_arrivals() -> None:
    told: list[str] = []
    order = runs.drawn_order(NODES, PODS, 3)
    found = runs.place(NODES, PODS, order, ["fairway", "best-fit"], "given", lambda policy, done, total: told.append(policy))
    assert [result.policy for result in found] == ["fairway", "best-fit"]
    assert all(result.curve[100] > 80 for result in found)
    assert set(told) == {"fairway", "best-fit"}
    assert sum(kind.arrived for kind in found[0].kinds.values()) == len(order.pods)


def test_a_drawn_order_has_all_pods_first_and_asks_for_more_than_there_is() -> None:
    order = runs.drawn_order(NODES, PODS, 3)
    assert sorted(order.pods[:3]) == [0, 1, 2]
    assert sum(PODS[pod].gpus * PODS[pod].gpu_milli for pod in order.pods) >= 1.3 * 14_000
    assert order == runs.drawn_order(NODES, PODS, 3) != runs.drawn_order(NODES, PODS, 4)
    assert len(runs.drawn_order(NODES, [Shape(1000, 1)], 3).pods) == 1


def test_tasks_that_come_and_go() -> None:
    (result,) = runs.come_and_go(NODES, PODS, 1.2, ["fairway"], "learned", 5, silent, count=300)
    assert (result.policy, result.load, result.seed, result.mix) == ("fairway", 1.2, 5, "learned")
    with pytest.raises(UsageError, match="a load above 0"):
        runs.come_and_go(NODES, PODS, 0.0, ["fairway"], "given", 0, silent)


def test_a_queue_is_played_for_every_policy() -> None:
    entries = [Entry(0.0, 2, 100.0), Entry(1.0, 1, 10.0)]
    found = runs.queue(entries, Nodes(1, 2), ["fifo", "srtf-oracle"], silent)
    assert [(result.policy, result.jobs) for result in found] == [("fifo", 2), ("srtf-oracle", 2)]


@pytest.mark.parametrize(
    ("name", "fix"),
    [("fgg", "fgd"), ("zzzz", "use one of"), ("fgd:3", "fgd"), ("random:x", "random")],
)
def test_an_unknown_policy_is_refused_with_a_known_one(name: str, fix: str) -> None:
    with pytest.raises(UsageError, match=f"--policy {name}: there is no such policy") as caught:
        runs.check_policies(["fgd", "random:7", name], runs.PLACEMENT_POLICIES)
    assert fix in caught.value.fix


@pytest.mark.parametrize(("text", "wanted"), [("", (0, None)), ("4", (4, None)), ("4x8", (4, 8))])
def test_more_nodes_are_written_as_a_number_with_or_without_gpus(text: str, wanted: tuple[int, int | None]) -> None:
    change = runs.Change.parse(text, 2)
    assert ((change.add, change.gpus), change.remove) == (wanted, 2)


@pytest.mark.parametrize("text", ["x", "4x", "x8", "-1", "4xx"])
def test_more_nodes_written_otherwise_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a number of nodes"):
        runs.Change.parse(text, 0)


def test_nodes_are_added_like_the_commonest_and_taken_away_evenly() -> None:
    order = Order((0,), (4, 3, 2, 1, 0))
    more, ranked = runs.change_nodes(NODES, order, runs.Change(add=2))
    assert [len(node.devices) for node in more] == [4, 4, 2, 4, 0, 4, 4]
    ranks = dict(zip(sorted(node.name for node in more), ranked.ranks, strict=True))
    assert [ranks[name] for name in "abcde"] == [4, 3, 2, 1, 0]
    assert min(rank for name, rank in ranks.items() if "+" in name) > 4
    small, _ = runs.change_nodes(NODES, order, runs.Change(add=1, gpus=2))
    assert [len(node.devices) for node in small][-1] == 2
    fewer, ranked = runs.change_nodes(NODES, order, runs.Change(remove=2))
    assert (len(fewer), len(ranked.ranks)) == (3, 3)
    same, kept = runs.change_nodes(NODES, order, runs.Change())
    assert (same, kept) == (NODES, order)


def test_a_changed_cluster_can_be_filled() -> None:
    order = Order((0, 1, 2) * 20, (0, 1, 2, 3, 4))
    nodes, ranked = runs.change_nodes(NODES, order, runs.Change(add=1, remove=1))
    (result,) = runs.place(nodes, PODS, ranked, ["fgd"], "given", silent)
    assert result.nodes == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [(runs.Change(add=1, gpus=3), "no node has 3 GPUs"), (runs.Change(remove=5), "there are only 5 nodes")],
)
def test_impossible_changes_are_refused(change: runs.Change, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        runs.change_nodes(NODES, Order((0,)), change)


def test_the_nodes_of_a_queue_are_all_alike() -> None:
    assert runs.change_queue_nodes(Nodes(3, 8), runs.Change(add=2, gpus=8, remove=1)) == Nodes(4, 8)
    with pytest.raises(UsageError, match="4 GPUs cannot be mixed with nodes with 8"):
        runs.change_queue_nodes(Nodes(3, 8), runs.Change(add=2, gpus=4))


@pytest.mark.parametrize("order", [Order((3,)), Order((0,), (1, 2))])
def test_an_order_of_other_pods_or_nodes_is_refused_with_the_fix(order: Order) -> None:
    with pytest.raises(UsageError, match="belongs to") as caught:
        runs.place(NODES, PODS, order, ["fgd"], "given", silent)
    assert "--seed" in caught.value.fix
    if order.ranks:
        with pytest.raises(UsageError, match="belongs to another list of nodes"):
            runs.change_nodes(NODES, order, runs.Change(add=1))


def test_empty_lists_are_refused() -> None:
    with pytest.raises(UsageError, match="list of nodes is empty"):
        runs.check_order([], PODS, Order(()))
    with pytest.raises(UsageError, match="list of pods is empty"):
        runs.check_order(NODES, [], Order(()))
