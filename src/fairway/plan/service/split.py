"""The one number of replicas, split between revisions.

While a release is under way, each revision gets as many replicas as its part of the traffic asks for, the slower revision more
of them. The sum may be larger than the number (surge), never smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fairway.plan.service.measured import usable
from fairway.state.service import Service
from fairway.units import number as units

_FACTOR = 4.0
"""A revision counts as at most this many times slower or faster than the other."""
_ROUNDING = 1e-6
_MOST = 1_000_000
"""Replicas of one revision."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How traffic is shared."""

    serving: dict[int, float] = field(default_factory=dict)
    """The part in force, by revision; sums to 1, or empty before the first revision was ready."""
    coming: dict[int, float] = field(default_factory=dict)
    """The part for which replicas are made now."""
    mirror: tuple[int, float] | None = None
    """The revision that answers copies, and the part of the requests that is copied."""
    kept: int = 0
    """A revision that keeps all of its replicas, whatever its part: the way back."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one revision should have."""

    wanted: int
    """Replicas."""
    need: int = 0
    """Ready ones, without which its part of the traffic is not served as planned."""
    keeps: bool = False
    """Whether those that it has beyond that stay."""
    makes_way: bool = False
    """Whether those beyond that go at once, because others wait for their place."""


def parts(service: Service, shares: Shares) -> dict[int, Part]:
    """What each revision should have of the number that the autoscaler set; revisions not named should have nothing."""
    number = service.scale.wanted
    rates = usable(service.scale.service_rate)
    now, next_ = _work(shares.serving, rates), _work(shares.coming, rates)
    found: dict[int, Part] = {}
    for revision in {**shares.serving, **shares.coming}:
        need = _ceil(number * now.get(revision, 0.0))
        coming = _ceil(number * next_.get(revision, 0.0))
        if revision in shares.coming and revision not in shares.serving:
            # Somebody must say whether it works, also while the service is at zero.
            coming = max(1, coming)
        found[revision] = Part(max(need, coming), need, keeps=revision == shares.kept)
    if shares.mirror:
        revision, share = shares.mirror
        copies = max(1, _ceil(number * share * _slowness(revision, shares, rates)))
        # A revision that takes over next has replicas for its part as well.
        found[revision] = Part(max(copies, found[revision].wanted if revision in found else 0))
    return found


def in_place(service: Service, found: dict[int, Part], ready: Mapping[int, int], newcomer: int) -> dict[int, Part]:
    """The same without room for more than the number: of the others, one makes way for each new one, and one at a time.

    `newcomer` is the revision that should have more; of the others, those that are not wanted any more go first.
    """
    others = {number: count for number, count in ready.items() if number != newcomer and count}
    if newcomer not in found or not others:
        return found
    total, there = service.scale.wanted, ready.get(newcomer, 0)
    allowed = min(found[newcomer].wanted, max(there + 1, total - sum(others.values())))
    left = max(0, total - allowed)
    beyond = max(0, sum(others.values()) - left)
    parts = {newcomer: replace(found[newcomer], wanted=allowed)}
    for other in sorted({*others, *found} - {newcomer}, key=lambda number: (number in found, number)):
        goes = min(beyond, others.get(other, 0))
        stays = others.get(other, 0) - goes
        beyond -= goes
        # Of one that is wanted there may be more than are ready; of the rest nothing is made.
        wanted = max(stays, min(found[other].wanted, left)) if other in found else stays
        parts[other] = replace(found.get(other, Part(0)), wanted=wanted, keeps=False, makes_way=goes > 0)
        left = max(0, left - wanted)
    return parts


def _work(shares: dict[int, float], rates: dict[int, float]) -> dict[int, float]:
    """Parts of the work: parts of the traffic, the slower revision's weighing more."""
    fastest = max((rates[revision] for revision in shares if revision in rates), default=None)
    if fastest is None:
        return shares
    weighed = {
        revision: share * min(_FACTOR, fastest / rates[revision]) if revision in rates else share
        for revision, share in shares.items()
    }
    total = sum(weighed.values())
    return {revision: weight / total for revision, weight in weighed.items()} if total else shares


def speed(service: Service, revision: int) -> float:
    """Requests a busy second of one replica; one that was not measured counts as the slowest that was."""
    rates = usable(service.scale.service_rate)
    return rates.get(revision) or min(rates.values(), default=1.0)


def _slowness(revision: int, shares: Shares, rates: dict[int, float]) -> float:
    serving = next((rates[other] for other, share in shares.serving.items() if share and other in rates), None)
    if serving is None or revision not in rates:
        return 1.0
    return min(_FACTOR, max(1.0 / _FACTOR, serving / rates[revision]))


def _ceil(value: float) -> int:
    return units.ceiling(value - _ROUNDING, _MOST)
