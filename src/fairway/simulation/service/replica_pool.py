"""The ready replicas of one revision as a single queue: a request waits only while the capacity is used up."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.state.serving.load import LATENCY_BOUNDS, OutputComparison, RevisionLoad

BARS = len(LATENCY_BOUNDS) + 1
_BOUNDS = np.array(LATENCY_BOUNDS)
METRIC = "accuracy"


@dataclass(slots=True)
class ReplicaPool:
    """Counters of one revision, as in a router, and its queue."""

    version: VersionBehaviour
    queue: float = 0.0
    arrived: int = 0
    answered: int = 0
    failed: int = 0
    client_errors: int = 0
    bars: np.ndarray = field(default_factory=lambda: np.zeros(BARS, dtype=np.int64))
    latency_sum: float = 0.0
    right: int = 0
    reported: int = 0
    mirrored: int = 0
    mirror_failed: int = 0
    mirror_client_errors: int = 0
    outputs: OutputComparison = OutputComparison()
    non_finite: int = 0
    """Answers with NaN or infinity in the last tick."""
    busy: float = 0.0
    """Busy seconds of each replica in the last tick."""
    partial: float = 0.0
    """Completed part of a request in progress."""

    def serve(
        self, coming: int, replicas: int, span: float, chance: np.random.Generator, slowness: np.ndarray | None = None
    ) -> tuple[int, np.ndarray]:
        """Accept the new requests and answer as many as possible; return how many, and how long each took.

        `slowness`: the recorded durations of single answers relative to the mean; None: drawn from the version's spread.
        """
        self.arrived += coming
        version = self.version
        capacity = replicas * version.rate * span
        waiting = self.queue
        self.queue += coming
        able = min(self.queue, capacity + self.partial)
        served = int(able + 1e-9)
        self.partial = min(able, self.queue) - served if self.queue > capacity else 0.0
        self.queue -= served
        self.busy = min(1.0, served / capacity) * span if capacity else 0.0
        if not served:
            return 0, np.zeros(0)
        wait = (waiting + self.queue) / 2.0 / (replicas * version.rate) if replicas else 0.0
        if slowness is None:
            slowness = chance.lognormal(-(version.spread**2) / 2.0, version.spread, served)
        else:
            slowness = chance.choice(slowness, served)
        return served, wait + slowness / version.rate

    def answer(self, served: int, took: np.ndarray, chance: np.random.Generator, *, copies: bool, bad: float = 0.0) -> None:
        """Count the answers. `bad`: part of the requests that any version rejects."""
        failed = int(chance.binomial(served, self.version.errors)) if self.version.errors else 0
        refuses = 1.0 - (1.0 - self.version.refused) * (1.0 - bad)
        refused = int(chance.binomial(served - failed, refuses)) if refuses else 0
        good = served - failed - refused
        self.non_finite = int(chance.binomial(good, self.version.non_finite)) if self.version.non_finite else 0
        # A router counts the time of successful answers; it does not matter here which ones were rejected.
        took = took[refused:]
        self.bars += np.bincount(np.searchsorted(_BOUNDS, took), minlength=BARS)
        self.latency_sum += float(took.sum())
        if copies:
            self.mirrored += served
            self.mirror_failed += failed
            self.mirror_client_errors += refused
            self._compare(good, chance)
            return
        self.failed += failed
        self.client_errors += refused
        self.answered += served - failed
        self.right += int(chance.binomial(served - failed, self.version.good))
        self.reported += served - failed

    def _compare(self, good: int, chance: np.random.Generator) -> None:
        """Count the comparison of answers to copies with those that clients got."""
        version = self.version
        relaid, reclassified = (int(chance.binomial(good, part)) for part in (version.relaid, version.reclassified))
        differing = max(relaid, reclassified, int(chance.binomial(good, version.differs)))
        restored = int(chance.binomial(good, version.restored))
        lost = self.non_finite
        compared = OutputComparison(good, differing, relaid, good, reclassified, lost, restored, largest=min(1.0, differing))
        self.outputs = self.outputs.plus(compared)

    def load(self) -> RevisionLoad:
        """Return the counters as a router reports them."""
        return RevisionLoad(
            arrived=self.arrived,
            answered=self.answered,
            client_errors=self.client_errors,
            failed=self.failed,
            latency=tuple(self.bars.tolist()),
            latency_sum=self.latency_sum,
            mirrored=self.mirrored,
            mirror_failed=self.mirror_failed,
            mirror_client_errors=self.mirror_client_errors,
            outputs=self.outputs,
            outcomes={METRIC: (self.reported, float(self.right), float(self.right))},
        )
