"""Replicas whose memory grows with every answer.

What a replica holds is looked at every few seconds. It leaks where it grew by much, as much with the later answers as with the
earlier ones: what a model allocates at first, and caches, level off. Nothing is said while it holds no more than replicas of
the old revision, whose caches are full, or while those grow as much an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fairway.plan.service.evidence import Verdict
from fairway.plan.service.measured import Measured, Sample
from fairway.state.load import ReplicaUse
from fairway.state.service import Rollout, Service, revision_of
from fairway.units import number, quantity

_LOOKS = 9
"""Fewer looks at the memory of a replica than this say nothing."""
_ANSWERS = 20
"""Fewer answers of a replica than this say nothing."""
_LASTS = 3
"""So many looks in a row must show it."""
_STEADY = 0.9
"""The growth of the later half of the answers, as a part of that of the earlier half; caches that level off have less."""
_EVERYWHERE = 0.5
"""Each quarter of the answers has at least this part of its share of the growth; a single jump has not."""
_MORE = 3.0
"""It grows by so many times as much an answer as the old revision's."""
_DOUBLE = 1.0
"""Growth that counts where no limit is known, as a part of what a replica of the old revision holds."""

Point = tuple[float, float]
"""Answers so far, and the memory held with them; or a time, and the answers until then."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How the memory of one replica grew."""

    name: str
    begin: float
    end: float
    answers: float

    @property
    def rate(self) -> float:
        """What each answer added."""
        return max(0.0, self.end - self.begin) / max(1.0, self.answers)


def verdict(service: Service, rollout: Rollout, measured: Measured) -> Verdict | None:
    """Whether the memory of a replica of the new revision grows with its answers, and that of the old one does not."""
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
    return _found(rollout, measured, usual, _DOUBLE, "as much again") if usual else None


def _found(rollout: Rollout, measured: Measured, usual: float | None, least: float, allowed: str) -> Verdict | None:
    names = sorted({name for sample in measured.samples for name in sample.use})
    points = {name: _points(measured, name, usual) for name in names}
    old = [_growth(name, points[name]) for name in names if revision_of(name) == rollout.source and points[name]]
    highest = max((held for name in names if revision_of(name) == rollout.source for _, held in points[name]), default=0.0)
    other = max(old, key=lambda growth: growth.rate, default=None)
    for name in names:
        mine = points[name]
        if revision_of(name) != rollout.target or not mine or mine[-1][1] <= highest:
            continue
        lasting = [_leaks(mine[: len(mine) - back], least) for back in range(_LASTS)]
        found = lasting[0]
        if found and all(lasting) and (other is None or _growth(name, found).rate > _MORE * other.rate):
            return Verdict("leak", _in_words(rollout, _growth(name, found), other, allowed, is_part=usual is None))
    return None


def _points(measured: Measured, name: str, usual: float | None) -> list[Point]:
    """Answers and memory of one replica at each look at its memory, as a part of its limit, or of `usual` bytes.

    Memory is looked at between two looks at the answers, which are placed in proportion.
    """
    answered: list[Point] = []
    looks: dict[float, float] = {}
    for sample in measured.samples:
        use, answers = sample.use.get(name), _answers(sample, name)
        if answers is None:
            continue
        if answered and answers < answered[-1][1]:
            # Another router counts anew.
            answered, looks = [], {}
        answered.append((sample.time, answers))
        held = _held(use, usual) if use else None
        if use is not None and held is not None:
            looks[use.time] = held
    return [(_at(answered, time), held) for time, held in looks.items() if time >= answered[0][0]]


def _held(use: ReplicaUse, usual: float | None) -> float | None:
    return number.finite(use.memory) if usual is None else number.ratio(use.held or 0.0, usual)


def _answers(sample: Sample, name: str) -> float | None:
    """As the replica says itself, else as the router saw it."""
    own = sample.replicas.get(name)
    if own is not None:
        return float(own.served)
    seen = sample.route.backends.get(name) if sample.route else None
    return float(seen.answered) if seen else None


def _leaks(points: Sequence[Point], least: float) -> Sequence[Point] | None:
    """The looks over which memory grew steadily by that much: all of them, or those after the first half or three quarters."""
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
    """The second of a point at that place of the first, between two points in proportion."""
    for (before, low), (after, high) in pairwise(points):
        if place <= after:
            return low + (high - low) * (place - before) / (after - before) if after > before else high
    return points[-1][1]


def _growth(name: str, points: Sequence[Point]) -> Growth:
    return Growth(name, points[0][1], points[-1][1], points[-1][0] - points[0][0])


def _in_words(rollout: Rollout, mine: Growth, other: Growth | None, allowed: str, *, is_part: bool) -> str:
    what = "its memory" if is_part else f"what a replica of r{rollout.source} holds"
    grew = f"{mine.name} went from {mine.begin:.0%} to {mine.end:.0%} of {what} within {mine.answers:,.0f} answers"
    beside = f"{other.name} from {other.begin:.0%} to {other.end:.0%} within {other.answers:,.0f}" if other else "none of the old"
    return f"{grew}, and it does not level off; {beside}; allowed is {allowed} more"
