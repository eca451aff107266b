"""Guard against memory leaks: replicas whose memory grows with every answer.

The memory of replicas is sampled every few seconds. A replica leaks if its memory has grown much, and as much with later
answers as with earlier ones: initial allocations and caches level off. There is no verdict while it holds no more memory than
replicas of the old revision, whose caches are full, or while those grow similarly per answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fairway.plan.service.guard.guard_evidence import GuardVerdict
from fairway.plan.service.measurement import ServiceMeasurements, ServiceSample
from fairway.state.service import ServiceRollout, ServiceState, revision_of
from fairway.state.serving.load import ReplicaUse
from fairway.units import number, quantity

_LOOKS = 9
"""Minimum number of memory samples of a replica."""
_ANSWERS = 20
"""Minimum number of answers of a replica."""
_LASTS = 3
"""Number of consecutive samples that must show the leak."""
_STEADY = 0.9
"""Minimum growth in the second half of the answers, relative to the first half; caches that level off have less."""
_EVERYWHERE = 0.5
"""Minimum growth in each quarter of the answers, relative to an equal share; a single jump does not reach it."""
_MORE = 3.0
"""Minimum growth per answer relative to the old revision's replicas."""
_DOUBLE = 1.0
"""Growth that counts where no memory limit is known, relative to the memory of an old revision's replica."""

Point = tuple[float, float]
"""Number of answers and the memory held at that point; or a time and the number of answers until then."""


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """How the memory of one replica grew."""

    name: str
    begin: float
    end: float
    answers: float

    @property
    def rate(self) -> float:
        """Growth per answer."""
        return max(0.0, self.end - self.begin) / max(1.0, self.answers)


def verdict(service: ServiceState, rollout: ServiceRollout, measured: ServiceMeasurements) -> GuardVerdict | None:
    """Return a verdict if the memory of a new revision's replica grows with its answers, unlike that of the old one."""
    allowed = quantity.percent(service.spec.rollout.guard.leak)
    if not allowed:
        return None
    uses = {name: use for sample in measured.samples for name, use in sample.use.items()}
    if not any(revision_of(name) == rollout.target for name in uses):
        return None
    old = [use for name, use in uses.items() if revision_of(name) == rollout.source]
    if any(use.memory is not None for name, use in uses.items() if revision_of(name) == rollout.target):
        return _found(rollout, measured, None, allowed, service.spec.rollout.guard.leak)
    usual = max((use.held for use in old if use.held), default=None)
    return _found(rollout, measured, usual, _DOUBLE, "100%") if usual else None


def _found(
    rollout: ServiceRollout, measured: ServiceMeasurements, usual: float | None, least: float, allowed: str
) -> GuardVerdict | None:
    names = sorted({name for sample in measured.samples for name in sample.use})
    points = {name: _points(measured, name, usual) for name in names}
    old = [_growth(name, points[name]) for name in names if revision_of(name) == rollout.source and points[name]]
    highest = max((held for name in names if revision_of(name) == rollout.source for _, held in points[name]), default=0.0)
    fastest_old = max(old, key=lambda growth: growth.rate, default=None)
    for name in names:
        replica_points = points[name]
        if revision_of(name) != rollout.target or not replica_points or replica_points[-1][1] <= highest:
            continue
        recent_results = [_leaks(replica_points[: len(replica_points) - back], least) for back in range(_LASTS)]
        leaking_points = recent_results[0]
        if (
            leaking_points
            and all(recent_results)
            and (fastest_old is None or _growth(name, leaking_points).rate > _MORE * fastest_old.rate)
        ):
            return GuardVerdict(
                "leak", _in_words(rollout, _growth(name, leaking_points), fastest_old, allowed, is_part=usual is None)
            )
    return None


def _points(measured: ServiceMeasurements, name: str, usual: float | None) -> list[Point]:
    """Return answers and memory of one replica at each memory sample, relative to its limit or to `usual` bytes.

    Memory samples fall between samples of the answers, so the number of answers is interpolated.
    """
    answer_points: list[Point] = []
    memory_samples: dict[float, float] = {}
    for sample in measured.samples:
        use, answers = sample.use.get(name), _answers(sample, name)
        if answers is None:
            continue
        if answer_points and answers < answer_points[-1][1]:
            # A restarted router counts from zero.
            answer_points, memory_samples = [], {}
        answer_points.append((sample.time, answers))
        held = _held(use, usual) if use else None
        if use is not None and held is not None:
            memory_samples[use.time] = held
    return [(_at(answer_points, time), held) for time, held in memory_samples.items() if time >= answer_points[0][0]]


def _held(use: ReplicaUse, usual: float | None) -> float | None:
    return number.finite(use.memory) if usual is None else number.ratio(use.held or 0.0, usual)


def _answers(sample: ServiceSample, name: str) -> float | None:
    """Return the answers as counted by the replica, else by the router."""
    own_load = sample.replicas.get(name)
    if own_load is not None:
        return float(own_load.served)
    router_load = sample.route.backends.get(name) if sample.route else None
    return float(router_load.answered) if router_load else None


def _leaks(points: Sequence[Point], least: float) -> Sequence[Point] | None:
    """Return the samples with steady growth of at least `least`: all of them, or the last half or quarter; else None."""
    for part in (0, len(points) // 2, 3 * len(points) // 4):
        tail = points[part:]
        if len(tail) >= _LOOKS and _is_steady(tail, least):
            return tail
    return None


def _is_steady(points: Sequence[Point], least: float) -> bool:
    begin, end = points[0][0], points[-1][0]
    if end - begin < _ANSWERS or points[-1][1] - points[0][1] < least:
        return False
    held = [_at(points, begin + (end - begin) * quarter / 4) for quarter in range(5)]
    grown = [after - before for before, after in pairwise(held)]
    share = (held[-1] - held[0]) / 4
    return min(grown) >= _EVERYWHERE * share and grown[2] + grown[3] >= _STEADY * (grown[0] + grown[1])


def _at(points: Sequence[Point], place: float) -> float:
    """Return the second coordinate at `place` of the first, by linear interpolation."""
    for (before, low), (after, high) in pairwise(points):
        if place <= after:
            return low + (high - low) * (place - before) / (after - before) if after > before else high
    return points[-1][1]


def _growth(name: str, points: Sequence[Point]) -> MemoryGrowth:
    return MemoryGrowth(name, points[0][1], points[-1][1], points[-1][0] - points[0][0])


def _in_words(rollout: ServiceRollout, mine: MemoryGrowth, other: MemoryGrowth | None, allowed: str, *, is_part: bool) -> str:
    what = "its memory" if is_part else f"what a replica of r{rollout.source} uses"
    grew = f"{mine.name} went from {mine.begin:.0%} to {mine.end:.0%} of {what} within {mine.answers:,.0f} answers"
    comparison = (
        f"{other.name} from {other.begin:.0%} to {other.end:.0%} within {other.answers:,.0f}"
        if other
        else "no measurements of the old revision"
    )
    return f"{grew}, and it does not level off; {comparison}; allowed is {allowed} more"
