"""Messages about why a run waits, or could never start: true numbers, no jargon, correct plurals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.plan.scheduling.decision import EvictDecision, EvictionCause, LimitObstacle, ReservationObstacle
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.plan.scheduling.gang import CapacityShortfall, GangRole, GangShape, TaskNodeSelector, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import Queue
from fairway.testing.builder.scheduler_builder import asked_in_turn

NOW = 100.0


def node(name: str, gpus: int, kind: str = "A100", rack: str = "") -> ClusterNode:
    return ClusterNode(
        name, 16.0, 64 << 30, tuple(NodeDevice(f"{name}-{each}", each, kind, 80 << 30) for each in range(gpus)), rack=rack
    )


def ask(name: str, gang: GangShape, **more: object) -> GangRequest:
    return GangRequest(JobKey("default", name), gang, 0.0, **more)  # type: ignore[arg-type]


def one(tasks: int = 1, *, same_rack: bool = False, together: bool = False, apart: bool = False, **shape: object) -> GangShape:
    asked = TaskShape(**{"cpu": 1000, **shape})  # type: ignore[arg-type]
    return GangShape((GangRole("worker", asked, tasks, tasks, together, apart),), same_rack)


def said(nodes: list[ClusterNode], *requests: GangRequest, queues: tuple[Queue, ...] = ()) -> tuple[str, str, str]:
    """Return why the last of the requests waits."""
    scheduler = asked_in_turn(nodes, requests, queues)
    last = scheduler.ledger.room.get(requests[-1].key)
    assert last is not None, "it was meant to wait"
    found = wait_explanation.obstacles(scheduler.ledger, [last], NOW)[scheduler.ledger.line_key(last, NOW)]
    hold = wait_explanation.hold(last, found, scheduler.ledger.nodes)
    return hold.reason, hold.message, hold.what_would_help


def test_the_binding_constraint_with_what_is_free() -> None:
    fill = [
        ask(f"f-{index}", one(gpus=count, where=TaskNodeSelector(nodes=(at,))))
        for index, (at, count) in enumerate((("a", 1), ("b", 2), ("c", 3)))
    ]
    nodes = [node("a", 4), node("b", 6), node("c", 6)]
    reason, message, _ = said(nodes, *fill, ask("x-1", one(gpus=6)))
    assert (reason, message) == ("gpu", "needs 6 GPUs on one node; the most any node has free is 4; 10 are free in all")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (one(gpus=3), one(gpus=2), "needs 2 GPUs; 1 of 4 is free"),
        (one(gpus=4), one(gpus=1), "needs 1 GPU; 0 of 4 are free"),
        (one(gpus=2), one(gpus=3, gpu_types=("A100",)), "needs 3 GPUs of type A100; 2 of 4 are free"),
        (one(gpus=4, gpu_milli=900), one(gpus=1, gpu_milli=500), "needs 50% of a GPU; 0.4 of 4 are free"),
        (one(cpu=15_000), one(cpu=2000), "needs 2 CPUs; 1 of 16 is free"),
        (one(memory=60 << 10), one(memory=8 << 10), "needs 8 GiB of memory; 4 GiB of 64 GiB are free"),
        (
            one(gpus=2),
            one(3, gpus=1),
            "needs 1 GPU for each of 3 worker tasks, which start together (2 of 3 would find a place); 2 of 4 are free",
        ),
        (
            one(gpus=2),
            one(2, together=True, gpus=2),
            "needs 4 GPUs on one node for 2 worker tasks, which stay together; 2 of 4 are free",
        ),
    ],
)
def test_on_one_node(first: GangShape, second: GangShape, message: str) -> None:
    assert said([node("here", 4)], ask("x-1", first), ask("y-1", second))[1] == message


def test_several_roles_start_together() -> None:
    both = GangShape((GangRole("chief", TaskShape(cpu=1000, gpus=1)), GangRole("worker", TaskShape(cpu=1000, gpus=2), 2, 2)))
    _, message, _ = said([node("here", 4)], ask("x-1", one(gpus=1)), ask("y-1", both))
    assert message.startswith("needs 2 GPUs for each of 2 worker tasks, which start together with 1 more")


def test_rules_of_a_placement() -> None:
    nodes = [node("a", 2, rack="r1"), node("b", 2, rack="r2")]
    fill = ask("x-1", one(gpus=2, where=TaskNodeSelector(nodes=("a",))))
    assert said(nodes, fill, ask("y-1", one(2, apart=True, gpus=1)))[1] in (
        "needs 2 nodes for 2 worker tasks, which must be on different nodes; only 1 fit",
        "needs 1 GPU for each of 2 worker tasks, which start together; the most any node has free is 2; 2 are free in all",
    )
    half = ask("x-1", one(gpus=1, where=TaskNodeSelector(nodes=("a",))))
    other = ask("w-1", one(gpus=1, where=TaskNodeSelector(nodes=("b",))))
    message = said(nodes, half, other, ask("y-1", one(2, same_rack=True, gpus=1)))[1]
    assert message == "no rack has room for all 2 tasks, which must be in one rack"


def test_whose_gpus_others_use() -> None:
    busy = replace(node("here", 2), devices=(NodeDevice("a", 0), NodeDevice("b", 1, busy_with="pid 7 (python)")))
    assert said([busy], ask("x-1", one(gpus=2)))[1] == "needs 2 GPUs; 1 of 2 is free (GPU 1: pid 7 (python))"


def test_rules_of_a_queue() -> None:
    queues = (
        Queue("small", quota={"gpu": 2000}, borrow=False),
        Queue("each", per_user={"gpu": 1000}),
        Queue("few", per_user={"runs": 1}),
    )
    nodes = [node("here", 8)]
    small = [ask(name, one(gpus=2), queue="small") for name in ("x-1", "y-1")]
    reason, message, helps = said(nodes, *small, queues=queues)
    assert (reason, message) == ("quota", "queue small may use 2 GPUs and uses 2 GPUs; this needs 2 GPUs more")
    assert helps == "a run of queue small must end first, or its quota must be raised: fairway get queue/small"
    each = [ask(name, one(gpus=1), queue="each", user="ann") for name in ("x-1", "y-1")]
    reason, message, helps = said(nodes, *each, queues=queues)
    assert (reason, message) == ("limit", "ann in queue each may use 1 GPU at a time and uses 1 GPU; this needs 1 GPU more")
    assert helps == "one of the same user's runs must end first"
    few = [ask(name, one(), queue="few", user="ann") for name in ("x-1", "y-1")]
    assert said(nodes, *few, queues=queues)[1] == "ann in queue few may have 1 run at a time, and has 1"


def test_behind_somebody_who_comes_first() -> None:
    wide, narrow = ask("wide-1", one(gpus=4)), ask("narrow-1", one(gpus=1))
    reason, message, helps = said([node("here", 4)], ask("x-1", one(gpus=2), limit=9000.0), wide, narrow)
    assert (reason, message) == ("behind", "there is room, but it is reserved for wide-1, which comes first")
    assert helps == "a timeout, which limits how long it runs: a run that ends in time may start first"
    own = wait_explanation.hold(narrow, ReservationObstacle(narrow.key))
    assert own.message == "there is room for it; it is about to start"


@pytest.mark.parametrize(
    ("evict", "words"),
    [
        (
            EvictDecision(JobKey("d", "a-1"), EvictionCause.PRIORITY, JobKey("d", "b-2")),
            "makes room for b-2, which is more urgent",
        ),
        (
            EvictDecision(JobKey("d", "a-1"), EvictionCause.RECLAIM, JobKey("d", "b-2")),
            "makes room for b-2, whose queue reclaims its share or quota",
        ),
        (
            EvictDecision(JobKey("d", "a-1"), EvictionCause.SHRINK, JobKey("d", "b-2"), (("worker", 2),)),
            "makes room for b-2, which can start when this one goes on with fewer tasks (2 worker)",
        ),
        (
            EvictDecision(JobKey("d", "a-1"), EvictionCause.GROW, None, (("worker", 4),)),
            "starts again with 4 worker: there is room now",
        ),
        (
            EvictDecision(JobKey("d", "a-1"), EvictionCause.MOVE, JobKey("d", "b-2")),
            "moves elsewhere, so that b-2 finds its GPUs together",
        ),
    ],
)
def test_why_a_run_makes_room(evict: EvictDecision, words: str) -> None:
    assert wait_explanation.eviction(evict) == words


def test_numbers_have_names_and_plurals() -> None:
    found = [
        wait_explanation.amount(what, count)
        for what, count in (("gpu", 1000), ("gpu", 2500), ("gpu:T4", 2000), ("cpu", 1000), ("cpu", 500))
    ]
    assert found == ["1 GPU", "2.5 GPUs", "2 T4 GPUs", "1 CPU", "0.5 CPUs"]
    assert [
        wait_explanation.amount(what, count) for what, count in (("memory", 512), ("runs", 1), ("tasks", 2), ("rdma/hca", 3))
    ] == [
        "512 MiB of memory",
        "1 run",
        "2 tasks",
        "3 rdma/hca",
    ]


def test_nobody_to_run_on() -> None:
    hold = wait_explanation.hold(ask("x-1", one()), CapacityShortfall("nodes", "worker"))
    assert (hold.message, hold.what_would_help) == ("there is no node to run on", "a node must come back or be added")


def test_a_limit_without_a_name_is_of_each_user() -> None:
    hold = wait_explanation.hold(ask("x-1", one()), LimitObstacle("gpu", "per_user", 1000, 0, 500, "each"))
    assert hold.message == "each user of queue each may use 0.5 GPUs at a time and uses 0 GPUs; this needs 1 GPU more"
