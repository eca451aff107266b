"""Estimate how long a run will still take, from its declared limit and from the durations of similar runs.

Similar runs are, best first: those of the same user, name and size; of the same user and name; of the same user and size; of
the same size; all runs. The result is a range with the probability that the true value lies in it: when the run comes from
the same distribution as n samples, it falls between the i-th and the j-th of them with probability (j - i) / (n + 1),
whatever the distribution is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONFIDENT = 0.6
"""Minimum confidence for a decision to rely on a range."""
LEAST_WITNESSES = 5
"""Minimum number of samples longer than the run's elapsed time for a group to be used."""
WANTED = 0.8
"""Target probability of a range."""
KEPT_OF_A_NAME = 24
KEPT_OF_ALL = 200
MOST_GROUPS = 512
"""Maximum number of groups (user and name, user and size) in the history; the least recently updated are dropped first."""
_BASIS = {"n": "name", "u": "user", "s": "size", "a": "all"}
UNKNOWN = 3600.0
"""Assumed duration in seconds when no data exists."""


@dataclass(frozen=True, slots=True)
class DurationHistory:
    """Durations of past runs, the latest of each group; a plain value of bounded size."""

    groups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By user and name, or user and size; the most recently updated group comes last."""
    sizes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By size; the empty key holds all runs."""
    count: int = 0
    """Total number of recorded runs."""


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """Remaining duration of a run, in seconds."""

    low: float
    median: float
    high: float
    confidence: float
    """Probability that it lies between `low` and `high`."""
    basis: str
    """The group of runs that it is based on: `name`, `user`, `size`, `all`; or `limit` (the declared limit), `none`, or
    `service`, which never ends by itself."""


def record(history: DurationHistory, user: str, name: str, gpus: float, duration: float) -> DurationHistory:
    """Return the history with one more run that completed after `duration` seconds of running."""
    lasted = round(max(0.0, duration), 1)
    groups = dict(history.groups)
    for key in _keys(user, name, gpus):
        groups[key] = (*groups.pop(key, ()), lasted)[-KEPT_OF_A_NAME:]
    while len(groups) > MOST_GROUPS:
        del groups[next(iter(groups))]
    sizes = dict(history.sizes)
    for key in (_size(gpus), ""):
        sizes[key] = (*sizes.get(key, ()), lasted)[-KEPT_OF_ALL:]
    return DurationHistory(groups, sizes, history.count + 1)


def estimate(
    history: DurationHistory, user: str, name: str, gpus: float, limit: float | None, elapsed: float
) -> DurationEstimate:
    """Return the remaining duration of a run that has run for `elapsed` seconds and may run for `limit` in total."""
    basis, samples = _witnesses(history, user, name, gpus, elapsed)
    remaining_limit = None if limit is None else max(0.0, limit - elapsed)
    if not samples:
        if remaining_limit is not None:
            return DurationEstimate(0.0, remaining_limit / 2, remaining_limit, 1.0, "limit")
        guess = max(elapsed, UNKNOWN)
        return DurationEstimate(guess / 4, guess, 4 * guess, 0.0, "none")
    count = len(samples)
    inner = max(1, round(WANTED * (count + 1)))
    first = max(0, (count - 1 - inner) // 2)
    last = min(count - 1, first + inner)
    low, median, high = samples[first], _middle(samples), samples[last]
    confidence = (last - first) / (count + 1)
    if remaining_limit is not None and remaining_limit < high:
        # The run cannot outlast its limit, so no probability lies above it.
        low, median, high, confidence = (
            min(low, remaining_limit),
            min(median, remaining_limit),
            remaining_limit,
            (count - first) / (count + 1),
        )
    return DurationEstimate(low, median, high, round(confidence, 3), basis)


def is_known(history: DurationHistory, user: str, name: str, gpus: float, limit: float | None) -> bool:
    """Return whether there is any data on the run's duration: its own limit, or completed runs."""
    return limit is not None or bool(_witnesses(history, user, name, gpus, 0.0)[1])


def remaining(
    history: DurationHistory, user: str, name: str, gpus: float, limit: float | None, elapsed: float, part: float
) -> float:
    """Return the quantile `part` (0 to 1) of the run's remaining duration, for simulations of the future."""
    _, samples = _witnesses(history, user, name, gpus, elapsed)
    remaining_limit = max(0.0, limit - elapsed) if limit is not None else None
    if samples:
        sample = samples[min(len(samples) - 1, int(part * len(samples)))]
        return sample if remaining_limit is None else min(sample, remaining_limit)
    return remaining_limit * part if remaining_limit is not None else max(elapsed, UNKNOWN) * part / max(0.05, 1 - part)


def _witnesses(history: DurationHistory, user: str, name: str, gpus: float, elapsed: float) -> tuple[str, list[float]]:
    """Return the closest group with enough samples, and the sorted remaining durations of its runs beyond `elapsed`."""
    groups = [(key[0], history.groups.get(key, ())) for key in _keys(user, name, gpus)]
    groups += [("s", history.sizes.get(_size(gpus), ())), ("a", history.sizes.get("", ()))]
    fallback: tuple[str, list[float]] = ("none", [])
    for basis, group_durations in groups:
        remaining_durations = sorted(duration - elapsed for duration in group_durations if duration > elapsed)
        if len(remaining_durations) >= LEAST_WITNESSES:
            return _BASIS[basis], remaining_durations
        if len(remaining_durations) > len(fallback[1]):
            fallback = _BASIS[basis], remaining_durations
    return fallback


def _middle(sorted_values: list[float]) -> float:
    half = len(sorted_values) // 2
    return sorted_values[half] if len(sorted_values) % 2 else (sorted_values[half - 1] + sorted_values[half]) / 2


def _size(gpus: float) -> str:
    """Return the size class of a run: up to 0, 1, 2, 4, 8 ... GPUs."""
    bound = 1
    while bound < gpus:
        bound *= 2
    return str(bound) if gpus > 0 else "0"


def _keys(user: str, name: str, gpus: float) -> list[str]:
    """Return the group keys of a run, the closest first; the first letter is the kind. Without a name it has no name groups."""
    named = [f"n{user}/{name}/{_size(gpus)}", f"n{user}/{name}"] if name else []
    return [*named, *([f"u{user}/{_size(gpus)}"] if user else [])]
