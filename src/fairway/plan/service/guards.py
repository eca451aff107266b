"""What sends a release back: each guard by its name, with both numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairway.state.service import Replica, ReplicaPhase, RevisionPhase, Rollout, Service
from fairway.units import quantity

CRASHES = 3
"""Replicas of a new revision that end by themselves before it is sent back."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A guard that spoke."""

    guard: str
    """`crash`, `ready`, `errors`, `p95`, `slower`, `metric`."""
    reason: str
    """Both numbers, in a sentence."""


def of_replicas(service: Service, rollout: Rollout, replicas: Sequence[Replica], now: float) -> Verdict | None:
    """Whether the new revision's replicas crash, or never get ready."""
    target = service.revision(rollout.target)
    if target is None:
        return None
    last = max(
        (replica for replica in replicas if replica.revision == target.number and replica.message),
        key=lambda replica: (replica.phase is ReplicaPhase.GONE, replica.since),
        default=None,
    )
    said = f" ({last.name}: {last.message})" if last else ""
    if target.failures >= CRASHES:
        when = "before any was ready" if target.phase is RevisionPhase.NEW else "after it had been ready"
        return Verdict(
            "crash", f"{target.failures} replicas of r{target.number} ended by themselves {when}; {CRASHES} are enough{said}"
        )
    limit = service.spec.rollout.guard.ready
    waited = now - rollout.started
    if target.phase is RevisionPhase.NEW and waited >= quantity.seconds(limit):
        return Verdict(
            "ready", f"no replica of r{target.number} was ready after {quantity.show_seconds(waited)}; allowed are {limit}{said}"
        )
    return None
