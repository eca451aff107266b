"""Placement on the public openb traces: published policies reproduced to the last digit, ours against them, and churn.

Arguments: any of `fidelity`, `filling`, `churn`; all of them by default. The traces are in ../shared/traces, or in the folder
FAIRWAY_TRACES.
"""

from __future__ import annotations

import csv
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import tell

from fairway.simulation import openb_trace
from fairway.simulation.placement.churn_experiment import churn
from fairway.simulation.placement.fill_experiment import run

FOLDER = Path(os.environ.get("FAIRWAY_TRACES", Path(__file__).parents[2] / "shared" / "traces")) / "openb"
PUBLISHED = {
    "best-fit": "05-BestFit",
    "dot-product": "02-DotProd",
    "fgd": "06-FGD",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
}
POINTS = (95, 100, 110, 120, 130)
LOADS = {1.0: 0.0, 1.1: 0.25, 1.3: 0.25}
"""Offered load, and the required lead over FGD."""
SEEDS = (1, 2, 3)


def main() -> None:
    """Measure."""
    parts = {"fidelity": _fidelity, "filling": _filling, "churn": _churn}
    for name in sys.argv[1:] or parts:
        parts[name]()


def _published() -> dict[tuple[str, str, int], dict[int, float]]:
    with (FOLDER / "published.csv").open() as file:
        return {
            (row["workload"], row["policy"], int(row["seed"])): {point: float(row[f"alloc_at_{point}"]) for point in POINTS}
            for row in csv.DictReader(file)
        }


def _orders() -> Iterator[tuple[str, int]]:
    for path in sorted((FOLDER / "orders").glob("*.json.gz")):
        workload, _, seed = path.name.removesuffix(".json.gz").rpartition("-")
        yield workload, int(seed)


def _run(workload: str, seed: int, policy: str, mix: str = "given") -> dict[int, float]:
    nodes = openb_trace.read_nodes(FOLDER / "nodes.csv")
    pods = openb_trace.read_pods(FOLDER / f"pods-{workload}.csv.gz")
    return run(nodes, pods, openb_trace.read_order(FOLDER / "orders" / f"{workload}-{seed}.json.gz"), policy, mix).curve


def _fidelity() -> None:
    published = _published()
    for policy, theirs in PUBLISHED.items():
        worst, runs = 0.0, 0
        for workload, seed in _orders():
            curve = _run(workload, seed, policy)
            worst = max(worst, *(abs(curve[at] - value) for at, value in published[workload, theirs, seed].items()))
            runs += 1
        tell(f"{policy}: points off the published curve at most, {runs} runs", worst, "<= 0.01", met=round(worst, 2) <= 0.01)


def _filling() -> None:
    published = _published()
    for mix, least in (("given", (96.1, 96.2)), ("learned", (95.9, 96.0))):
        ours: dict[str, list[dict[int, float]]] = {}
        behind = []
        for workload, seed in _orders():
            curve = _run(workload, seed, "fairway", mix)
            ours.setdefault(workload, []).append(curve)
            theirs = published[workload, PUBLISHED["fgd"], seed]
            behind += [f"{workload}-{seed}@{at}" for at in (100, 130) if curve[at] <= theirs[at]]
        for workload, curves in ours.items():
            theirs = [published[workload, PUBLISHED["fgd"], seed] for name, seed in _orders() if name == workload]
            for at, must in zip((100, 130), least, strict=True):
                mean = statistics.mean(curve[at] for curve in curves)
                fgd = statistics.mean(curve[at] for curve in theirs)
                bar = max(must, fgd) if workload == "default" else fgd
                tell(
                    f"fairway, mix {mix}, {workload}: percent allocated at {at} % arrived",
                    mean,
                    f">= {bar:.2f}",
                    met=mean >= bar,
                    fgd=round(fgd, 2),
                )
        tell(f"fairway, mix {mix}: runs not ahead of FGD", len(behind), "== 0", met=not behind, runs=behind)


def _churn() -> None:
    nodes = openb_trace.read_nodes(FOLDER / "nodes.csv")
    pods = openb_trace.read_pods(FOLDER / "pods-default.csv.gz")
    for load, ahead in LOADS.items():
        found = {policy: [churn(nodes, pods, load, policy, seed=seed) for seed in SEEDS] for policy in ("fairway", "fgd")}
        mean = {policy: statistics.mean(each.allocation for each in runs) for policy, runs in found.items()}
        rejected = {policy: round(statistics.mean(each.rejected_gpus for each in runs), 2) for policy, runs in found.items()}
        lead = mean["fairway"] - mean["fgd"]
        tell(
            f"churn at load {load}: points of allocation ahead of FGD",
            lead,
            f">= {ahead}",
            met=lead >= ahead,
            allocation={policy: round(value, 2) for policy, value in mean.items()},
            rejected_gpus=rejected,
        )


if __name__ == "__main__":
    main()
