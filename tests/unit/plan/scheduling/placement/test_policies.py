"""What policies prefer, and that the fast scoring agrees with the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskSeat, TaskShape
from fairway.plan.scheduling.placement import price_guided as ours
from fairway.plan.scheduling.placement.gpu_type_demand import scarcity
from fairway.plan.scheduling.placement.placement_policy import NEVER
from fairway.plan.scheduling.placement.policy_catalogue import POLICIES, make
from fairway.plan.scheduling.placement.share_price import SharePrices
from fairway.plan.scheduling.placement.typical_task import TypicalTasks
from fairway.plan.scheduling.score_input import DeviceKind, NodeModel, NodeScoreState, ScoreRows, need_on
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.state.node import ClusterNode, NodeDevice

A, B = DeviceKind("a", 0), DeviceKind("b", 0)

shapes = st.builds(
    TaskShape,
    cpu=st.integers(0, 16).map(lambda cores: cores * 1000),
    gpus=st.sampled_from([0, 1, 1, 1, 2, 4]),
    gpu_milli=st.sampled_from([100, 300, 500, 810, 1000]),
    gpu_types=st.sampled_from([(), (), ("a",)]),
).filter(lambda shape: shape.gpus <= 1 or shape.gpu_milli == 1000)
mixes = st.dictionaries(shapes, st.integers(1, 50), min_size=2, max_size=8).map(WorkloadMix.of)
remainders = st.lists(st.sampled_from([0, 190, 300, 500, 700, 1000, 1000, 1000]), min_size=1, max_size=4)


@st.composite
def states(draw: st.DrawFn) -> NodeScoreState:
    free = draw(remainders)
    kinds = draw(st.sampled_from([(A,) * len(free), (B,) * len(free), tuple(A if at % 2 else B for at in range(len(free)))]))
    return NodeScoreState(
        NodeModel(kinds, 32_000),
        draw(st.integers(0, 32)) * 1000,
        tuple(free),
        draw(st.sampled_from([frozenset(), frozenset({"share"})])),
    )


def table(mix: WorkloadMix) -> ScoreRows:
    specs = ScoreRows()
    for shape, _ in mix.counts:
        specs.add(shape)
    return specs


@settings(max_examples=60, deadline=None)
@given(mixes, states(), st.sampled_from(sorted(POLICIES)))
def test_scores_do_not_depend_on_what_else_is_scored(mix: WorkloadMix, state: NodeScoreState, name: str) -> None:
    policy = make(name, mix, {state.model: 1})
    column = policy.column(table(mix), state)
    for row, (shape, _) in enumerate(mix.counts):
        alone = ScoreRows()
        alone.add(shape)
        assert policy.column(alone, state).scores[0] == column.scores[row]


def outcomes(shape: TaskShape, state: NodeScoreState) -> list[tuple[int, NodeScoreState]]:
    """Return every way to place the task: the device, and the state afterwards."""
    cpu = state.cpu - shape.cpu
    if cpu < 0:
        return []
    fitting = [at for at, kind in enumerate(state.model.kinds) if need_on(shape, kind) <= state.free[at]]
    if len(fitting) < shape.gpus:
        return []
    chosen = [[at] for at in fitting] if shape.gpus == 1 and shape.shares else [fitting[: shape.gpus]]
    return [
        (
            slots[0] if slots else 0,
            state._replace(
                cpu=cpu,
                free=tuple(left - shape.gpu_milli * (at in slots) for at, left in enumerate(state.free)),
            ),
        )
        for slots in chosen
    ]


@settings(max_examples=150, deadline=None)
@given(mixes, states())
def test_fgd_is_the_gradient_of_fragmentation(mix: WorkloadMix, state: NodeScoreState) -> None:
    column = make("fgd", mix, {state.model: 1}).column(table(mix), state)
    typical = TypicalTasks(mix)
    assert sum(typical.share) == pytest.approx(1.0)
    for row, (shape, _) in enumerate(mix.counts):
        gains = [typical.fragments(state) - typical.fragments(after) for _, after in outcomes(shape, state)]
        if not gains:
            assert column.scores[row] == NEVER
            continue
        best = 100.0 / (1.0 + math.exp(-max(gains) / 1000.0))
        # A sum in another order may be rounded to another percent.
        assert column.scores[row] in (math.floor(best - 1e-9), math.floor(best + 1e-9))


@settings(max_examples=150, deadline=None)
@given(mixes, states())
def test_ours_is_what_it_says(mix: WorkloadMix, state: NodeScoreState) -> None:
    column = make("fairway", mix, {state.model: 1}).column(table(mix), state)
    typical = TypicalTasks(ours._weighted(mix))
    demand: dict[int, float] = {}
    for shape, count in mix.counts:
        if shape.shares:
            demand[shape.gpu_milli] = demand.get(shape.gpu_milli, 0.0) + count * shape.gpus
    prices, sought = SharePrices(demand), scarcity(mix, {state.model: 1})

    def stranded(node: NodeScoreState) -> float:
        return max(0.0, sum(node.free) - node.cpu / (ours.CORES * ours.cores_per_gpu(mix)))

    for row, (shape, _) in enumerate(mix.counts):
        gains = []
        for slot, after in outcomes(shape, state):
            gain = typical.fragments(state) - typical.fragments(after)
            gain -= ours.STRANDED * (stranded(after) - stranded(state))
            if shape.gpus == 1 and shape.shares:
                gain -= ours.SPOILT * 1000 * prices.loss(state.free[slot], shape.gpu_milli)
            for kind, before, then in zip(state.model.kinds, state.free, after.free, strict=True):
                gain -= ours.SOUGHT * sought[kind.type] * (before - then)
            gains.append(gain)
        if not gains:
            assert column.scores[row] == NEVER
            continue
        tie = round(ours.FULLER * ours.TIE * sum(state.free) / 8000)
        steps = [math.floor((max(gains) + ours.CLOSE + noise) / ours.STEP) * ours.TIE - tie for noise in (-0.1, 0.1)]
        assert min(steps) <= column.scores[row] <= max(steps)


def node(name: str, gpus: int = 4, cpu: float = 32, kind: str = "a") -> ClusterNode:
    return ClusterNode(name, cpu, 1 << 38, tuple(NodeDevice(f"{name}-{at}", at, type=kind) for at in range(gpus)))


def first(cluster: ClusterModel, shape: TaskShape) -> TaskSeat:
    placement = cluster.place(GangShape((GangRole("task", shape),)))
    assert isinstance(placement, tuple)
    return placement[0]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("bundle", "b"),
        ("spread", "a"),
        ("best-fit", "b"),
        ("gpu-packing", "b"),
        ("gpu-clustering", "b"),
        ("fgd", "b"),
        ("fairway", "b"),
    ],
)
def test_packers_fill_up_and_spreaders_do_not(policy: str, expected: str) -> None:
    cluster = ClusterModel(
        [node("a"), node("b")], policy, WorkloadMix.of({TaskShape(cpu=4000, gpus=1): 3, TaskShape(cpu=8000, gpus=4): 1})
    )
    cluster.take([TaskSeat("task", 0, TaskShape(cpu=4000, gpus=1), "b", ("b-0",))])
    assert first(cluster, TaskShape(cpu=4000, gpus=1)).node == expected


def test_bundle_breaks_the_smallest_idle_node() -> None:
    cluster = ClusterModel([node("a", 8), node("b", 2), node("c", 4)], "bundle")
    assert first(cluster, TaskShape(gpus=1)).node == "b"


def test_spread_takes_the_emptiest_device() -> None:
    cluster = ClusterModel([node("a", 2)], "spread")
    share = TaskShape(gpus=1, gpu_milli=300)
    assert {first(cluster, share).devices for _ in range(2)} == {("a-0",), ("a-1",)}


def test_ours_keeps_a_filling_whole() -> None:
    mix = WorkloadMix.of({TaskShape(cpu=1000, gpus=1, gpu_milli=470): 100, TaskShape(cpu=1000, gpus=1, gpu_milli=320): 50})
    cluster = ClusterModel([node("a", 2)], mix=mix)
    cluster.take([TaskSeat("x", 0, TaskShape(cpu=1000, gpus=1, gpu_milli=470), "a", ("a-0",), 470)])
    assert first(cluster, TaskShape(cpu=1000, gpus=1, gpu_milli=320)).devices == ("a-1",), "two of 470 fill a device better"
    assert first(cluster, TaskShape(cpu=1000, gpus=1, gpu_milli=470)).devices == ("a-0",)


def test_ours_leaves_sought_after_types_to_those_who_ask() -> None:
    mix = WorkloadMix.of({TaskShape(cpu=4000, gpus=1): 50, TaskShape(cpu=4000, gpus=1, gpu_types=("a",)): 50})
    cluster = ClusterModel([node("a", kind="a"), node("b", kind="b")], mix=mix)
    assert first(cluster, TaskShape(cpu=4000, gpus=1)).node == "b"


def test_lots_depend_on_the_seed_and_the_state_alone() -> None:
    fleet = [node(f"n{number}") for number in range(20)]

    def draw(seed: int) -> list[TaskSeat]:
        cluster = ClusterModel(fleet, f"random:{seed}")
        return [first(cluster, TaskShape(cpu=1000, gpus=1, gpu_milli=300)) for _ in range(10)]

    assert draw(1) == draw(1) != draw(2)
    assert len({seat.node for seat in draw(1)}) > 4


def test_scarcity_is_nothing_when_nobody_names_types() -> None:
    assert scarcity(WorkloadMix.of([TaskShape(gpus=1)]), {NodeModel((A, B), 0): 1}) == {"a": 0.0, "b": 0.0}
    named = scarcity(WorkloadMix.of([TaskShape(gpus=1), TaskShape(gpus=1, gpu_types=("a",))]), {NodeModel((A, B), 0): 1})
    assert named == {"a": 1.0, "b": 0.0}


def test_kept_plans_are_bounded() -> None:
    specs = ScoreRows()
    for number in range(10_000):
        specs.keep(number, np.zeros(1))
    assert len(specs.plans) <= 4_000
