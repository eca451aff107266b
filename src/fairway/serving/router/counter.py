"""Counters of requests: per revision and per backend."""

from __future__ import annotations

from bisect import bisect_left

from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, OutputComparison, RevisionLoad

LARGEST_SUM = 1e40
"""Limit on sums of outcomes and of their squares: everything computed from them, variances included, stays finite."""


def is_bounded(outcome: tuple[int, float, float]) -> bool:
    """Return whether a count of outcomes, their sum and the sum of their squares can be compared with others."""
    count, total, squares = outcome
    # Any comparison with NaN is false.
    return 0 <= count < 2**53 and abs(total) <= LARGEST_SUM and 0 <= squares <= LARGEST_SUM


class RevisionCounters:
    """The counters of one revision."""

    __slots__ = (
        "answered", "arrived", "buckets", "client_errors", "codes", "failed", "latency_sum",
        "mirror_client_errors", "mirror_failed", "mirrored", "outcomes", "outputs", "rejected",
    )  # fmt: skip

    def __init__(self) -> None:
        self.arrived = self.answered = self.client_errors = self.failed = self.rejected = 0
        self.mirrored = self.mirror_client_errors = self.mirror_failed = 0
        self.latency_sum = 0.0
        self.codes: dict[int, int] = {}
        """Responses that were passed on, by status."""
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)
        self.outcomes: dict[str, tuple[int, float, float]] = {}
        self.outputs = OutputComparison()

    def took(self, seconds: float) -> None:
        """Record the duration of a successful response."""
        self.buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.latency_sum += seconds

    def ended(self, status: int, seconds: float) -> None:
        """Count a response that was passed on in full."""
        self.codes[status] = self.codes.get(status, 0) + 1
        if status == 429:
            self.rejected += 1
            return
        if status >= 500:
            self.failed += 1
            return
        self.answered += 1
        if status >= 400:
            self.client_errors += 1
        elif status < 300:
            self.took(seconds)

    def copy_ended(self, status: int, seconds: float) -> None:
        """Count the response to a copy of a request."""
        if status >= 500:
            self.mirror_failed += 1
        elif status >= 400:
            self.mirror_client_errors += status != 429
        elif status < 300:
            self.took(seconds)

    def came_to(self, name: str, value: float) -> bool:
        """Count a reported outcome; return False and count nothing if the sums would become too large."""
        count, total, squares = self.outcomes.get(name, (0, 0.0, 0.0))
        after = (count + 1, total + value, squares + value * value)
        if not is_bounded(after):
            return False
        self.outcomes[name] = after
        return True

    def load(self) -> RevisionLoad:
        """Return the counters as a value."""
        return RevisionLoad(
            arrived=self.arrived,
            answered=self.answered,
            client_errors=self.client_errors,
            failed=self.failed,
            rejected=self.rejected,
            latency=tuple(self.buckets) if any(self.buckets) else (),
            latency_sum=self.latency_sum,
            mirrored=self.mirrored,
            mirror_failed=self.mirror_failed,
            mirror_client_errors=self.mirror_client_errors,
            outcomes=dict(self.outcomes),
            outputs=self.outputs,
        )


class BackendCounters:
    """The counters of one backend."""

    __slots__ = ("_busy", "_since", "answered", "failed", "in_flight", "refused")

    def __init__(self) -> None:
        self.in_flight = self.answered = self.failed = self.refused = 0
        self._busy = 0.0
        self._since = 0.0

    def begin(self, now: float) -> None:
        """Count a request that begins."""
        if not self.in_flight:
            self._since = now
        self.in_flight += 1

    def end(self, now: float) -> None:
        """Count a request that ends."""
        self.in_flight -= 1
        if not self.in_flight:
            self._busy += now - self._since

    def load(self, now: float) -> BackendLoad:
        """Return the counters as a value."""
        busy = self._busy + (now - self._since if self.in_flight else 0.0)
        return BackendLoad(self.in_flight, self.answered, self.failed, self.refused, busy)
