"""The metrics of a replica: families for Prometheus, and the JSON that the autoscaler reads."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from struct import Struct

import numpy as np

from fairway.serving.exposition.metric_family import MetricFamily
from fairway.state.serving.batching_verdict import BatchingVerdict

LATENCY_BOUNDS = tuple(0.0001 * 2**step for step in range(19))
"""Seconds, 0.1 ms to 26 s."""
BATCH_BOUNDS = tuple(float(2**step) for step in range(11))
PHASES = ("preprocess", "predict", "postprocess")
"""KServe's names for the phases of a request."""
_COLUMNS = 1 + len(PHASES)
_READINGS = 5
_MOST_SEEN = 4096 * _READINGS * 8
_PACK = Struct(f"{_READINGS}d").pack
_BOUNDS = np.array(LATENCY_BOUNDS)
_MICRO = 1e6


_MOST_SIZES = 1024


class PrometheusHistogram:
    """Counts by upper bound, as in Prometheus."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def put(self, family: MetricFamily, *labels: tuple[str, str]) -> None:
        """Append the samples to a family."""
        family.add_histogram([f"{bound:g}" for bound in self.bounds], self.counts, self.total, *labels)


class RequestTimes:
    """The duration of requests, in total and by phase: reading the body, waiting and running, writing the answer.

    On the hot path only clock readings are recorded. Many of them at once are later added to the histograms.
    """

    __slots__ = ("_histograms", "seen")

    def __init__(self) -> None:
        self.seen = bytearray()
        """Five readings of each request, packed."""
        self._histograms = tuple(PrometheusHistogram(LATENCY_BOUNDS) for _ in range(_COLUMNS))

    def add_whole(self, seconds: float) -> None:
        """Add the total duration of a request whose phases are not known."""
        self._histograms[0].add(seconds)

    def add_phases(self, read: float, ran: float, written: float) -> None:
        """Add the phases of a request whose total duration is added separately."""
        for histogram, seconds in zip(self._histograms[1:], (read, ran, written), strict=True):
            histogram.add(seconds)

    def histograms(self) -> tuple[PrometheusHistogram, ...]:
        """Return the histograms of the total and of the phases, in order."""
        self.fold()
        return self._histograms

    def fold(self) -> None:
        """Add the recorded readings to the histograms."""
        if not self.seen:
            return
        began, arrived, parsed, ran, ended = np.frombuffer(self.seen).reshape(-1, _READINGS).T
        self.seen = bytearray()
        for histogram, column in zip(self._histograms, (ended - began, parsed - arrived, ran - parsed, ended - ran), strict=True):
            counts = np.bincount(np.searchsorted(_BOUNDS, column), minlength=len(histogram.counts))
            histogram.counts = [count + int(added) for count, added in zip(histogram.counts, counts, strict=True)]
            histogram.total += float(column.sum())


class ModelRuns:
    """Runs of the model with one batch size."""

    __slots__ = ("count", "rows", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.rows = 0
        self.seconds = 0.0


class ReplicaMetrics:
    """Counters since the start; they only increase."""

    def __init__(self) -> None:
        self.runs: dict[int, ModelRuns] = {}
        """By batch size; beyond `_MOST_SIZES` different sizes, by the next lower power of two."""
        self.failed_seconds = 0.0
        """The part of the time of all requests that was spent on those answered with 4xx or 5xx."""
        self.queued = 0
        """Requests that entered a batch."""
        self.last_run = 0.0
        """When the model last ran, by `time.perf_counter`."""
        self.codes: dict[int, int] = {}
        self.batch_rows = PrometheusHistogram(BATCH_BOUNDS)
        self.times = RequestTimes()
        self.queue_seconds = 0.0
        self.busy_seconds = 0.0
        self.compute_seconds = 0.0
        """Time in which the model ran, counted once for each request of a batch."""
        self.in_flight = 0
        self.non_finite = 0
        """Answers with NaN or infinity in an output."""
        self.sampled = 0
        self.samples_dropped = 0
        self.gpus: Callable[[], list[MetricFamily]] = _no_gpus
        """Returns the metrics of this replica's GPUs; set if it has any."""

    def answered(self, code: int, seconds: float) -> None:
        """Record an answered inference request."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.times.add_whole(seconds)
        if code >= 400:
            self.failed_seconds += seconds

    def asked(self, code: int, began: float, phases: tuple[float, float], ran: float, ended: float) -> None:
        """Record an answered inference request with its phases, as readings of a clock.

        `phases`: when it had arrived completely, and when it was parsed.
        """
        self.codes[code] = self.codes.get(code, 0) + 1
        times = self.times
        # Packed, because float objects would cost more than everything else here.
        times.seen += _PACK(began, *phases, ran, ended)
        if len(times.seen) >= _MOST_SEEN:
            times.fold()
        if code >= 400:
            self.failed_seconds += ended - began

    def batch(self, rows: int, seconds: float, requests: int = 1) -> None:
        """Record one run of the model for this many requests."""
        self.batch_rows.add(rows)
        self.busy_seconds += seconds
        self.compute_seconds += requests * seconds
        runs = self.runs.get(rows)
        if runs is None:
            runs = self._runs(rows)
        runs.count += 1
        runs.rows += rows
        runs.seconds += seconds
        self.last_run = time.perf_counter()

    def since_last(self) -> float:
        """Return the seconds since the last run of the model."""
        return time.perf_counter() - self.last_run

    def _runs(self, rows: int) -> ModelRuns:
        if len(self.runs) >= _MOST_SIZES:
            rows = 1 << max(0, rows.bit_length() - 1)
        return self.runs.setdefault(rows, ModelRuns())

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
        """Answers with 4xx except 429."""
        return sum(count for code, count in self.codes.items() if 400 <= code < 500) - self.refused

    @property
    def served(self) -> int:
        """All other answers."""
        return sum(self.codes.values()) - self.failed - self.refused

    def load(self, queue: int, uptime: float, verdict: BatchingVerdict) -> dict[str, object]:
        """Return the load for the autoscaler, and the batching verdict."""
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
            "non_finite": self.non_finite,
            "uptime": uptime,
            "batching": {"batched": verdict.batched, "basis": verdict.basis, "detail": verdict.detail, "rows": verdict.rows},
        }

    def families(self, model: str, version: str, queue: int, verdict: BatchingVerdict) -> list[MetricFamily]:
        """Return all metric families for Prometheus.

        Besides our own names these have those of KServe and Triton, for existing dashboards.
        """
        labels = (("model", model), ("version", version))
        batching = MetricFamily("fairway_batching", "gauge", "1: rows of several requests run together; 0: they do not.")
        batching.add(int(verdict.batched), *labels, ("basis", str(verdict.basis)))
        requests = MetricFamily("fairway_requests_total", "counter", "Answers by status.")
        for code, count in sorted(self.codes.items()):
            requests.add(count, *labels, ("code", str(code)))
        seconds = MetricFamily("fairway_request_seconds", "histogram", "Time from a request to its answer.")
        self.times.histograms()[0].put(seconds, *labels)
        rows = MetricFamily("fairway_batch_rows", "histogram", "Rows of a batch.")
        self.batch_rows.put(rows, *labels)
        single: tuple[_Single, ...] = (
            ("fairway_queue_seconds_total", "counter", "Time that requests waited for the model.", self.queue_seconds),
            ("fairway_busy_seconds_total", "counter", "Time in which the model ran.", self.busy_seconds),
            ("fairway_non_finite_answers_total", "counter", "Answers with NaN or infinity in an output.", self.non_finite),
            ("fairway_samples_total", "counter", "Requests stored as samples.", self.sampled),
            ("fairway_samples_dropped_total", "counter", "Requests whose sample was not stored.", self.samples_dropped),
            ("fairway_queue_requests", "gauge", "Requests that wait for the model.", queue),
            ("fairway_in_flight_requests", "gauge", "Requests not answered yet.", self.in_flight),
        )
        fairway_families = [batching, requests, seconds, rows, *_singles(single, labels)]
        return [*fairway_families, *self._kserve(model), *self._triton(labels, queue), *self.gpus()]

    def _kserve(self, model: str) -> list[MetricFamily]:
        """Return the histograms of KServe's ModelServer. There are no explainers, so that histogram stays empty."""
        label = ("model_name", model)
        families = []
        for phase, histogram in zip(PHASES, self.times.histograms()[1:], strict=True):
            family = MetricFamily(f"request_{phase}_seconds", "histogram", f"{phase} request latency (KServe's name).")
            histogram.put(family, label)
            families.append(family)
        explain = MetricFamily("request_explain_seconds", "histogram", "explain request latency (KServe's name); always 0.")
        PrometheusHistogram(LATENCY_BOUNDS).put(explain, label)
        return [*families, explain]

    def _triton(self, own: tuple[tuple[str, str], ...], queue: int) -> list[MetricFamily]:
        """Return Triton's counters. Times are microseconds, summed over requests."""
        total, read, _, written = self.times.histograms()
        good = sum(count for code, count in self.codes.items() if code < 400)
        failure = MetricFamily("nv_inference_request_failure", "counter", "Failed requests (Triton's name).")
        for reason, count in (("REJECTED", self.refused), ("OTHER", self.client_errors), ("BACKEND", self.failed)):
            failure.add(count, *own, ("reason", reason))
        batches, rows = sum(self.batch_rows.counts), int(self.batch_rows.total)
        single: tuple[_Single, ...] = (
            ("nv_inference_request_success", "counter", "Successful requests (Triton's name).", good),
            ("nv_inference_count", "counter", "Rows that the model ran (Triton's name).", rows),
            ("nv_inference_exec_count", "counter", "Runs of the model; rows of a batch run once (Triton's name).", batches),
            ("nv_inference_request_duration_us", "counter", "Time of requests (Triton's name).", _us(total.total)),
            ("nv_inference_queue_duration_us", "counter", "Time of waiting (Triton's name).", _us(self.queue_seconds)),
            ("nv_inference_compute_input_duration_us", "counter", "Time of reading (Triton's name).", _us(read.total)),
            ("nv_inference_compute_infer_duration_us", "counter", "Time of running (Triton's name).", _us(self.compute_seconds)),
            ("nv_inference_compute_output_duration_us", "counter", "Time of writing (Triton's name).", _us(written.total)),
            ("nv_inference_pending_request_count", "gauge", "Requests that wait for the model (Triton's name).", queue),
        )
        return [failure, *_singles(single, own)]


_Single = tuple[str, str, str, float]


def _singles(single: Iterable[_Single], labels: tuple[tuple[str, str], ...]) -> list[MetricFamily]:
    """Return families with one sample each."""
    families = []
    for name, kind, description, value in single:
        family = MetricFamily(name, kind, description)
        family.add(value, *labels)
        families.append(family)
    return families


def _us(seconds: float) -> int:
    return round(_MICRO * seconds)


def _no_gpus() -> list[MetricFamily]:
    return []
