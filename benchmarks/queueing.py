"""The queue on recorded work: completion times against an oracle that knows every duration, and the accuracy of start forecasts.

Durations of the Philly traces are reconstructed from throughputs. Our policy does not know them. Every interruption
costs 120 seconds, during which the job holds its GPUs; it is charged when the job starts again. The oracle is work-conserving
and takes the shortest remaining time first, at every event and every ten minutes, under the same cost.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

from bench import tell

from fairway.simulation import philly_trace
from fairway.simulation.queue.forecast_assessment import assess
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import replay
from fairway.simulation.queue.recorded_job import RecordedJob

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "traces" / "philly"
CLUSTERS = {"ee9e8c": EqualNodes(14, 8), "b436b2": EqualNodes(12, 8)}
SEEDS = (1, 2, 3)
EVERY = {"ee9e8c": 12, "b436b2": 6}
"""One in this many waits is forecast, when it begins."""


def resampled(entries: list[RecordedJob], seed: int) -> list[RecordedJob]:
    """Return the same arrival times with other jobs, drawn from the trace with replacement."""
    chance = random.Random(seed)
    drawn = [chance.choice(entries) for _ in entries]
    return [replace(entry, gpus=other.gpus, duration=other.duration) for entry, other in zip(entries, drawn, strict=True)]


def at_load(entries: list[RecordedJob], nodes: EqualNodes, load: float) -> list[RecordedJob]:
    """Return the jobs with faster or slower arrivals, so that they request this fraction of the GPUs."""
    work = sum(entry.gpus * entry.duration for entry in entries)
    span = entries[-1].submitted - entries[0].submitted
    by = work / (load * nodes.total * span)
    return [replace(entry, submitted=entry.submitted * by) for entry in entries]


def compare(name: str, entries: list[RecordedJob], nodes: EqualNodes) -> None:
    """Print the ratio of our policy to the oracle and to first in, first out."""
    ours, oracle, fifo = (replay(entries, nodes, policy) for policy in ("fairway", "srtf-oracle", "fifo"))
    ratio = ours.average_jct_h / oracle.average_jct_h
    tail = ours.p99_jct_h / fifo.p99_jct_h
    each = ours.preemptions_per_job
    hours = {one.policy: round(one.average_jct_h, 2) for one in (ours, oracle, fifo)}
    tell(f"{name}: average completion time / oracle", ratio, "<= 1.2, aim 1.1", met=ratio <= 1.2, average_jct_h=hours)
    tell(f"{name}: interruptions a job", each, "<= 8", met=each <= 8, moves=ours.moves)
    tell(f"{name}: p99 completion time / first in, first out", tail, "<= 1.1", met=tail <= 1.1)


def vary(what: str, entries: list[RecordedJob], nodes: EqualNodes) -> None:
    """Print the same for a resampled queue, to check how general the result is."""
    ours, oracle, fifo = (replay(entries, nodes, policy) for policy in ("fairway", "srtf-oracle", "fifo"))
    ratio = ours.average_jct_h / oracle.average_jct_h
    tail = round(ours.p99_jct_h / fifo.p99_jct_h, 3)
    each = round(ours.preemptions_per_job, 2)
    must = "for information: 1.2 and 1.1"
    met = ratio <= 1.2 and tail <= 1.1
    tell(f"{what}: average completion time / oracle", ratio, must, met=met, p99_to_fifo=tail, interruptions=each)


def foretell(name: str, entries: list[RecordedJob], nodes: EqualNodes) -> None:
    """Print the accuracy of the start forecasts of `why`, queried from the production scheduler while it replays the trace.

    The naive forecast is the mean of all waits that had ended by then. The range is widened by the outcome of earlier forecasts.
    """
    found = assess(entries, nodes, "fairway", every=EVERY[name])
    more = {
        "forecasts": found.forecasts,
        "without_a_range": found.unsaid,
        "median_error_h": round(found.median_error_h, 2),
        "p90_error_h": round(found.p90_error_h, 2),
        "naive_median_error_h": round(found.naive_median_error_h, 2),
        "naive_p90_error_h": round(found.naive_p90_error_h, 2),
        "median_width_h": round(found.median_width_h, 2),
    }
    tell(f"{name}: stated starts that held", found.covered, ">= 0.8", met=found.covered >= 0.8, **more)


def main() -> int:
    """Run all rows."""
    if not FOLDER.is_dir():
        print(f"the recorded queues are not at {FOLDER}", file=sys.stderr)
        return 1
    for name, nodes in CLUSTERS.items():
        entries = philly_trace.read(FOLDER / f"{name}.csv")
        compare(name, entries, nodes)
        foretell(name, entries, nodes)
        for seed in SEEDS:
            vary(f"{name}, jobs resampled ({seed})", at_load(resampled(entries, seed), nodes, 0.85), nodes)
        for load in (0.7, 1.0):
            vary(f"{name} at load {load}", at_load(entries, nodes, load), nodes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
