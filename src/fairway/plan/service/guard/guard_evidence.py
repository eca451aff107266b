"""Persistent counters ("marks") of a release's guards, including the evidence of their sequential tests.

Marks are stored in the rollout, so that a restart of the daemon neither restarts a test nor counts anything twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairway.plan.service.guard import sequential_test
from fairway.units import number, quantity

Marks = dict[str, float]
Count = tuple[int, int]
"""Number of events, and of observations."""

ALPHA = 0.01
"""Probability that a guard rolls back a revision that is no worse."""
ALPHA_ALLOWED = 0.1
"""Probability that a revision with more errors than the old one, but no more than allowed, is rolled back."""
LIKELY = 0.5
"""Fraction of the evidence with which a guard is reported as the cause of another guard's finding."""
LEAST = 3
"""Minimum number of events for a decision."""
_ALONE = 10
"""Answers of the new revision that are judged alone when the old one has none."""
_POOLED = 1_000
"""Maximum number of pooled answers of the old revision without one of the new."""
_WORTH_SAYING = 0.1


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The decision of a guard to roll back."""

    guard: str
    """`crash`, `ready`, `errors`, `client_errors`, `non_finite`, `leak`, `p95`, `slower`, `outputs`, `metric`."""
    reason: str
    """A sentence with both numbers."""


def mark(marks: Mapping[str, float], name: str) -> float:
    """Return a stored count; 0 where it is missing or invalid."""
    return max(0.0, number.finite(marks.get(name)) or 0.0)


def add(marks: Marks, name: str, value: float) -> None:
    """Add to a count; negative values are ignored."""
    marks[name] = mark(marks, name) + max(0, value)


def part(marks: Mapping[str, float], name: str) -> float:
    """Return the fraction of events among the answers counted under this name."""
    return number.ratio(mark(marks, f"{name}.k"), mark(marks, f"{name}.n")) or 0.0


def said(marks: Mapping[str, float], name: str) -> str:
    """Return the count as text, `12 of 340`."""
    return f"{mark(marks, f'{name}.k'):.0f} of {mark(marks, f'{name}.n'):.0f}"


def known(marks: Mapping[str, float], name: str) -> dict[float, float]:
    """Return the stored evidence of a test, by ratio."""
    values = {ratio: number.finite(marks.get(f"{name}:{ratio}")) for ratio in sequential_test.RATIOS}
    return {ratio: value for ratio, value in values.items() if value is not None}


def keep(marks: Marks, name: str, evidence: Mapping[float, float]) -> None:
    """Store the evidence of a test."""
    marks.update({f"{name}:{ratio}": value for ratio, value in evidence.items()})


def speaks(marks: Mapping[str, float], name: str, sure: float = 1.0) -> bool:
    """Return whether a test has reached its threshold, or the fraction `sure` of it."""
    return sequential_test.strength(known(marks, name)) >= sure * sequential_test.limit(ALPHA)


def sureness(marks: Mapping[str, float], name: str) -> str:
    """Return a text with the fraction of the threshold that a test has reached; empty when it is small."""
    reached = sequential_test.strength(known(marks, name)) / sequential_test.limit(ALPHA)
    return f" ({min(reached, 1.0):.0%} of the test's threshold)" if reached >= _WORTH_SAYING else ""


def count_above(marks: Marks, name: str, found: Count, allowed: float) -> None:
    """Count events of the new revision against the allowed rate of the document, regardless of the old revision."""
    add(marks, f"{name}.k", found[0])
    add(marks, f"{name}.n", found[1])
    if found[1] > 0:
        keep(marks, name, sequential_test.more_often_than(known(marks, name), *found, allowed, ALPHA))


def count_beside(marks: Marks, name: str, mine: Count, old: Count, allowed: float, *, same: bool, alone: float) -> None:
    """Count events of the new revision against those of the old one.

    With few requests, answers of one side are pooled until there are answers of the other. `same`: whether both get the same
    traffic. If not, or without answers of the old one, only a rate above `alone` is evidence, and only if the old revision's
    rate was not above it.
    """
    counts = (("k", mine[0]), ("n", mine[1]), ("old.k", old[0]), ("old.n", old[1]))
    for key, value in counts:
        add(marks, f"{name}.{key}", value)
        add(marks, f"{name}.pool.{key}", value)
    if mine[1] > 0:
        beyond = sequential_test.more_often_than(known(marks, f"{name}_allowed"), *mine, allowed, ALPHA_ALLOWED)
        keep(marks, f"{name}_allowed", beyond)
    k, n, old_k, old_n = (int(mark(marks, f"{name}.pool.{key}")) for key, _ in counts)
    judged: tuple[str, ...] = ("k", "n", "old.k", "old.n")
    if n and old_n and same:
        keep(marks, name, sequential_test.more_often_than_beside(known(marks, name), (k, n), (old_k, old_n), ALPHA))
    elif n >= _ALONE:
        if part(marks, f"{name}.old") <= alone:
            keep(marks, name, sequential_test.more_often_than(known(marks, name), k, n, alone, ALPHA))
    else:
        judged = ("old.k", "old.n") if old_n >= _POOLED else ()
    marks.update({f"{name}.pool.{key}": 0.0 for key in judged})


def is_above(marks: Marks, name: str, allowed: str) -> bool:
    """Return whether events counted by `count_above` are significantly more frequent than allowed."""
    return mark(marks, f"{name}.k") >= LEAST and speaks(marks, name) and part(marks, name) > quantity.percent(allowed)


def is_too_often(marks: Marks, name: str, beyond: str, allowed: str, sure: float = 1.0) -> bool:
    """Return whether the new revision has significantly more events than the old one and (evidence `beyond`) than allowed.

    `sure`: the fraction of the evidence that is sufficient.
    """
    if mark(marks, f"{name}.k") < LEAST or not speaks(marks, name, sure):
        return False
    if sequential_test.strength(known(marks, beyond)) < sure * sequential_test.limit(ALPHA_ALLOWED):
        return False
    return part(marks, name) > quantity.percent(allowed)
