"""What a replica counts, and how it says so: Prometheus text, and the JSON that the autoscaler reads."""

from __future__ import annotations

import time
from bisect import bisect_left
from itertools import accumulate

from fairway.state.batching import BatchingVerdict

LATENCY_BOUNDS = tuple(0.0001 * 2**step for step in range(19))
"""Seconds, 0.1 ms to 26 s."""
BATCH_BOUNDS = tuple(float(2**step) for step in range(11))


_MOST_SIZES = 1024


class Histogram:
    """Counts by upper bounds, as Prometheus has them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> list[str]:
        """In Prometheus' text."""
        sums = list(accumulate(self.counts))
        bounds = [f"{bound:g}" for bound in self.bounds]
        found = [f'{name}_bucket{{{labels},le="{bound}"}} {count}' for bound, count in zip([*bounds, "+Inf"], sums, strict=True)]
        return [*found, f"{name}_sum{{{labels}}} {self.total:.9g}", f"{name}_count{{{labels}}} {sums[-1]}"]


class Runs:
    """Runs of the model with one number of rows."""

    __slots__ = ("count", "rows", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.rows = 0
        self.seconds = 0.0


class Metrics:
    """Counters since the start; they only grow."""

    def __init__(self) -> None:
        self.runs: dict[int, Runs] = {}
        """By rows of a run; beyond `_MOST_SIZES` different ones by the next power of two below."""
        self.failed_seconds = 0.0
        """Of the time of all requests, the part of those that got 4xx or 5xx."""
        self.queued = 0
        """Requests that went into a batch."""
        self.last_run = 0.0
        """When the model ran last, by `time.perf_counter`."""
        self.codes: dict[int, int] = {}
        self.latency = Histogram(LATENCY_BOUNDS)
        self.batch_rows = Histogram(BATCH_BOUNDS)
        self.queue_seconds = 0.0
        self.busy_seconds = 0.0
        self.in_flight = 0
        self.sampled = 0
        self.samples_dropped = 0

    def answered(self, code: int, seconds: float) -> None:
        """One question to the model was answered."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.latency.add(seconds)
        if code >= 400:
            self.failed_seconds += seconds

    def batch(self, rows: int, seconds: float) -> None:
        """The model ran once."""
        self.batch_rows.add(rows)
        self.busy_seconds += seconds
        runs = self.runs.get(rows)
        if runs is None:
            runs = self._runs(rows)
        runs.count += 1
        runs.rows += rows
        runs.seconds += seconds
        self.last_run = time.perf_counter()

    def since_last(self) -> float:
        """Seconds since the model ran."""
        return time.perf_counter() - self.last_run

    def _runs(self, rows: int) -> Runs:
        if len(self.runs) >= _MOST_SIZES:
            rows = 1 << max(0, rows.bit_length() - 1)
        return self.runs.setdefault(rows, Runs())

    @property
    def failed(self) -> int:
        """Answers with 5xx."""
        return sum(count for code, count in self.codes.items() if code >= 500)

    @property
    def refused(self) -> int:
        """Answers with 429."""
        return self.codes.get(429, 0)

    @property
    def client_errors(self) -> int:
        """Answers with 4xx but 429."""
        return sum(count for code, count in self.codes.items() if 400 <= code < 500) - self.refused

    @property
    def served(self) -> int:
        """All other answers."""
        return sum(self.codes.values()) - self.failed - self.refused

    def load(self, queue: int, uptime: float, verdict: BatchingVerdict) -> dict[str, object]:
        """What the autoscaler reads, and whether requests are batched."""
        return {
            "served": self.served,
            "failed": self.failed,
            "refused": self.refused,
            "client_errors": self.client_errors,
            "busy_seconds": self.busy_seconds,
            "queue_seconds": self.queue_seconds,
            "queue": queue,
            "in_flight": self.in_flight,
            "batches": sum(self.batch_rows.counts),
            "batch_rows": int(self.batch_rows.total),
            "uptime": uptime,
            "batching": {"batched": verdict.batched, "basis": verdict.basis, "detail": verdict.detail, "rows": verdict.rows},
        }

    def text(self, model: str, version: str, queue: int, verdict: BatchingVerdict) -> str:
        """Everything in Prometheus' text."""
        labels = f'model="{model}",version="{version}"'
        single = (
            ("fairway_queue_seconds_total", "counter", "Time that requests waited for the model.", f"{self.queue_seconds:.9g}"),
            ("fairway_busy_seconds_total", "counter", "Time in which the model ran.", f"{self.busy_seconds:.9g}"),
            ("fairway_samples_total", "counter", "Requests kept for later.", str(self.sampled)),
            ("fairway_samples_dropped_total", "counter", "Requests that should have been kept.", str(self.samples_dropped)),
            ("fairway_queue_requests", "gauge", "Requests that wait for the model.", str(queue)),
            ("fairway_in_flight_requests", "gauge", "Requests not answered yet.", str(self.in_flight)),
        )
        lines = _head("fairway_batching", "gauge", "1: rows of several requests run together; 0: they do not.")
        lines.append(f'fairway_batching{{{labels},basis="{verdict.basis}"}} {int(verdict.batched)}')
        lines += _head("fairway_requests_total", "counter", "Answers by status.")
        lines += [f'fairway_requests_total{{{labels},code="{code}"}} {count}' for code, count in sorted(self.codes.items())]
        lines += _head("fairway_request_seconds", "histogram", "Time from a request to its answer.")
        lines += self.latency.lines("fairway_request_seconds", labels)
        lines += _head("fairway_batch_rows", "histogram", "Rows of a batch.")
        lines += self.batch_rows.lines("fairway_batch_rows", labels)
        for name, kind, words, value in single:
            lines += [*_head(name, kind, words), f"{name}{{{labels}}} {value}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
