"""Recent measurements of routers and replicas, and the rates computed from them.

Counters only grow during the lifetime of their process; a smaller value means a restarted process that counts from zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fairway.state.serving.load import LATENCY_BOUNDS, ReplicaLoad, ReplicaUse, RevisionLoad, RouteLoad
from fairway.units import number

KEPT = 600.0
"""Seconds for which samples are kept."""
_CLOSE = 10.0
"""Samples of the last seconds are all kept."""
_APART = 5.0
"""Minimum distance of older samples, in seconds."""
LEAST_RATE, MOST_RATE = 1e-9, 1e12
"""Plausible range of requests per busy second of one replica; other values are measurement errors."""
_BARS = len(LATENCY_BOUNDS) + 1


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """One sample of the router and the replicas."""

    time: float
    route: RouteLoad | None
    """None when the router did not respond."""
    replicas: dict[str, ReplicaLoad] = field(default_factory=dict)
    """By name; servers other than Fairway's own report nothing."""
    use: dict[str, ReplicaUse] = field(default_factory=dict)
    """By name, of ready replicas. Measured less often than the rest, so that several samples may contain the same measurement."""


@dataclass(frozen=True, slots=True)
class ServiceMeasurements:
    """The samples of about the last ten minutes, thinned, the newest last; never persisted."""

    samples: tuple[ServiceSample, ...] = ()

    def add(self, sample: ServiceSample) -> ServiceMeasurements:
        """Return the measurements with one more sample and without obsolete ones. A repeated report of the router is dropped."""
        last_report_time = next((older.route.time for older in reversed(self.samples) if older.route), None)
        if sample.route and sample.route.time == last_report_time and sample.time > last_report_time:
            sample = replace(sample, route=None)
        kept: list[ServiceSample] = []
        for index, older in enumerate(self.samples):
            if older.time < sample.time - KEPT or older.time >= sample.time:
                continue
            after = self.samples[index + 1] if index + 1 < len(self.samples) else sample
            is_old = older.time < sample.time - _CLOSE
            if is_old and kept and after.time - kept[-1].time < _APART:
                continue
            kept.append(older)
        return ServiceMeasurements((*kept, sample))

    @property
    def last(self) -> ServiceSample | None:
        """The newest sample."""
        return self.samples[-1] if self.samples else None

    def since(self, time: float) -> tuple[ServiceSample, ...]:
        """Return the samples after that time and the one before them, so that they cover the whole period."""
        first = next((index for index, sample in enumerate(self.samples) if sample.time > time), len(self.samples))
        return self.samples[max(0, first - 1) :]


def grown(before: float, after: float) -> float:
    """Return the increase of a counter; a smaller value means that it restarted at zero."""
    return max(0, after - before if after >= before else after)


def is_rate(value: object) -> bool:
    """Return whether the value is a plausible rate of a replica."""
    rate = number.finite(value)
    return rate is not None and LEAST_RATE <= rate <= MOST_RATE


def usable(rates: Mapping[int, float]) -> dict[int, float]:
    """Return the plausible rates. Rates stored by an older version may be zero or infinite."""
    return {revision: rate for revision, rate in rates.items() if is_rate(rate)}


def arrival_rate(measured: ServiceMeasurements, window: float) -> float | None:
    """Return the requests per second that arrived at the router in the window; None without enough samples."""
    if measured.last is None:
        return None
    samples = [sample for sample in measured.since(measured.last.time - window) if sample.route is not None]
    if len(samples) < 2 or samples[-1].time - samples[0].time < 1.0:
        return None
    total = sum(grown(*_arrived(before, after)) for before, after in pairwise(samples))
    return number.ratio(total, samples[-1].time - samples[0].time)


def _arrived(before: ServiceSample, after: ServiceSample) -> tuple[float, float]:
    if before.route is None or after.route is None:
        return 0.0, 0.0
    return (before.route.arrived if before.route.epoch == after.route.epoch else 0), after.route.arrived


def backlog(measured: ServiceMeasurements) -> int:
    """Return the number of waiting requests: held by the router, or queued at replicas."""
    last = measured.last
    if last is None:
        return 0
    held = max(0, last.route.held) if last.route else 0
    return held + sum(max(0, load.queue) for load in last.replicas.values())


def is_quiet(measured: ServiceMeasurements) -> bool:
    """Return whether nothing arrived since the previous sample and nothing is in flight; False with a single sample."""
    if len(measured.samples) < 2:
        return False
    before, after = measured.samples[-2:]
    if before.route is None or after.route is None:
        return False
    in_flight = after.route.held + sum(backend.in_flight for backend in after.route.backends.values()) + backlog(measured)
    return not in_flight and grown(*_arrived(before, after)) == 0


@dataclass(frozen=True, slots=True)
class ReplicaWork:
    """The work of replicas in a window."""

    served: float = 0.0
    busy: float = 0.0
    """Busy seconds."""
    watched: float = 0.0
    """Observed seconds, summed over replicas."""

    @property
    def rate(self) -> float | None:
        """Requests per busy second of one replica; None without enough data, or if the result is implausible."""
        value = number.ratio(self.served, self.busy) if self.busy > 0 and self.served > 0 else None
        return value if is_rate(value) else None

    @property
    def utilisation(self) -> float | None:
        """The fraction of time in which they were busy."""
        value = number.ratio(self.busy, self.watched) if self.watched > 0 else None
        return None if value is None else min(1.0, max(0.0, value))


def work(measured: ServiceMeasurements, names: frozenset[str], window: float) -> ReplicaWork:
    """Return the work of the named replicas in the window: as they report it, else as the router measured it."""
    if measured.last is None:
        return ReplicaWork()
    samples = measured.since(measured.last.time - window)
    work_list = [item for name in names for item in (_own_work(name, samples) or _seen_work(name, samples),) if item is not None]
    return ReplicaWork(
        sum(item.served for item in work_list), sum(item.busy for item in work_list), sum(item.watched for item in work_list)
    )


def _own_work(name: str, seen: tuple[ServiceSample, ...]) -> ReplicaWork | None:
    """Return the work by the replica's own counters, which never decrease because a replica's name is never reused."""
    first = next((sample for sample in seen if name in sample.replicas), None)
    last = next((sample for sample in reversed(seen) if name in sample.replicas), None)
    if first is None or last is None or last.time <= first.time:
        return None
    old, new = first.replicas[name], last.replicas[name]
    return ReplicaWork(new.served - old.served, new.busy_seconds - old.busy_seconds, last.time - first.time)


def _seen_work(name: str, seen: tuple[ServiceSample, ...]) -> ReplicaWork | None:
    """Return the work as measured by the current router process."""
    samples = [sample for sample in seen if sample.route and name in sample.route.backends]
    samples = [
        sample for sample in samples if sample.route and samples[-1].route and sample.route.epoch == samples[-1].route.epoch
    ]
    if len(samples) < 2 or not samples[0].route or not samples[-1].route:
        return None
    old, new = samples[0].route.backends[name], samples[-1].route.backends[name]
    return ReplicaWork(new.answered - old.answered, new.busy_seconds - old.busy_seconds, samples[-1].time - samples[0].time)


def difference(before: RevisionLoad, after: RevisionLoad) -> RevisionLoad:
    """Return the increase between two samples of one epoch."""
    nothing = (0, 0.0, 0.0)
    return RevisionLoad(
        arrived=max(0, after.arrived - before.arrived),
        answered=max(0, after.answered - before.answered),
        client_errors=max(0, after.client_errors - before.client_errors),
        failed=max(0, after.failed - before.failed),
        rejected=max(0, after.rejected - before.rejected),
        latency=_added(before.latency, after.latency),
        latency_sum=after.latency_sum - before.latency_sum,
        mirrored=max(0, after.mirrored - before.mirrored),
        mirror_failed=max(0, after.mirror_failed - before.mirror_failed),
        mirror_client_errors=max(0, after.mirror_client_errors - before.mirror_client_errors),
        outcomes={
            name: (after_sums[0] - before_sums[0], after_sums[1] - before_sums[1], after_sums[2] - before_sums[2])
            for name, after_sums in after.outcomes.items()
            for before_sums in (before.outcomes.get(name, nothing),)
        },
        outputs=after.outputs.since(before.outputs),
    )


def histogram(measured: ServiceMeasurements, revision: int | None, window: float) -> tuple[int, ...]:
    """Return the answers in the window by `LATENCY_BOUNDS`, of one revision or of all."""
    total = [0] * _BARS
    if measured.last is None:
        return tuple(total)
    for before, after in _lives([sample.route for sample in measured.since(measured.last.time - window) if sample.route]):
        for which, load in after.revisions.items():
            if load.latency and revision in (None, which):
                old = before.revisions.get(which, RevisionLoad()) if before else RevisionLoad()
                total = [count + increase for count, increase in zip(total, _added(old.latency, load.latency), strict=True)]
    return tuple(total)


def unsuccessful(measured: ServiceMeasurements, revision: int, window: float) -> float | None:
    """Return the fraction of a revision's answers in the window that were client errors or failures; None without answers."""
    if measured.last is None:
        return None
    unsuccessful_count = total = 0
    for before, after in _lives([sample.route for sample in measured.since(measured.last.time - window) if sample.route]):
        old = before.revisions.get(revision, RevisionLoad()) if before else RevisionLoad()
        load = difference(old, after.revisions.get(revision, RevisionLoad()))
        unsuccessful_count += load.client_errors + load.failed + load.mirror_client_errors + load.mirror_failed
        total += load.answered + load.failed + load.mirrored
    return number.ratio(unsuccessful_count, total) if total else None


def _lives(looks: list[RouteLoad]) -> Iterator[tuple[RouteLoad | None, RouteLoad]]:
    """Yield the first and last report of each router process; the first is None where the process started within the reports."""
    first: RouteLoad | None = looks[0] if looks else None
    for before, after in pairwise(looks):
        if after.epoch != before.epoch:
            yield first, before
            first = None
    if looks:
        yield first, looks[-1]


def _added(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Return the increase of each bar, never negative; bars missing on one side count as empty."""
    before, after = (side[:_BARS] + (0,) * (_BARS - len(side)) for side in (old, new))
    return tuple(max(0, new_count - old_count) for old_count, new_count in zip(before, after, strict=True))


def percentile(bars: tuple[int, ...], part: float) -> float | None:
    """Return the upper bound of the bar that contains this quantile; None without answers.

    Answers above all bounds count as the last bound.
    """
    total = sum(bars)
    if not total:
        return None
    reached = 0
    for index, count in enumerate(bars):
        reached += count
        if reached >= part * total:
            return LATENCY_BOUNDS[min(index, len(LATENCY_BOUNDS) - 1)]
    return None


def quantile(bars: tuple[int, ...], part: float) -> float | None:
    """Return the quantile, interpolated within its bar; None without answers."""
    total = sum(bars)
    if not total:
        return None
    reached = 0
    for index, count in enumerate(bars):
        if count and reached + count >= part * total:
            if index >= len(LATENCY_BOUNDS):
                break
            begin = LATENCY_BOUNDS[index - 1] if index else 0.0
            return begin + (LATENCY_BOUNDS[index] - begin) * (part * total - reached) / count
        reached += count
    return LATENCY_BOUNDS[-1]


def longer_than(bars: tuple[int, ...], bound: float) -> float:
    """Return how many answers took longer than the bound, interpolated within the bar that contains it."""
    total = 0.0
    for index, count in enumerate(bars):
        begin = LATENCY_BOUNDS[index - 1] if index else 0.0
        if begin >= bound:
            total += count
        elif index < len(LATENCY_BOUNDS) and bound < LATENCY_BOUNDS[index]:
            total += count * (LATENCY_BOUNDS[index] - bound) / (LATENCY_BOUNDS[index] - begin)
    return total
