"""What policies prefer, and that the fast scoring agrees with the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.plan.scheduling.cluster import Cluster
from fairway.plan.scheduling.placement import fairway as ours
from fairway.plan.scheduling.placement.catalogue import POLICIES, make
from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.placement.policy import NEVER
from fairway.plan.scheduling.placement.prices import Prices
from fairway.plan.scheduling.placement.scarcity import scarcity
from fairway.plan.scheduling.placement.specs import Kind, Model, Specs, State, need_on
from fairway.plan.scheduling.placement.typical import Typical
from fairway.plan.scheduling.shape import Gang, Part, Seat, Shape
from fairway.state.node import Device, Node

A, B = Kind("a", 0), Kind("b", 0)

shapes = st.builds(
    Shape,
    cpu=st.integers(0, 16).map(lambda cores: cores * 1000),
    gpus=st.sampled_from([0, 1, 1, 1, 2, 4]),
    gpu_milli=st.sampled_from([100, 300, 500, 810, 1000]),
    gpu_types=st.sampled_from([(), (), ("a",)]),
).filter(lambda shape: shape.gpus <= 1 or shape.gpu_milli == 1000)
mixes = st.dictionaries(shapes, st.integers(1, 50), min_size=2, max_size=8).map(Mix.of)
remainders = st.lists(st.sampled_from([0, 190, 300, 500, 700, 1000, 1000, 1000]), min_size=1, max_size=4)


@st.composite
def states(draw: st.DrawFn) -> State:
    free = draw(remainders)
    kinds = draw(st.sampled_from([(A,) * len(free), (B,) * len(free), tuple(A if at % 2 else B for at in range(len(free)))]))
    return State(
        Model(kinds, 32_000),
        draw(st.integers(0, 32)) * 1000,
        tuple(free),
        draw(st.sampled_from([frozenset(), frozenset({"share"})])),
    )


def table(mix: Mix) -> Specs:
    specs = Specs()
    for shape, _ in mix.counts:
        specs.add(shape)
    return specs


@settings(max_examples=60, deadline=None)
@given(mixes, states(), st.sampled_from(sorted(POLICIES)))
def test_scores_do_not_depend_on_what_else_is_scored(mix: Mix, state: State, name: str) -> None:
    policy = make(name, mix, {state.model: 1})
    column = policy.column(table(mix), state)
    for row, (shape, _) in enumerate(mix.counts):
        alone = Specs()
        alone.add(shape)
        assert policy.column(alone, state).scores[0] == column.scores[row]


def outcomes(shape: Shape, state: State) -> list[tuple[int, State]]:
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
def test_fgd_is_the_gradient_of_fragmentation(mix: Mix, state: State) -> None:
    column = make("fgd", mix, {state.model: 1}).column(table(mix), state)
    typical = Typical(mix)
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
def test_ours_is_what_it_says(mix: Mix, state: State) -> None:
    column = make("fairway", mix, {state.model: 1}).column(table(mix), state)
    typical = Typical(ours._weighted(mix))
    demand: dict[int, float] = {}
    for shape, count in mix.counts:
        if shape.shares:
            demand[shape.gpu_milli] = demand.get(shape.gpu_milli, 0.0) + count * shape.gpus
    prices, sought = Prices(demand), scarcity(mix, {state.model: 1})

    def stranded(node: State) -> float:
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


def node(name: str, gpus: int = 4, cpu: float = 32, kind: str = "a") -> Node:
    return Node(name, cpu, 1 << 38, tuple(Device(f"{name}-{at}", at, type=kind) for at in range(gpus)))


def first(cluster: Cluster, shape: Shape) -> Seat:
    placement = cluster.place(Gang((Part("task", shape),)))
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
    cluster = Cluster([node("a"), node("b")], policy, Mix.of({Shape(cpu=4000, gpus=1): 3, Shape(cpu=8000, gpus=4): 1}))
    cluster.take([Seat("task", 0, Shape(cpu=4000, gpus=1), "b", ("b-0",))])
    assert first(cluster, Shape(cpu=4000, gpus=1)).node == expected


def test_bundle_breaks_the_smallest_idle_node() -> None:
    cluster = Cluster([node("a", 8), node("b", 2), node("c", 4)], "bundle")
    assert first(cluster, Shape(gpus=1)).node == "b"


def test_spread_takes_the_emptiest_device() -> None:
    cluster = Cluster([node("a", 2)], "spread")
    share = Shape(gpus=1, gpu_milli=300)
    assert {first(cluster, share).devices for _ in range(2)} == {("a-0",), ("a-1",)}


def test_ours_keeps_a_filling_whole() -> None:
    mix = Mix.of({Shape(cpu=1000, gpus=1, gpu_milli=470): 100, Shape(cpu=1000, gpus=1, gpu_milli=320): 50})
    cluster = Cluster([node("a", 2)], mix=mix)
    cluster.take([Seat("x", 0, Shape(cpu=1000, gpus=1, gpu_milli=470), "a", ("a-0",), 470)])
    assert first(cluster, Shape(cpu=1000, gpus=1, gpu_milli=320)).devices == ("a-1",), "two of 470 fill a device better"
    assert first(cluster, Shape(cpu=1000, gpus=1, gpu_milli=470)).devices == ("a-0",)


def test_ours_leaves_sought_after_types_to_those_who_ask() -> None:
    mix = Mix.of({Shape(cpu=4000, gpus=1): 50, Shape(cpu=4000, gpus=1, gpu_types=("a",)): 50})
    cluster = Cluster([node("a", kind="a"), node("b", kind="b")], mix=mix)
    assert first(cluster, Shape(cpu=4000, gpus=1)).node == "b"


def test_lots_depend_on_the_seed_and_the_state_alone() -> None:
    fleet = [node(f"n{number}") for number in range(20)]

    def draw(seed: int) -> list[Seat]:
        cluster = Cluster(fleet, f"random:{seed}")
        return [first(cluster, Shape(cpu=1000, gpus=1, gpu_milli=300)) for _ in range(10)]

    assert draw(1) == draw(1) != draw(2)
    assert len({seat.node for seat in draw(1)}) > 4


def test_scarcity_is_nothing_when_nobody_names_types() -> None:
    assert scarcity(Mix.of([Shape(gpus=1)]), {Model((A, B), 0): 1}) == {"a": 0.0, "b": 0.0}
    named = scarcity(Mix.of([Shape(gpus=1), Shape(gpus=1, gpu_types=("a",))]), {Model((A, B), 0): 1})
    assert named == {"a": 1.0, "b": 0.0}


def test_kept_plans_are_bounded() -> None:
    specs = Specs()
    for number in range(10_000):
        specs.keep(number, np.zeros(1))
    assert len(specs.plans) <= 4_000
