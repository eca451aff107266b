"""What the guards have counted of a release: marks that last, and the evidence of the sequential tests among them.

Marks are kept in the rollout, so that a restart of the daemon begins nothing anew and counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairway.plan.service import sequential
from fairway.units import number, quantity

Marks = dict[str, float]
Count = tuple[int, int]
"""So many of so many."""

ALPHA = 0.01
"""The chance that a guard sends back a revision that is no worse."""
ALPHA_ALLOWED = 0.1
"""The chance that one with more errors than the old one, but no more than allowed, is sent back."""
LIKELY = 0.5
"""The part of the evidence with which a guard names the cause of what another one has found."""
LEAST = 3
"""Fewer events than this say nothing."""
_ALONE = 10
"""Answers of the new revision, without one of the old, that are judged by themselves."""
_POOLED = 1_000
"""Answers of the old revision that wait for one of the new at the most."""
_WORTH_SAYING = 0.1


@dataclass(frozen=True, slots=True)
class Verdict:
    """A guard that spoke."""

    guard: str
    """`crash`, `ready`, `errors`, `client_errors`, `non_finite`, `leak`, `p95`, `slower`, `outputs`, `metric`."""
    reason: str
    """Both numbers, in a sentence."""


def mark(marks: Mapping[str, float], name: str) -> float:
    """A count that is remembered; 0 where it is missing or cannot be one."""
    return max(0.0, number.finite(marks.get(name)) or 0.0)


def add(marks: Marks, name: str, value: float) -> None:
    """Count so many more; less than nothing is not counted."""
    marks[name] = mark(marks, name) + max(0, value)


def part(marks: Mapping[str, float], name: str) -> float:
    """What part of the answers counted under this name are events."""
    return number.ratio(mark(marks, f"{name}.k"), mark(marks, f"{name}.n")) or 0.0


def said(marks: Mapping[str, float], name: str) -> str:
    """`12 of 340`."""
    return f"{mark(marks, f'{name}.k'):.0f} of {mark(marks, f'{name}.n'):.0f}"


def known(marks: Mapping[str, float], name: str) -> dict[float, float]:
    """The evidence of a test, by ratio."""
    found = {ratio: number.finite(marks.get(f"{name}:{ratio}")) for ratio in sequential.RATIOS}
    return {ratio: value for ratio, value in found.items() if value is not None}


def keep(marks: Marks, name: str, evidence: Mapping[float, float]) -> None:
    """Remember the evidence of a test."""
    marks.update({f"{name}:{ratio}": value for ratio, value in evidence.items()})


def speaks(marks: Mapping[str, float], name: str, sure: float = 1.0) -> bool:
    """Whether a test has seen enough, or that part of it."""
    return sequential.strength(known(marks, name)) >= sure * sequential.limit(ALPHA)


def sureness(marks: Mapping[str, float], name: str) -> str:
    """How far a test is on the way to speaking."""
    reached = sequential.strength(known(marks, name)) / sequential.limit(ALPHA)
    return f" ({min(reached, 1.0):.0%} of the evidence against it)" if reached >= _WORTH_SAYING else ""


def count_above(marks: Marks, name: str, found: Count, allowed: float) -> None:
    """Count events of the new revision beside what the document allows, whatever the old one does."""
    add(marks, f"{name}.k", found[0])
    add(marks, f"{name}.n", found[1])
    if found[1] > 0:
        keep(marks, name, sequential.more_often_than(known(marks, name), *found, allowed, ALPHA))


def count_beside(marks: Marks, name: str, mine: Count, old: Count, allowed: float, *, same: bool, alone: float) -> None:
    """Count events of the new revision beside those of the old one.

    Where few ask, answers of one side wait for answers of the other. `same`: whether both see the same traffic. Where they do
    not, or the old one has no answers, only more than `alone` is evidence, and none where the old one had more than that.
    """
    counts = (("k", mine[0]), ("n", mine[1]), ("old.k", old[0]), ("old.n", old[1]))
    for each, value in counts:
        add(marks, f"{name}.{each}", value)
        add(marks, f"{name}.pool.{each}", value)
    if mine[1] > 0:
        beyond = sequential.more_often_than(known(marks, f"{name}_allowed"), *mine, allowed, ALPHA_ALLOWED)
        keep(marks, f"{name}_allowed", beyond)
    k, n, old_k, old_n = (int(mark(marks, f"{name}.pool.{each}")) for each, _ in counts)
    judged: tuple[str, ...] = ("k", "n", "old.k", "old.n")
    if n and old_n and same:
        keep(marks, name, sequential.more_often_than_beside(known(marks, name), (k, n), (old_k, old_n), ALPHA))
    elif n >= _ALONE:
        if part(marks, f"{name}.old") <= alone:
            keep(marks, name, sequential.more_often_than(known(marks, name), k, n, alone, ALPHA))
    else:
        judged = ("old.k", "old.n") if old_n >= _POOLED else ()
    marks.update({f"{name}.pool.{each}": 0.0 for each in judged})


def is_above(marks: Marks, name: str, allowed: str) -> bool:
    """Whether events counted by `count_above` are significantly more than allowed."""
    return mark(marks, f"{name}.k") >= LEAST and speaks(marks, name) and part(marks, name) > quantity.percent(allowed)


def is_too_often(marks: Marks, name: str, beyond: str, allowed: str, sure: float = 1.0) -> bool:
    """Whether the new revision has significantly more than the old one, and (the evidence `beyond`) than is allowed.

    `sure`: the part of the evidence that is enough.
    """
    if mark(marks, f"{name}.k") < LEAST or not speaks(marks, name, sure):
        return False
    if sequential.strength(known(marks, beyond)) < sure * sequential.limit(ALPHA_ALLOWED):
        return False
    return part(marks, name) > quantity.percent(allowed)
