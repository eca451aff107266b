"""The published experiment, repeated: published policies to the last digit, and ours ahead of the best of them."""

from __future__ import annotations

import csv
import os
from functools import cache
from pathlib import Path

import pytest

from fairway.plan.scheduling.gang import TaskShape
from fairway.simulation import openb_trace
from fairway.simulation.placement.fill_experiment import run
from fairway.state.node import ClusterNode

FOLDER = Path(__file__).parents[5] / "shared" / "traces" / "openb"
NAMES = {
    "best-fit": "05-BestFit",
    "dot-product": "02-DotProd",
    "fgd": "06-FGD",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
}
WORKLOADS = ["default", "cpu100", "gpushare40", "gpuspec10", "multigpu20"]

pytestmark = pytest.mark.skipif(
    not FOLDER.exists() and os.environ.get("CI") != "true", reason="the public traces are not beside this tree"
)


@cache
def nodes() -> list[ClusterNode]:
    return openb_trace.read_nodes(FOLDER / "nodes.csv")


@cache
def pods(workload: str) -> list[TaskShape]:
    return openb_trace.read_pods(FOLDER / f"pods-{workload}.csv.gz")


@cache
def published(workload: str, policy: str) -> dict[int, float]:
    with (FOLDER / "published.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["workload"], row["policy"], row["seed"]) == (workload, policy, "42")]
    return {point: float(rows[0][f"alloc_at_{point}"]) for point in (95, 100, 110, 120, 130)}


def curve(workload: str, policy: str, mix: str = "given") -> dict[int, float]:
    order = openb_trace.read_order(FOLDER / "orders" / f"{workload}-42.json.gz")
    return run(nodes(), pods(workload), order, policy, mix).curve


@pytest.mark.parametrize(
    ("workload", "policy"), [*(("default", policy) for policy in NAMES), ("gpuspec10", "fgd"), ("gpuspec10", "gpu-packing")]
)
def test_published_policies_are_exact(workload: str, policy: str) -> None:
    found = curve(workload, policy)
    expected = published(workload, NAMES[policy])
    assert {at: round(found[at], 2) for at in expected} == pytest.approx(expected, abs=0.0101)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_ours_is_ahead_of_the_best_published(workload: str) -> None:
    found, theirs = curve(workload, "fairway"), published(workload, NAMES["fgd"])
    assert found[100] > theirs[100] + 0.4
    assert found[130] > theirs[130] + 0.4


def test_ours_learns_the_mix_as_it_goes() -> None:
    found = curve("default", "fairway", "learned")
    assert found[100] >= 95.9
    assert found[130] >= 96.0
