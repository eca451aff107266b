"""Requests that can never run are refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.plan.admission import never_fits
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import Queue


def node(name: str, gpus: int, kind: str = "A100", **more: Any) -> ClusterNode:
    return ClusterNode(
        name, 16.0, 64 << 30, tuple(NodeDevice(f"{name}-{each}", each, kind, 80 << 30) for each in range(gpus)), **more
    )


def job(tasks: int = 1, placement: dict[str, Any] | None = None, **resources: Any) -> JobState:
    role = {"command": ["x"], "resources": resources, "replicas": {"min": tasks, "max": tasks}, "placement": placement or {}}
    return JobState(
        JobKey("default", "t-1"), "t", 1, JobSpec.model_validate({"roles": {"worker": role}}), SubmissionOrigin("ann")
    )


ONE = [node("here", 2)]
MANY = [node("a", 4), node("b", 4), node("c", 2, "T4")]
RACKS = [node("a", 4, rack="r1"), node("b", 4, rack="r2")]


@pytest.mark.parametrize(
    ("nodes", "asked", "why"),
    [
        (ONE, job(gpu="2"), ""),
        (ONE, job(gpu="4"), "needs 4 GPUs; there are 2"),
        ([node("here", 0)], job(gpu="1"), "needs 1 GPU; there is none"),
        (ONE, job(gpu="1", gpu_type=["H100"]), "needs 1 GPU of type H100; there is none of that type, only A100"),
        (
            MANY,
            job(gpu="1", gpu_type=["A10"]),
            "needs 1 GPU of type A10; there is none of that type, only A100 and T4 (did you mean A100?)",
        ),
        (ONE, job(cpu="64"), "needs 64 CPUs; there are 16"),
        (ONE, job(memory="100Gi"), "needs 100 GiB of memory; 64 GiB is all there is"),
        (ONE, job(gpu="1", gpu_memory="100Gi"), "needs 1 GPU with 100 GiB of memory; there is none"),
        (ONE, job(gpu="0.5", gpu_memory="100Gi"), "needs 50% of a GPU with 100 GiB of its memory; there is none"),
        (MANY, job(gpu="8"), "needs 8 GPUs on one node; there are 10, and no node has more than 4"),
        (
            MANY,
            job(3, gpu="4"),
            "needs 4 GPUs for each of 3 worker tasks, which start together (2 of 3 would find a place); "
            "there are 10, and no node has more than 4",
        ),
        (
            MANY,
            job(5, gpu="0.5", gpu_type=["T4"]),
            "needs 50% of a GPU of type T4 for each of 5 worker tasks, which start together (4 of 5 would find a place); "
            "there are 2",
        ),
        (
            MANY,
            job(2, {"together": True}, gpu="3"),
            "needs 6 GPUs on one node for 2 worker tasks, which stay together; there are 10, and no node has more than 4",
        ),
        (
            MANY,
            job(4, {"apart": True}, gpu="1"),
            "needs 4 nodes for 4 worker tasks, which must be on different nodes; only 3 fit",
        ),
        (MANY, job(1, {"nodes": ["zz"]}), "there is no node zz"),
        ([node("gpu-1", 1)], job(1, {"nodes": ["gpu1"]}), "there is no node gpu1 (did you mean gpu-1?)"),
        (MANY, job(1, {"labels": {"disk": "ssd"}}), "worker needs a node labelled disk=ssd, and there is none"),
        (MANY, job(1, {"devices": ["9"]}, gpu="1"), "worker needs a node with GPU 9, and there is none"),
        (
            [node("a", 1, taints=("spot",))],
            job(),
            "worker needs a node without taints that it does not tolerate, and there is none",
        ),
        (RACKS, job(3, {"same_rack": True}, gpu="2"), "no rack has room for all 3 tasks, which must be in one rack"),
        (MANY, job(other={"rdma/hca": 1}), "needs 1 rdma/hca; there is none"),
        ([], job(), "there is no node to run on"),
    ],
)
def test_why_it_can_never_run(nodes: list[ClusterNode], asked: JobState, why: str) -> None:
    assert never_fits(asked, nodes) == why


@pytest.mark.parametrize(
    ("queue", "asked", "why"),
    [
        (Queue("q", quota={"gpu": 1000}, borrow=False), job(gpu="2"), "queue q may use 1 GPU at a time; this needs 2"),
        (Queue("q", quota={"gpu": 1000}), job(gpu="2"), ""),
        (
            Queue("q", quota={"gpu:T4": 1000}, borrow=False),
            job(gpu="2", gpu_type=["T4"]),
            "queue q may use 1 T4 GPU at a time; this needs 2",
        ),
        (Queue("q", per_user={"cpu": 4000}), job(cpu="8"), "each user of queue q may use 4 CPUs at a time; this needs 8"),
        (Queue("q", per_user={"runs": 0}), job(cpu="1"), "each user of queue q may have 0 runs at a time; this needs 1"),
    ],
)
def test_what_its_queue_will_never_allow(queue: Queue, asked: JobState, why: str) -> None:
    assert never_fits(asked, MANY, queue) == why
