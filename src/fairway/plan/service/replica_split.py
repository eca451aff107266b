"""Split the total number of replicas between revisions.

During a release each revision gets replicas for its share of the traffic, a slower revision proportionally more. The sum may
exceed the number (surge), but is never smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fairway.plan.service.measurement import usable
from fairway.state.service import ServiceState
from fairway.units import number as units

_FACTOR = 4.0
"""Maximum factor by which a revision counts as slower or faster than the other."""
_ROUNDING = 1e-6
_MOST = 1_000_000
"""Maximum number of replicas of one revision."""


@dataclass(frozen=True, slots=True)
class TrafficShares:
    """The shares of traffic."""

    serving: dict[int, float] = field(default_factory=dict)
    """The share in force, by revision; sums to 1, or empty before the first revision is ready."""
    coming: dict[int, float] = field(default_factory=dict)
    """The share for which replicas are being prepared."""
    mirror: tuple[int, float] | None = None
    """The revision that gets copies, and the fraction of requests that are copied."""
    kept: int = 0
    """A revision that keeps all of its replicas, whatever its share, for a rollback."""


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """The target of one revision."""

    wanted: int
    """Target number of replicas."""
    need: int = 0
    """Number of ready replicas needed to serve its share of the traffic."""
    keeps: bool = False
    """Whether surplus replicas are kept."""
    makes_way: bool = False
    """Whether surplus replicas go at once, because others wait for their places."""


def parts(service: ServiceState, shares: TrafficShares) -> dict[int, ReplicaTarget]:
    """Return the target of each revision for the autoscaler's number; other revisions should have no replicas."""
    number = service.scale.wanted
    rates = usable(service.scale.service_rate)
    now, next_ = _work(shares.serving, rates), _work(shares.coming, rates)
    targets: dict[int, ReplicaTarget] = {}
    for revision in {**shares.serving, **shares.coming}:
        need = _ceil(number * now.get(revision, 0.0))
        next_need = _ceil(number * next_.get(revision, 0.0))
        if revision in shares.coming and revision not in shares.serving:
            # At least one replica must show whether the revision works, even while the service is at zero.
            next_need = max(1, next_need)
        targets[revision] = ReplicaTarget(max(need, next_need), need, keeps=revision == shares.kept)
    if shares.mirror:
        revision, share = shares.mirror
        copies = max(1, _ceil(number * share * _slowness(revision, shares, rates)))
        # A revision that takes over next also needs replicas for its share.
        targets[revision] = ReplicaTarget(max(copies, targets[revision].wanted if revision in targets else 0))
    return targets


def in_place(
    service: ServiceState, found: dict[int, ReplicaTarget], ready: Mapping[int, int], newcomer: int
) -> dict[int, ReplicaTarget]:
    """Adapt the targets where there is no capacity for surge: old replicas make way for new ones, one at a time.

    `newcomer` is the revision that should grow; of the others, revisions without a target shrink first.
    """
    others = {number: count for number, count in ready.items() if number != newcomer and count}
    if newcomer not in found or not others:
        return found
    total, ready_count = service.scale.wanted, ready.get(newcomer, 0)
    allowed = min(found[newcomer].wanted, max(ready_count + 1, total - sum(others.values())))
    remaining = max(0, total - allowed)
    surplus = max(0, sum(others.values()) - remaining)
    parts = {newcomer: replace(found[newcomer], wanted=allowed)}
    for other in sorted({*others, *found} - {newcomer}, key=lambda number: (number in found, number)):
        leaving = min(surplus, others.get(other, 0))
        staying = others.get(other, 0) - leaving
        surplus -= leaving
        # A revision with a target may exceed its ready replicas; no new replicas of the others are started.
        wanted = max(staying, min(found[other].wanted, remaining)) if other in found else staying
        parts[other] = replace(found.get(other, ReplicaTarget(0)), wanted=wanted, keeps=False, makes_way=leaving > 0)
        remaining = max(0, remaining - wanted)
    return parts


def _work(shares: dict[int, float], rates: dict[int, float]) -> dict[int, float]:
    """Return fractions of the work: traffic shares with more weight for slower revisions."""
    fastest = max((rates[revision] for revision in shares if revision in rates), default=None)
    if fastest is None:
        return shares
    weighted = {
        revision: share * min(_FACTOR, fastest / rates[revision]) if revision in rates else share
        for revision, share in shares.items()
    }
    total = sum(weighted.values())
    return {revision: weight / total for revision, weight in weighted.items()} if total else shares


def speed(service: ServiceState, revision: int) -> float:
    """Return the requests per busy second of one replica; an unmeasured revision counts as the slowest measured one."""
    rates = usable(service.scale.service_rate)
    return rates.get(revision) or min(rates.values(), default=1.0)


def _slowness(revision: int, shares: TrafficShares, rates: dict[int, float]) -> float:
    serving = next((rates[other] for other, share in shares.serving.items() if share and other in rates), None)
    if serving is None or revision not in rates:
        return 1.0
    return min(_FACTOR, max(1.0 / _FACTOR, serving / rates[revision]))


def _ceil(value: float) -> int:
    return units.ceiling(value - _ROUNDING, _MOST)
