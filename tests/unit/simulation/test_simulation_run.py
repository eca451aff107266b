from __future__ import annotations

import pytest

from fairway.errors import UsageError
from fairway.plan.scheduling.gang import TaskShape
from fairway.simulation import simulation_run
from fairway.simulation.openb_trace import ArrivalOrder
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.state.node import ClusterNode, NodeDevice


def a_node(name: str, gpus: int = 4, cpu: float = 16.0) -> ClusterNode:
    return ClusterNode(name, cpu, 64 << 30, tuple(NodeDevice(f"{name}/{index}", index, type="A") for index in range(gpus)))


NODES = [a_node("a"), a_node("b"), a_node("c", gpus=2), a_node("d"), a_node("e", gpus=0)]
PODS = [TaskShape(1000, 1, 1), TaskShape(1000, 1, 1, 500), TaskShape(1000, 1)]


def silent(_policy: str, _done: int, _total: int) -> None:
    pass


def test_policies_stand_side_by_side_on_the_same_arrivals() -> None:
    told: list[str] = []
    order = simulation_run.drawn_order(NODES, PODS, 3)
    found = simulation_run.place(
        NODES, PODS, order, ["fairway", "best-fit"], "given", lambda policy, done, total: told.append(policy)
    )
    assert [result.policy for result in found] == ["fairway", "best-fit"]
    assert all(result.curve[100] > 80 for result in found)
    assert set(told) == {"fairway", "best-fit"}
    assert sum(kind.arrived for kind in found[0].kinds.values()) == len(order.pods)


def test_a_drawn_order_has_all_pods_first_and_asks_for_more_than_there_is() -> None:
    order = simulation_run.drawn_order(NODES, PODS, 3)
    assert sorted(order.pods[:3]) == [0, 1, 2]
    assert sum(PODS[pod].gpus * PODS[pod].gpu_milli for pod in order.pods) >= 1.3 * 14_000
    assert order == simulation_run.drawn_order(NODES, PODS, 3) != simulation_run.drawn_order(NODES, PODS, 4)
    assert len(simulation_run.drawn_order(NODES, [TaskShape(1000, 1)], 3).pods) == 1


def test_tasks_that_come_and_go() -> None:
    (result,) = simulation_run.come_and_go(NODES, PODS, 1.2, ["fairway"], "learned", 5, silent, count=300)
    assert (result.policy, result.load, result.seed, result.mix) == ("fairway", 1.2, 5, "learned")
    with pytest.raises(UsageError, match="a load above 0"):
        simulation_run.come_and_go(NODES, PODS, 0.0, ["fairway"], "given", 0, silent)


def test_a_queue_is_played_for_every_policy() -> None:
    entries = [RecordedJob(0.0, 2, 100.0), RecordedJob(1.0, 1, 10.0)]
    found = simulation_run.queue(entries, EqualNodes(1, 2), ["fifo", "srtf-oracle"], silent)
    assert [(result.policy, result.jobs) for result in found] == [("fifo", 2), ("srtf-oracle", 2)]


@pytest.mark.parametrize(
    ("name", "fix"),
    [("fgg", "fgd"), ("zzzz", "use one of"), ("fgd:3", "fgd"), ("random:x", "random")],
)
def test_an_unknown_policy_is_refused_with_a_known_one(name: str, fix: str) -> None:
    with pytest.raises(UsageError, match=f"--policy {name}: there is no such policy") as caught:
        simulation_run.check_policies(["fgd", "random:7", name], simulation_run.PLACEMENT_POLICIES)
    assert fix in caught.value.fix


@pytest.mark.parametrize(("text", "wanted"), [("", (0, None)), ("4", (4, None)), ("4x8", (4, 8))])
def test_more_nodes_are_written_as_a_number_with_or_without_gpus(text: str, wanted: tuple[int, int | None]) -> None:
    change = simulation_run.NodeChange.parse(text, 2)
    assert ((change.add, change.gpus), change.remove) == (wanted, 2)


@pytest.mark.parametrize("text", ["x", "4x", "x8", "-1", "4xx"])
def test_more_nodes_written_otherwise_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a number of nodes"):
        simulation_run.NodeChange.parse(text, 0)


def test_nodes_are_added_like_the_commonest_and_taken_away_evenly() -> None:
    order = ArrivalOrder((0,), (4, 3, 2, 1, 0))
    more, ranked = simulation_run.change_nodes(NODES, order, simulation_run.NodeChange(add=2))
    assert [len(node.devices) for node in more] == [4, 4, 2, 4, 0, 4, 4]
    ranks = dict(zip(sorted(node.name for node in more), ranked.ranks, strict=True))
    assert [ranks[name] for name in "abcde"] == [4, 3, 2, 1, 0]
    assert min(rank for name, rank in ranks.items() if "+" in name) > 4
    small, _ = simulation_run.change_nodes(NODES, order, simulation_run.NodeChange(add=1, gpus=2))
    assert [len(node.devices) for node in small][-1] == 2
    fewer, ranked = simulation_run.change_nodes(NODES, order, simulation_run.NodeChange(remove=2))
    assert (len(fewer), len(ranked.ranks)) == (3, 3)
    same, kept = simulation_run.change_nodes(NODES, order, simulation_run.NodeChange())
    assert (same, kept) == (NODES, order)


def test_a_changed_cluster_can_be_filled() -> None:
    order = ArrivalOrder((0, 1, 2) * 20, (0, 1, 2, 3, 4))
    nodes, ranked = simulation_run.change_nodes(NODES, order, simulation_run.NodeChange(add=1, remove=1))
    (result,) = simulation_run.place(nodes, PODS, ranked, ["fgd"], "given", silent)
    assert result.nodes == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (simulation_run.NodeChange(add=1, gpus=3), "no node has 3 GPUs"),
        (simulation_run.NodeChange(remove=5), "there are only 5 nodes"),
    ],
)
def test_impossible_changes_are_refused(change: simulation_run.NodeChange, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        simulation_run.change_nodes(NODES, ArrivalOrder((0,)), change)


def test_the_nodes_of_a_queue_are_all_alike() -> None:
    assert simulation_run.change_queue_nodes(EqualNodes(3, 8), simulation_run.NodeChange(add=2, gpus=8, remove=1)) == EqualNodes(
        4, 8
    )
    with pytest.raises(UsageError, match="4 GPUs cannot be mixed with nodes with 8"):
        simulation_run.change_queue_nodes(EqualNodes(3, 8), simulation_run.NodeChange(add=2, gpus=4))


@pytest.mark.parametrize("order", [ArrivalOrder((3,)), ArrivalOrder((0,), (1, 2))])
def test_an_order_of_other_pods_or_nodes_is_refused_with_the_fix(order: ArrivalOrder) -> None:
    with pytest.raises(UsageError, match="belongs to") as caught:
        simulation_run.place(NODES, PODS, order, ["fgd"], "given", silent)
    assert "--seed" in caught.value.fix
    if order.ranks:
        with pytest.raises(UsageError, match="belongs to another list of nodes"):
            simulation_run.change_nodes(NODES, order, simulation_run.NodeChange(add=1))


def test_empty_lists_are_refused() -> None:
    with pytest.raises(UsageError, match="list of nodes is empty"):
        simulation_run.check_order([], PODS, ArrivalOrder(()))
    with pytest.raises(UsageError, match="list of pods is empty"):
        simulation_run.check_order(NODES, [], ArrivalOrder(()))
