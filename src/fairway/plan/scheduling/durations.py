"""How long a run will still take, from what it declared and from how long its like took.

Runs of the same user and name that are as large are the best witnesses, then those of any size, then all of the user that
are as large, then all that are as large, then all. The answer is a range with the chance that the truth lies in it: when
the run is like its witnesses, the next of them falls between the i-th and the j-th of n with a chance of
(j - i) / (n + 1), whatever the distribution is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONFIDENT = 0.6
"""From this confidence on a range is worth acting upon."""
LEAST_WITNESSES = 5
"""So many runs that lasted longer than this one has already must speak before a group is asked."""
WANTED = 0.8
"""The chance that a range is meant to have."""
KEPT_OF_A_NAME = 24
KEPT_OF_ALL = 200
MOST_GROUPS = 512
"""Groups of users and names that are remembered; those that ended longest ago are forgotten first."""
_BASIS = {"n": "name", "u": "user", "s": "size", "a": "all"}
UNKNOWN = 3600.0
"""Seconds that a run is thought to take when nothing is known at all."""


@dataclass(frozen=True, slots=True)
class History:
    """How long runs took, the latest of each group; a plain value of bounded size."""

    groups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By user and name, or user and size: the group of which one ended last comes last."""
    sizes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By size; the empty name is everybody."""
    count: int = 0
    """Runs that were recorded in all."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that a run will still take."""

    low: float
    median: float
    high: float
    confidence: float
    """The chance that it will take between `low` and `high`."""
    basis: str
    """Whose durations it rests on: `name`, `user`, `size`, `all`, `limit` (what was declared), `none`, or `service`, which never
    ends by itself."""


def record(history: History, user: str, name: str, gpus: float, duration: float) -> History:
    """The history with one more run that ended by itself after so many seconds of running."""
    lasted = round(max(0.0, duration), 1)
    groups = dict(history.groups)
    for key in _keys(user, name, gpus):
        groups[key] = (*groups.pop(key, ()), lasted)[-KEPT_OF_A_NAME:]
    while len(groups) > MOST_GROUPS:
        del groups[next(iter(groups))]
    sizes = dict(history.sizes)
    for key in (_size(gpus), ""):
        sizes[key] = (*sizes.get(key, ()), lasted)[-KEPT_OF_ALL:]
    return History(groups, sizes, history.count + 1)


def estimate(history: History, user: str, name: str, gpus: float, limit: float | None, elapsed: float) -> Estimate:
    """What is left of a run that has run for `elapsed` seconds and may run for `limit` in all."""
    basis, witnesses = _witnesses(history, user, name, gpus, elapsed)
    left = None if limit is None else max(0.0, limit - elapsed)
    if not witnesses:
        if left is not None:
            return Estimate(0.0, left / 2, left, 1.0, "limit")
        guess = max(elapsed, UNKNOWN)
        return Estimate(guess / 4, guess, 4 * guess, 0.0, "none")
    count = len(witnesses)
    inner = max(1, round(WANTED * (count + 1)))
    first = max(0, (count - 1 - inner) // 2)
    last = min(count - 1, first + inner)
    low, median, high = witnesses[first], _middle(witnesses), witnesses[last]
    confidence = (last - first) / (count + 1)
    if left is not None and left < high:
        # It cannot outlast its limit, so nothing is missed above.
        low, median, high, confidence = min(low, left), min(median, left), left, (count - first) / (count + 1)
    return Estimate(low, median, high, round(confidence, 3), basis)


def is_known(history: History, user: str, name: str, gpus: float, limit: float | None) -> bool:
    """Whether anything says how long a run takes: its own limit, or runs that have ended."""
    return limit is not None or bool(_witnesses(history, user, name, gpus, 0.0)[1])


def remaining(history: History, user: str, name: str, gpus: float, limit: float | None, elapsed: float, part: float) -> float:
    """What is left of it in the case that is longer than this part (0 to 1) of all cases: for playing the future through."""
    _, witnesses = _witnesses(history, user, name, gpus, elapsed)
    left = max(0.0, limit - elapsed) if limit is not None else None
    if witnesses:
        found = witnesses[min(len(witnesses) - 1, int(part * len(witnesses)))]
        return found if left is None else min(found, left)
    return left * part if left is not None else max(elapsed, UNKNOWN) * part / max(0.05, 1 - part)


def _witnesses(history: History, user: str, name: str, gpus: float, elapsed: float) -> tuple[str, list[float]]:
    """What was left to those of the closest group that lasted longer than `elapsed`, sorted; and which group it is."""
    groups = [(key[0], history.groups.get(key, ())) for key in _keys(user, name, gpus)]
    groups += [("s", history.sizes.get(_size(gpus), ())), ("a", history.sizes.get("", ()))]
    found: tuple[str, list[float]] = ("none", [])
    for basis, lasted in groups:
        left = sorted(duration - elapsed for duration in lasted if duration > elapsed)
        if len(left) >= LEAST_WITNESSES:
            return _BASIS[basis], left
        if len(left) > len(found[1]):
            found = _BASIS[basis], left
    return found


def _middle(sorted_values: list[float]) -> float:
    half = len(sorted_values) // 2
    return sorted_values[half] if len(sorted_values) % 2 else (sorted_values[half - 1] + sorted_values[half]) / 2


def _size(gpus: float) -> str:
    """Runs on up to 0, 1, 2, 4, 8 ... GPUs are alike."""
    bound = 1
    while bound < gpus:
        bound *= 2
    return str(bound) if gpus > 0 else "0"


def _keys(user: str, name: str, gpus: float) -> list[str]:
    """The groups of a run, the closest first; the first letter says which kind. Without a name it has none of that kind."""
    named = [f"n{user}/{name}/{_size(gpus)}", f"n{user}/{name}"] if name else []
    return [*named, *([f"u{user}/{_size(gpus)}"] if user else [])]
