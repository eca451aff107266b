"""What routers and replicas measured lately, and the rates that follow from it.

Counters only grow within one life of their process; a smaller value than before is a new life, counted from zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fairway.state.load import LATENCY_BOUNDS, ReplicaLoad, ReplicaUse, RevisionLoad, RouteLoad
from fairway.units import number

KEPT = 600.0
"""Seconds that are remembered."""
_CLOSE = 10.0
"""Looks of the last seconds are all kept."""
_APART = 5.0
"""Older looks are kept this far apart."""
LEAST_RATE, MOST_RATE = 1e-9, 1e12
"""Requests a busy second of one replica: what lies outside was measured wrong."""
_BARS = len(LATENCY_BOUNDS) + 1


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the router and at the replicas."""

    time: float
    route: RouteLoad | None
    """None: the router could not be asked."""
    replicas: dict[str, ReplicaLoad] = field(default_factory=dict)
    """By name; a server that is not ours says nothing."""
    use: dict[str, ReplicaUse] = field(default_factory=dict)
    """By name, of those that were ready; looked at more seldom than the rest, so the same look may stand in several samples."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The looks of about the last ten minutes, thinned, the newest last; never persisted."""

    samples: tuple[Sample, ...] = ()

    def add(self, sample: Sample) -> Measured:
        """With one look more, and without those that nobody needs. A router's word that was heard before says nothing new."""
        heard = next((one.route.time for one in reversed(self.samples) if one.route), None)
        if sample.route and sample.route.time == heard and sample.time > heard:
            sample = replace(sample, route=None)
        kept: list[Sample] = []
        for index, one in enumerate(self.samples):
            if one.time < sample.time - KEPT or one.time >= sample.time:
                continue
            after = self.samples[index + 1] if index + 1 < len(self.samples) else sample
            is_old = one.time < sample.time - _CLOSE
            if is_old and kept and after.time - kept[-1].time < _APART:
                continue
            kept.append(one)
        return Measured((*kept, sample))

    @property
    def last(self) -> Sample | None:
        """The newest look."""
        return self.samples[-1] if self.samples else None

    def since(self, time: float) -> tuple[Sample, ...]:
        """The looks from that time on, and the one before them, so that they cover it."""
        first = next((index for index, sample in enumerate(self.samples) if sample.time > time), len(self.samples))
        return self.samples[max(0, first - 1) :]


def grown(before: float, after: float) -> float:
    """How far a counter went; a smaller value began at zero again."""
    return max(0, after - before if after >= before else after)


def is_rate(value: object) -> bool:
    """Whether this can be the rate of a replica."""
    found = number.finite(value)
    return found is not None and LEAST_RATE <= found <= MOST_RATE


def usable(rates: Mapping[int, float]) -> dict[int, float]:
    """The rates that can be computed with. What an older version remembered may be zero or infinite."""
    return {revision: rate for revision, rate in rates.items() if is_rate(rate)}


def arrival_rate(measured: Measured, window: float) -> float | None:
    """Requests a second that came to the router over the window; None: too little was seen."""
    if measured.last is None:
        return None
    looks = [sample for sample in measured.since(measured.last.time - window) if sample.route is not None]
    if len(looks) < 2 or looks[-1].time - looks[0].time < 1.0:
        return None
    total = sum(grown(*_arrived(before, after)) for before, after in pairwise(looks))
    return number.ratio(total, looks[-1].time - looks[0].time)


def _arrived(before: Sample, after: Sample) -> tuple[float, float]:
    if before.route is None or after.route is None:
        return 0.0, 0.0
    return (before.route.arrived if before.route.epoch == after.route.epoch else 0), after.route.arrived


def backlog(measured: Measured) -> int:
    """Requests that wait: held by the router, or queued at replicas."""
    last = measured.last
    if last is None:
        return 0
    held = max(0, last.route.held) if last.route else 0
    return held + sum(max(0, load.queue) for load in last.replicas.values())


def is_quiet(measured: Measured) -> bool:
    """Whether nothing arrived since the look before and nothing is under way. With one look, nobody knows: no."""
    if len(measured.samples) < 2:
        return False
    before, after = measured.samples[-2:]
    if before.route is None or after.route is None:
        return False
    under_way = after.route.held + sum(one.in_flight for one in after.route.backends.values()) + backlog(measured)
    return not under_way and grown(*_arrived(before, after)) == 0


@dataclass(frozen=True, slots=True)
class Work:
    """What replicas did over a window."""

    served: float = 0.0
    busy: float = 0.0
    """Busy seconds."""
    watched: float = 0.0
    """Seconds of replicas that could have been busy."""

    @property
    def rate(self) -> float | None:
        """Requests a busy second of one replica; None: too little was seen, or the figures make no sense."""
        found = number.ratio(self.served, self.busy) if self.busy > 0 and self.served > 0 else None
        return found if is_rate(found) else None

    @property
    def utilisation(self) -> float | None:
        """The part of the time in which they were busy."""
        found = number.ratio(self.busy, self.watched) if self.watched > 0 else None
        return None if found is None else min(1.0, max(0.0, found))


def work(measured: Measured, names: frozenset[str], window: float) -> Work:
    """What the named replicas did over the window: as they say themselves, else as the router saw them."""
    if measured.last is None:
        return Work()
    seen = measured.since(measured.last.time - window)
    done = [one for name in names for one in (_own_work(name, seen) or _seen_work(name, seen),) if one is not None]
    return Work(sum(one.served for one in done), sum(one.busy for one in done), sum(one.watched for one in done))


def _own_work(name: str, seen: tuple[Sample, ...]) -> Work | None:
    """A replica's name is never used twice, so that its counters never go back."""
    first = next((sample for sample in seen if name in sample.replicas), None)
    last = next((sample for sample in reversed(seen) if name in sample.replicas), None)
    if first is None or last is None or last.time <= first.time:
        return None
    old, new = first.replicas[name], last.replicas[name]
    return Work(new.served - old.served, new.busy_seconds - old.busy_seconds, last.time - first.time)


def _seen_work(name: str, seen: tuple[Sample, ...]) -> Work | None:
    """As the router that lives now saw it."""
    looks = [sample for sample in seen if sample.route and name in sample.route.backends]
    looks = [sample for sample in looks if sample.route and looks[-1].route and sample.route.epoch == looks[-1].route.epoch]
    if len(looks) < 2 or not looks[0].route or not looks[-1].route:
        return None
    old, new = looks[0].route.backends[name], looks[-1].route.backends[name]
    return Work(new.answered - old.answered, new.busy_seconds - old.busy_seconds, looks[-1].time - looks[0].time)


def difference(before: RevisionLoad, after: RevisionLoad) -> RevisionLoad:
    """What was added between two looks of one epoch."""
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
            name: (one[0] - was[0], one[1] - was[1], one[2] - was[2])
            for name, one in after.outcomes.items()
            for was in (before.outcomes.get(name, nothing),)
        },
        outputs=after.outputs.since(before.outputs),
    )


def histogram(measured: Measured, revision: int | None, window: float) -> tuple[int, ...]:
    """Answers by `LATENCY_BOUNDS` over the window, of one revision or of all."""
    total = [0] * _BARS
    if measured.last is None:
        return tuple(total)
    for before, after in _lives([sample.route for sample in measured.since(measured.last.time - window) if sample.route]):
        for which, load in after.revisions.items():
            if load.latency and revision in (None, which):
                old = before.revisions.get(which, RevisionLoad()) if before else RevisionLoad()
                total = [one + more for one, more in zip(total, _added(old.latency, load.latency), strict=True)]
    return tuple(total)


def unsuccessful(measured: Measured, revision: int, window: float) -> float | None:
    """The part of a revision's answers over the window that were client errors or failures; None without answers."""
    if measured.last is None:
        return None
    bad = total = 0
    for before, after in _lives([sample.route for sample in measured.since(measured.last.time - window) if sample.route]):
        old = before.revisions.get(revision, RevisionLoad()) if before else RevisionLoad()
        load = difference(old, after.revisions.get(revision, RevisionLoad()))
        bad += load.client_errors + load.failed + load.mirror_client_errors + load.mirror_failed
        total += load.answered + load.failed + load.mirrored
    return number.ratio(bad, total) if total else None


def _lives(looks: list[RouteLoad]) -> Iterator[tuple[RouteLoad | None, RouteLoad]]:
    """The first and the last look at each life of the router; no first one where it began within the looks."""
    first: RouteLoad | None = looks[0] if looks else None
    for before, after in pairwise(looks):
        if after.epoch != before.epoch:
            yield first, before
            first = None
    if looks:
        yield first, looks[-1]


def _added(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """What was added to each bar, none of them less than nothing; bars that one side does not have are empty there."""
    before, after = (side[:_BARS] + (0,) * (_BARS - len(side)) for side in (old, new))
    return tuple(max(0, right - left) for left, right in zip(before, after, strict=True))


def percentile(bars: tuple[int, ...], part: float) -> float | None:
    """The bound under which that part of the answers lies, by the upper end of its bar; None without answers.

    What lies above all bars counts as the last of them.
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
    """The same between the ends of its bar, in proportion to the answers in it."""
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
    """How many answers took longer than the bound; of the bar in which it lies, in proportion."""
    found = 0.0
    for index, count in enumerate(bars):
        begin = LATENCY_BOUNDS[index - 1] if index else 0.0
        if begin >= bound:
            found += count
        elif index < len(LATENCY_BOUNDS) and bound < LATENCY_BOUNDS[index]:
            found += count * (LATENCY_BOUNDS[index] - bound) / (LATENCY_BOUNDS[index] - begin)
    return found
