"""Numbers that are updated incrementally equal those computed from scratch."""

from __future__ import annotations

import random

import pytest

from fairway.plan.scheduling.cluster import ClusterModel, fit_count
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskNodeSelector, TaskSeat, TaskShape
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.state.node import ClusterNode
from fairway.testing.fake.fake_cluster import machine

SHAPES = [
    TaskShape(cpu=1000, gpus=1),
    TaskShape(cpu=2000, memory=1024, gpus=1, gpu_milli=300),
    TaskShape(cpu=1000, gpus=2, gpu_milli=500),
    TaskShape(cpu=4000, gpus=4, gpu_types=("A100",)),
    TaskShape(cpu=3000),
    TaskShape(cpu=1000, other=(("nic", 1),)),
    TaskShape(cpu=1000, gpus=1, where=TaskNodeSelector(devices=("0", "2"))),
    TaskShape(cpu=1000, gpus=1, where=TaskNodeSelector(nodes=("n1", "n3"))),
]


def fleet(draw: random.Random) -> list[ClusterNode]:
    return [
        machine(f"n{number}", draw.choice([2, 4, 4]), draw.choice(["T4", "A100"]), rack=f"r{number % 3}", nic=number % 3)
        for number in range(9)
    ]


def place_or_give(cluster: ClusterModel, draw: random.Random, seated: list[tuple[TaskSeat, ...]]) -> None:
    if seated and draw.random() < 0.4:
        cluster.give(seated.pop(draw.randrange(len(seated))))
        return
    count = draw.choice([1, 1, 2, 5])
    seats = cluster.try_place(GangShape((GangRole("worker", draw.choice(SHAPES), count, count),)))
    if seats is not None:
        seated.append(seats)


@pytest.mark.parametrize("at_once", [1, 4, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_room_is_what_a_new_cluster_counts(seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_count, "MANY", at_once)
    draw = random.Random(seed)
    nodes = fleet(draw)
    cluster = ClusterModel(nodes)
    seated: list[tuple[TaskSeat, ...]] = []
    for _ in range(40):
        for _ in range(draw.choice([1, 3, 8])):
            place_or_give(cluster, draw, seated)
        anew = ClusterModel(nodes)
        for seats in seated:
            anew.take(seats)
        for shape in draw.sample(SHAPES, 4):
            assert cluster.room(shape) == anew.room(shape)


@pytest.mark.parametrize("seed", range(12))
def test_one_that_has_learnt_chooses_as_one_that_always_knew(seed: int) -> None:
    draw = random.Random(seed)
    nodes = fleet(draw)
    cluster = ClusterModel(nodes)
    seated: list[tuple[TaskSeat, ...]] = []
    for lesson in range(6):
        for _ in range(8):
            place_or_give(cluster, draw, seated)
        mix = WorkloadMix.of({shape: draw.randint(1, 30) for shape in draw.sample(SHAPES[:6], 2 + lesson % 4)})
        cluster.learn(mix)
        if draw.random() < 0.5:
            place_or_give(cluster, draw, seated)
        anew = ClusterModel(nodes, mix=mix)
        for seats in seated:
            anew.take(seats)
        for shape in SHAPES:
            gang = GangShape((GangRole("worker", shape, 3, 3),))
            marks = cluster.mark(), anew.mark()
            assert cluster.try_place(gang) == anew.try_place(gang)
            cluster.undo(marks[0])
            anew.undo(marks[1])
        cluster.keep()
