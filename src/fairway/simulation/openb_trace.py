"""Published traces of nodes and pods (openb, Alibaba's cluster-trace-gpu-v2023), plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fairway.errors import DocumentMistake, SpecError, UsageError
from fairway.plan.scheduling.gang import WHOLE, TaskShape
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.state.node import ClusterNode, NodeDevice

TASKS_PER_NODE = 1001
"""Limit of tasks per node in the published experiment."""


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """The order in which pods arrive, and the ranks of nodes, which break ties."""

    pods: tuple[int, ...]
    """Indices in the list of pods."""
    ranks: tuple[int, ...] = ()
    """Rank of each node, in order of name; the smallest wins. Empty: ties are broken by name."""


def read_nodes(path: Path) -> list[ClusterNode]:
    """Read nodes, sorted by name (columns `sn`, `cpu_milli`, `memory_mib`, `gpu`, `model`)."""
    with _reading(path) as file:
        nodes = [_node(row) for row in csv.DictReader(file)]
    return sorted(nodes, key=lambda node: node.name)


def _node(row: dict[str, str]) -> ClusterNode:
    name, model = row["sn"], row.get("model", "")
    devices = tuple(NodeDevice(f"{name}/{index}", index, type=model) for index in range(int(row["gpu"] or 0)))
    return ClusterNode(name, int(row["cpu_milli"]) / 1000, int(row["memory_mib"]) << 20, devices, tasks=TASKS_PER_NODE)


def read_pods(path: Path) -> list[TaskShape]:
    """Read the pods' requests, sorted by name (columns `name`, `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli`, `gpu_spec`)."""
    with _reading(path) as file:
        pods = [(row["name"], _shape(row)) for row in csv.DictReader(file)]
    return [shape for _, shape in sorted(pods, key=lambda pod: pod[0])]


def _shape(row: dict[str, str]) -> TaskShape:
    gpus = int(row["num_gpu"] or 0)
    types = tuple(name for name in (row.get("gpu_spec") or "").split("|") if name)
    milli = int(row["gpu_milli"] or WHOLE) if gpus else WHOLE
    return TaskShape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, gpu_types=types if gpus else ())


def read_order(path: Path) -> ArrivalOrder:
    """Read the order of arrival (`pods`) and the ranks of nodes (`node_rank`), from JSON."""
    with _reading(path) as file:
        order = json.load(file)
    return ArrivalOrder(tuple(order["pods"]), tuple(order.get("node_rank", ())))


def read_mix(path: Path) -> WorkloadMix:
    """Read the mix of a list of pods."""
    return WorkloadMix.of(read_pods(path))


def check(nodes: Sequence[ClusterNode], pods: Sequence[TaskShape], order: ArrivalOrder) -> None:
    """Raise `UsageError` if nodes, pods and order do not belong together."""
    if order.pods and not 0 <= min(order.pods) <= max(order.pods) < len(pods):
        raise UsageError(
            f"the order names pod {max(order.pods)}, but there are only {len(pods)}: it belongs to another list of pods"
        )
    if order.ranks and len(order.ranks) != len(nodes):
        raise UsageError(
            f"the order ranks {len(order.ranks)} nodes, but there are {len(nodes)}: it belongs to another list of nodes"
        )


@contextmanager
def _reading(path: Path) -> Iterator[IO[str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        try:
            yield file
        except (KeyError, ValueError, TypeError) as problem:
            raise SpecError([DocumentMistake(f"cannot be read as this kind of trace: {problem}", file=str(path))]) from problem
