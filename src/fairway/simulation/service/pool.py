"""The ready replicas of one revision as one queue: requests wait for each other, never for a moment when none is there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fairway.simulation.service.version import Version
from fairway.state.load import LATENCY_BOUNDS, OutputComparison, RevisionLoad

BARS = len(LATENCY_BOUNDS) + 1
_BOUNDS = np.array(LATENCY_BOUNDS)
METRIC = "accuracy"


@dataclass(slots=True)
class Pool:
    """Counters of one revision as a router keeps them, and its queue."""

    version: Version
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
    """Answers that held NaN or infinity, in the last moment."""
    busy: float = 0.0
    """Of each replica, in the last moment."""
    partial: float = 0.0
    """Of a request that is nearly answered."""

    def serve(
        self, coming: int, replicas: int, span: float, chance: np.random.Generator, slowness: np.ndarray | None = None
    ) -> tuple[int, np.ndarray]:
        """Takes what comes and answers what it can: how many, and how long each took.

        `slowness`: how many times as long as usual single answers take now, as recorded; None: as the version's spread says.
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
        """Counts the answers. `bad`: the part of the requests that any version refuses."""
        failed = int(chance.binomial(served, self.version.errors)) if self.version.errors else 0
        refuses = 1.0 - (1.0 - self.version.refused) * (1.0 - bad)
        refused = int(chance.binomial(served - failed, refuses)) if refuses else 0
        good = served - failed - refused
        self.non_finite = int(chance.binomial(good, self.version.non_finite)) if self.version.non_finite else 0
        # A router counts the time of successful answers; which of them were refused makes no difference here.
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
        """Counts the answers to copies beside those that clients got."""
        version = self.version
        relaid, reclassified = (int(chance.binomial(good, part)) for part in (version.relaid, version.reclassified))
        differing = max(relaid, reclassified, int(chance.binomial(good, version.differs)))
        restored = int(chance.binomial(good, version.restored))
        lost = self.non_finite
        compared = OutputComparison(good, differing, relaid, good, reclassified, lost, restored, largest=min(1.0, differing))
        self.outputs = self.outputs.plus(compared)

    def load(self) -> RevisionLoad:
        """The counters as a router says them."""
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
