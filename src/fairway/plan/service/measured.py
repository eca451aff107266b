"""What routers and replicas measured lately, and the rates that follow from it.

Counters only grow within one life of their process; a smaller value than before is a new life, counted from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from fairway.state.load import LATENCY_BOUNDS, ReplicaLoad, RevisionLoad, RouteLoad

KEPT = 600.0
"""Seconds that are remembered."""
_CLOSE = 10.0
"""Looks of the last seconds are all kept."""
_APART = 5.0
"""Older looks are kept this far apart."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the router and at the replicas."""

    time: float
    route: RouteLoad | None
    """None: the router could not be asked."""
    replicas: dict[str, ReplicaLoad] = field(default_factory=dict)
    """By name; a server that is not ours says nothing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The looks of about the last ten minutes, thinned, the newest last; never persisted."""

    samples: tuple[Sample, ...] = ()

    def add(self, sample: Sample) -> Measured:
        """With one look more, and without those that nobody needs."""
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
    return after - before if after >= before else after


def arrival_rate(measured: Measured, window: float) -> float | None:
    """Requests a second that came to the router over the window; None: too little was seen."""
    if measured.last is None:
        return None
    looks = [sample for sample in measured.since(measured.last.time - window) if sample.route is not None]
    if len(looks) < 2 or looks[-1].time - looks[0].time < 1.0:
        return None
    total = sum(grown(*_arrived(before, after)) for before, after in pairwise(looks))
    return total / (looks[-1].time - looks[0].time)


def _arrived(before: Sample, after: Sample) -> tuple[float, float]:
    if before.route is None or after.route is None:
        return 0.0, 0.0
    return (before.route.arrived if before.route.epoch == after.route.epoch else 0), after.route.arrived


def backlog(measured: Measured) -> int:
    """Requests that wait: held by the router, or queued at replicas."""
    last = measured.last
    if last is None:
        return 0
    held = last.route.held if last.route else 0
    return held + sum(load.queue for load in last.replicas.values())


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
        """Requests a busy second of one replica."""
        return self.served / self.busy if self.busy > 0 and self.served > 0 else None

    @property
    def utilisation(self) -> float | None:
        """The part of the time in which they were busy."""
        return min(1.0, self.busy / self.watched) if self.watched > 0 else None


def work(measured: Measured, names: frozenset[str], window: float) -> Work:
    """What the named replicas did over the window: as they say themselves, else as the router saw them."""
    if measured.last is None:
        return Work()
    served = busy = watched = 0.0
    for before, after in pairwise(measured.since(measured.last.time - window)):
        for name in names:
            one = _own_work(name, before, after) or _seen_work(name, before, after)
            if one is not None:
                served, busy, watched = served + one[0], busy + one[1], watched + (after.time - before.time)
    return Work(served, busy, watched)


def _own_work(name: str, before: Sample, after: Sample) -> tuple[float, float] | None:
    old, new = before.replicas.get(name), after.replicas.get(name)
    if old is None or new is None or new.served < old.served:
        return None
    return new.served - old.served, max(0.0, new.busy_seconds - old.busy_seconds)


def _seen_work(name: str, before: Sample, after: Sample) -> tuple[float, float] | None:
    if before.route is None or after.route is None or before.route.epoch != after.route.epoch:
        return None
    old, new = before.route.backends.get(name), after.route.backends.get(name)
    if old is None or new is None or new.answered < old.answered:
        return None
    return new.answered - old.answered, max(0.0, new.busy_seconds - old.busy_seconds)


def steps_of(measured: Measured, since: float, take: Callable[[RouteLoad], RevisionLoad]) -> Iterator[RevisionLoad]:
    """How a revision's counters grew from look to look."""
    looks = [sample.route for sample in measured.since(since) if sample.route is not None]
    for before, after in pairwise(looks):
        yield difference(take(before) if before.epoch == after.epoch else RevisionLoad(), take(after))


def difference(before: RevisionLoad, after: RevisionLoad) -> RevisionLoad:
    """What was added between two looks of one epoch."""
    bars = len(LATENCY_BOUNDS) + 1
    old, new = before.latency or (0,) * bars, after.latency or (0,) * bars
    nothing = (0, 0.0, 0.0)
    return RevisionLoad(
        arrived=after.arrived - before.arrived,
        answered=after.answered - before.answered,
        client_errors=after.client_errors - before.client_errors,
        failed=after.failed - before.failed,
        rejected=after.rejected - before.rejected,
        latency=tuple(right - left for left, right in zip(old, new, strict=True)),
        latency_sum=after.latency_sum - before.latency_sum,
        mirrored=after.mirrored - before.mirrored,
        mirror_failed=after.mirror_failed - before.mirror_failed,
        outcomes={
            name: (one[0] - was[0], one[1] - was[1], one[2] - was[2])
            for name, one in after.outcomes.items()
            for was in (before.outcomes.get(name, nothing),)
        },
    )


def histogram(measured: Measured, revision: int | None, window: float) -> tuple[int, ...]:
    """Answers by `LATENCY_BOUNDS` over the window, of one revision or of all."""
    total = [0] * (len(LATENCY_BOUNDS) + 1)
    if measured.last is None:
        return tuple(total)
    since = measured.last.time - window
    known = {number for sample in measured.samples if sample.route for number in sample.route.revisions}
    for number in known if revision is None else {revision}:
        for step in steps_of(measured, since, lambda route, number=number: route.revisions.get(number, RevisionLoad())):  # type: ignore[misc]
            total = [left + right for left, right in zip(total, step.latency, strict=True)]
    return tuple(total)


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
