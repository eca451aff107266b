"""Many connections: throughput, latency, refusals and fairness with 64, 256 and 512, at a replica and through the router.

`python benchmarks/connections.py [ROUNDS] [SECONDS]`. The model is the perceptron of 1.9 million parameters, in JSON and binary.
The replica and the router have one core, the client the other (one core in all: both there). Rounds of 64 and 256 connections
follow each other, and each ratio is the median of the ratios of neighbouring rounds, so that other work on the machine affects
both alike. Each ratio is printed with its quartiles, and with the CPU time per request of replica and router, which other work
disturbs least.

- closed loop: each connection sends its next request when it has the answer to the last one.
- open loop: requests are due at random moments, at 70 % of the closed loop's rate with 64 connections; latency counts from when a
  request was due. The capacity is measured again in each round.
- 512 connections: one client process per core; no 429, and Jain's index of the answers of each connection.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import serving
import serving_load
import serving_models
from bench import tell
from serving_load import Found

from fairway.app.system.clock import SystemClock
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

FEW, MANY, MOST = 64, 256, 512
OPEN = 0.7
"""Fraction of the capacity at which requests are due in the open loop."""
SERVICE = "default/bench"


@dataclass(frozen=True)
class Place:
    """A server under test."""

    name: str
    port: int
    pids: tuple[int, ...]
    """Processes of the server."""


@dataclass(frozen=True)
class Cores:
    """Cores of the servers and of the clients."""

    server: list[int]
    client: list[int]
    all: list[int]


def cores_here() -> Cores:
    """Return one core for the servers and the others for the clients."""
    found = sorted(os.sched_getaffinity(0))
    return Cores(found[:1], found[1:] or found, found)


class Measured:
    """Measurements of one server with one form of request."""

    def __init__(self, place: Place, wire: bytes, seconds: float, cores: Cores) -> None:
        self.place = place
        self.wire = wire
        self.seconds = seconds
        self.cores = cores
        self.cpu: dict[int, list[float]] = {FEW: [], MANY: []}
        self.closed: dict[int, list[Found]] = {FEW: [], MANY: []}
        self.open: dict[int, list[Found]] = {FEW: [], MANY: []}

    def round(self) -> None:
        """Measure both numbers of connections, closed and open loop, one after the other."""
        for connections in (FEW, MANY):
            before = sum(serving.cpu_seconds(pid) for pid in self.place.pids)
            found = self._ask(connections, 0.0)
            used = sum(serving.cpu_seconds(pid) for pid in self.place.pids) - before
            # Requests of the warm-up are answered too, at about the same rate.
            answers = sum(found.statuses.values()) * (1 + serving_load.WARM_UP / self.seconds)
            self.cpu[connections].append(1e6 * used / answers)
            self.closed[connections].append(found)
        rate = OPEN * self.closed[FEW][-1].rate
        for connections in (FEW, MANY):
            self.open[connections].append(self._ask(connections, rate))

    def _ask(self, connections: int, rate: float) -> Found:
        return serving_load.run(self.place.port, connections, self.seconds, self.wire, rate=rate, cores=self.cores.client)

    def tell(self, form: str) -> None:
        """Print the rows."""
        where = f"{self.place.name}, MLP, {form}"
        few, many = self.closed[FEW], self.closed[MANY]
        cpu = {f"cpu_us_at_{connections}": round(statistics.median(found), 1) for connections, found in self.cpu.items()}
        _tell(
            f"{where}: throughput with {MANY} connections / with {FEW}",
            [b.rate / a.rate for a, b in zip(few, many, strict=True)],
            0.95, least=True, rate_at_64=_median(a.rate for a in few), rate_at_256=_median(b.rate for b in many), **cpu,
        )  # fmt: skip
        refused = sum(found.statuses.get("429", 0) for found in many)
        others = sum(sum(found.statuses.values()) - len(found.took) for found in many) - refused
        _tell(
            f"{where}: p99 with {MANY} connections / their mean",
            [found.percentile(99) / found.mean for found in many],
            2.0, p99_ms=_median(found.percentile(99) for found in many), mean_ms=_median(found.mean for found in many),
            refused=refused, others=others, ok=not refused and not others,
        )  # fmt: skip
        few, many = self.open[FEW], self.open[MANY]
        _tell(
            f"{where}: open loop at 70 % of capacity, p99 with {MANY} connections / with {FEW}",
            [b.percentile(99) / a.percentile(99) for a, b in zip(few, many, strict=True)],
            2.0, p99_at_64_ms=_median(a.percentile(99) for a in few), p99_at_256_ms=_median(b.percentile(99) for b in many),
            unsent=sum(found.unsent for found in many),
        )  # fmt: skip


def _median(values: Iterator[float]) -> float:
    return round(statistics.median(list(values)), 2)


def _tell(what: str, ratios: Sequence[float], must: float, *, least: bool = False, ok: bool = True, **more: object) -> None:
    middle = statistics.median(ratios)
    met = ok and (middle >= must if least else middle <= must)
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [middle] * 3
    spread = [round(quartiles[0], 3), round(quartiles[2], 3)]
    tell(what, middle, f"{'>=' if least else '<='} {must}", met=met, quartiles=spread, rounds=len(ratios), **more)


def fairness(place: Place, wire: bytes, seconds: float, rounds: int, cores: Cores) -> None:
    """Measure refusals and fairness with 512 connections."""
    found = [serving_load.run(place.port, MOST, seconds, wire, processes=len(cores.all), cores=cores.all) for _ in range(rounds)]
    refused = sum(each.statuses.get("429", 0) for each in found)
    others = sum(sum(each.statuses.values()) - len(each.took) for each in found) - refused
    worst = min(each.jain for each in found)
    tell(
        f"{place.name}: {MOST} connections, Jain's index of the answers of each connection, worst round",
        worst, ">= 0.95", met=worst >= 0.95 and not refused and not others, refused=refused, others=others,
        least_answers=min(min(each.each) for each in found), most_answers=max(max(each.each) for each in found),
        client_cpu=_median(each.cpu / each.seconds for each in found), rate=_median(each.rate for each in found), rounds=rounds,
    )  # fmt: skip


@contextmanager
def replica(folder: Path, cores: Cores) -> Iterator[Place]:
    """Run a replica on its core."""
    port = serving.free_port()
    pin = ["taskset", "-c", ",".join(map(str, cores.server))]
    # In its own session: the kernel shares processors by session when other programs compete for them.
    with serving.running([*pin, "setsid", *serving.replica_command(folder, port)], port) as (pid, _):
        yield Place("replica", port, (pid,))


async def measure(folder: Path, rounds: int, seconds: float) -> None:
    """Measure the replica, then the router."""
    cores = cores_here()
    with replica(folder, cores) as direct:
        plan = RoutePlan(SERVICE, (RouteBackend("a", 1, f"127.0.0.1:{direct.port}"),), ((1, WHOLE),))
        router = LocalRouter(folder / "routers", folder / "run", SystemClock())
        port = await router.put(plan)
        try:
            pid = int(next((folder / "run").glob("*/*.sock")).stem)
            subprocess.run(["taskset", "-apc", ",".join(map(str, cores.server)), str(pid)], check=True, capture_output=True)
            await asyncio.to_thread(_measure_all, (direct, Place("router", port, (*direct.pids, pid))), rounds, seconds, cores)
        finally:
            await router.drop(SERVICE)


def _measure_all(places: Sequence[Place], rounds: int, seconds: float, cores: Cores) -> None:
    for form in ("JSON", "binary"):
        wire = serving.request("mlp", binary=form == "binary")
        for place in places:
            measured = Measured(place, wire, seconds, cores)
            serving_load.run(place.port, FEW, 0.5, wire, cores=cores.client)
            for _ in range(rounds):
                measured.round()
            measured.tell(form)
    for place in places:
        fairness(place, serving.request("mlp", binary=True), 2 * seconds, max(1, rounds // 2), cores)


def main() -> None:
    """Print all rows."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    with tempfile.TemporaryDirectory(prefix="fw-bench-") as place:
        asyncio.run(measure(serving_models.write("mlp", Path(place)), rounds, seconds))


if __name__ == "__main__":
    main()
