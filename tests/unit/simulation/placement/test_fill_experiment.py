from __future__ import annotations

import pytest

from fairway.errors import UsageError
from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation.openb_trace import ArrivalOrder
from fairway.simulation.placement.churn_experiment import arrivals, churn
from fairway.simulation.placement.fill_experiment import changed, run
from fairway.simulation.placement.placement_result import RejectionCount
from fairway.state.node import ClusterNode, NodeDevice

NODES = [
    ClusterNode(name, 32, 1 << 36, tuple(NodeDevice(f"{name}/{at}", at, type="T4") for at in range(4))) for name in ("a", "b")
]
PODS = [TaskShape(cpu=4000, gpus=1), TaskShape(cpu=2000, gpus=1, gpu_milli=500), TaskShape(cpu=8000, gpus=4), TaskShape(cpu=1000)]


def test_a_curve_goes_by_what_arrived() -> None:
    steps: list[tuple[int, int]] = []
    result = run(NODES, PODS, ArrivalOrder((0,) * 10), "best-fit", progress=lambda done, total: steps.append((done, total)))
    assert result.curve == {
        12: 12.5,
        25: 25.0,
        38: 37.5,
        50: 50.0,
        62: 62.5,
        75: 75.0,
        88: 87.5,
        100: 100.0,
        112: 100.0,
        125: 100.0,
    }
    assert result.kinds == {"1-gpu": RejectionCount(10, 2)}
    assert (result.nodes, result.gpus, result.allocated, result.mix) == (2, 8, 100.0, "given")
    assert result.pace.decisions == 10
    assert steps[-1] == (10, 10)


def test_fragments_are_what_the_mix_cannot_use() -> None:
    halves = [TaskShape(cpu=0, gpus=1), TaskShape(cpu=32_000)]
    result = run(NODES, halves, ArrivalOrder((1, 0)), "best-fit")
    # Half of the mix needs no GPU: as published, all idle GPUs count as useless for these. The others can use them all.
    assert result.fragmentation == pytest.approx({0: 50.0, 12: 50.0})


@pytest.mark.parametrize("mix", ["given", "learned", WorkloadMix.of([TaskShape(gpus=1)])])
def test_a_policy_knows_the_mix_learns_it_or_is_told(mix: str | WorkloadMix) -> None:
    result = run(NODES, PODS, ArrivalOrder((0, 1, 1, 2, 3) * 20), "fairway", mix)
    assert result.allocated == 100.0
    assert result.mix == (mix if isinstance(mix, str) else "own")


def test_a_mix_that_is_neither_is_refused() -> None:
    with pytest.raises(UsageError, match="guessed"):
        run(NODES, PODS, ArrivalOrder((0,)), "fairway", "guessed")


def test_the_same_again_is_the_same() -> None:
    order = ArrivalOrder((0, 1, 2, 3, 1, 0, 1) * 4)
    first, second = (run(NODES, PODS, order, "fairway", "learned") for _ in range(2))
    assert (first.curve, first.fragmentation, first.kinds) == (second.curve, second.fragmentation, second.kinds)


def test_nodes_come_and_go_in_thought() -> None:
    more = changed(NODES, add=[("a", 2)], remove=["b"])
    assert [node.name for node in more] == ["a", "a+1", "a+2"]
    assert len({device.uuid for node in more for device in node.devices}) == 12
    with pytest.raises(UsageError, match="no node z"):
        changed(NODES, remove=["z"])
    with pytest.raises(UsageError, match="no node z"):
        changed(NODES, add=[("z", 1)])
    result = run(more, PODS, ArrivalOrder((0,) * 12), "best-fit")
    assert (result.gpus, result.allocated) == (12, 100.0)


def test_arrivals_offer_the_load() -> None:
    coming = arrivals(NODES, PODS, 1.3, seed=5, count=4000)
    milli = sum(each.shape.gpus * each.shape.gpu_milli * each.stay for each in coming)
    assert milli / coming[-1].time == pytest.approx(1.3 * 8000, rel=0.1)
    assert coming == arrivals(NODES, PODS, 1.3, seed=5, count=4000)
    assert len(arrivals(NODES, PODS, 0.01, seed=5)) == 450


def test_under_churn_what_left_makes_room() -> None:
    low = churn(NODES, PODS, 0.3, "fairway", seed=1, count=600)
    high = churn(NODES, PODS, 2.0, "fairway", seed=1, count=600)
    assert 15 < low.allocation < 45
    assert high.allocation > 55
    assert high.rejected_gpus > low.rejected_gpus
    assert len(high.series) <= 101
    again = churn(NODES, PODS, 2.0, "fairway", "learned", seed=1, count=600)
    assert again.allocation == pytest.approx(high.allocation, abs=10)
