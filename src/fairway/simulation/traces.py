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

from fairway.errors import Mistake, SpecError, UsageError
from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.shape import WHOLE, Shape
from fairway.state.node import Device, Node

TASKS_PER_NODE = 1001
"""The limit of the published experiment."""


@dataclass(frozen=True, slots=True)
class Order:
    """In which order pods arrive, and which node wins a tie."""

    pods: tuple[int, ...]
    """Places in the list of pods."""
    ranks: tuple[int, ...] = ()
    """For each node, in order of name; the smallest wins. Empty means: by name."""


def read_nodes(path: Path) -> list[Node]:
    """Nodes by name (columns `sn`, `cpu_milli`, `memory_mib`, `gpu`, `model`)."""
    with _reading(path) as file:
        nodes = [_node(row) for row in csv.DictReader(file)]
    return sorted(nodes, key=lambda node: node.name)


def _node(row: dict[str, str]) -> Node:
    name, model = row["sn"], row.get("model", "")
    devices = tuple(Device(f"{name}/{index}", index, type=model) for index in range(int(row["gpu"] or 0)))
    return Node(name, int(row["cpu_milli"]) / 1000, int(row["memory_mib"]) << 20, devices, tasks=TASKS_PER_NODE)


def read_pods(path: Path) -> list[Shape]:
    """What the pods need, in order of name (columns `name`, `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli`, `gpu_spec`)."""
    with _reading(path) as file:
        pods = [(row["name"], _shape(row)) for row in csv.DictReader(file)]
    return [shape for _, shape in sorted(pods, key=lambda pod: pod[0])]


def _shape(row: dict[str, str]) -> Shape:
    gpus = int(row["num_gpu"] or 0)
    types = tuple(name for name in (row.get("gpu_spec") or "").split("|") if name)
    milli = int(row["gpu_milli"] or WHOLE) if gpus else WHOLE
    return Shape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, gpu_types=types if gpus else ())


def read_order(path: Path) -> Order:
    """The order of arrival (`pods`) and the ranks of nodes (`node_rank`), from JSON."""
    with _reading(path) as file:
        found = json.load(file)
    return Order(tuple(found["pods"]), tuple(found.get("node_rank", ())))


def read_mix(path: Path) -> Mix:
    """The mix of a list of pods."""
    return Mix.of(read_pods(path))


def check(nodes: Sequence[Node], pods: Sequence[Shape], order: Order) -> None:
    """Complain when they do not belong together."""
    if order.pods and not 0 <= min(order.pods) <= max(order.pods) < len(pods):
        raise UsageError(f"the order names pod {max(order.pods)}, and there are {len(pods)}: it belongs to another list of pods")
    if order.ranks and len(order.ranks) != len(nodes):
        raise UsageError(f"the order ranks {len(order.ranks)} nodes, and there are {len(nodes)}: it belongs to other nodes")


@contextmanager
def _reading(path: Path) -> Iterator[IO[str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        try:
            yield file
        except (KeyError, ValueError, TypeError) as problem:
            raise SpecError([Mistake(f"cannot be read as this kind of trace: {problem}", file=str(path))]) from problem
