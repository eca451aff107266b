"""Decisions per second of CPU time, and how that changes with the number of nodes; gangs per second.

Nodes and pods are those of the public openb traces; larger clusters are copies of its nodes, with proportionally more pods.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import replace

from bench import tell
from placement import FOLDER

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation import openb_trace
from fairway.simulation.placement.fill_experiment import run
from fairway.simulation.placement.placement_result import DecisionSpeed
from fairway.state.node import ClusterNode, NodeDevice

SIZES = (1_000, 1_213, 5_000, 10_000)
GANGS = {4: 3_000, 64: 500, 1_000: 50}
"""Tasks of a gang, and the required number of such gangs per second."""


def main() -> None:
    """Measure."""
    _decisions()
    _gangs()


def _fleet(count: int) -> list[ClusterNode]:
    nodes = openb_trace.read_nodes(FOLDER / "nodes.csv")
    step = len(nodes) / count if count < len(nodes) else 1.0
    chosen = [nodes[int(number * step) % len(nodes)] for number in range(count)]
    return [_renamed(node, f"node-{number:05}") for number, node in enumerate(chosen)]


def _renamed(node: ClusterNode, name: str) -> ClusterNode:
    devices = tuple(replace(device, uuid=f"{name}/{device.index}") for device in node.devices)
    return replace(node, name=name, devices=devices)


def _pace(count: int, workload: str) -> DecisionSpeed:
    pods = openb_trace.read_pods(FOLDER / f"pods-{workload}.csv.gz")
    order = openb_trace.read_order(FOLDER / "orders" / f"{workload}-42.json.gz").pods
    times = max(1, round(count / 1213))
    gc.collect()
    return run(_fleet(count), pods, openb_trace.ArrivalOrder(order * times), "fairway").pace


def _decisions() -> None:
    found: dict[int, float] = {}
    for count in SIZES:
        pace = _pace(count, "default")
        found[count] = pace.per_second
        if count in (1_213, 10_000):
            tell(
                f"decisions a second of CPU time on {count:,} nodes",
                pace.per_second,
                ">= 10000, p99 <= 500 us",
                met=pace.per_second >= 10_000 and pace.p99_us <= 500,
                p50_us=round(pace.p50_us, 1),
                p99_us=round(pace.p99_us, 1),
            )
    growth = found[1_000] / found[10_000]
    tell("time of a decision on 10,000 nodes / on 1,000", growth, "<= 1.5", met=growth <= 1.5, per_second=found)
    typed = _pace(1_213, "gpuspec10")
    tell("decisions a second of CPU time, typed mix", typed.per_second, ">= 4000", met=typed.per_second >= 4_000)


def _gangs() -> None:
    nodes = [
        ClusterNode(
            f"n{number:04}",
            96,
            768 << 30,
            tuple(NodeDevice(f"n{number:04}/{at}", at) for at in range(8)),
            rack=f"r{number // 100:02}",
        )
        for number in range(5_000)
    ]
    for racks in (False, True):
        fleet: Sequence[ClusterNode] = nodes if racks else [replace(node, rack="") for node in nodes]
        for size, must in GANGS.items():
            rate = _gangs_per_second(fleet, size)
            where = "5,000 nodes in 50 racks" if racks else "5,000 nodes"
            tell(f"gangs of {size} tasks a second of CPU time, {where}", rate, f">= {must}", met=rate >= must)


def _gangs_per_second(nodes: Sequence[ClusterNode], size: int) -> float:
    shape = TaskShape(cpu=8000, memory=32 << 10, gpus=1)
    cluster = ClusterModel(nodes, mix=WorkloadMix.of([shape]))
    gang = GangShape((GangRole("worker", shape, size, size),))
    count = max(10, min(4_000, 20_000 // size))
    cluster.try_place(gang)
    began = time.process_time()
    for _ in range(count):
        if cluster.try_place(gang) is None:
            raise RuntimeError("the cluster is full: measure fewer gangs")
    return count / (time.process_time() - began)


if __name__ == "__main__":
    main()
