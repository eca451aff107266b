"""Choice of the source for each detected metric. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

from collections.abc import Iterable

from fairway.runtime.metric_detection.log_line import key_of

EVENTS, TABLE, LINES, STATE = "events", "table", "lines", "state"
_ORDER = (EVENTS, TABLE, LINES, STATE)
"""Best source first: sources with steps and full precision come before printed ones. A state file comes late, and repeats what
was printed."""


class MetricSourceChoice:
    """Keeps one source for each metric: once a better source has provided a metric, the lesser ones are ignored for it."""

    def __init__(self, without: Iterable[str] = ()) -> None:
        """`without`: metric names (or `step`) used by a stop condition. Detected values never decide a stop condition."""
        self._without = frozenset(without)
        self._owners: dict[str, int] = {}

    def kept(self, source: str, step: int | None, values: dict[str, float]) -> tuple[int | None, dict[str, float]]:
        """Return the step and the values that count."""
        rank = _ORDER.index(source)
        accepted = {}
        for name, value in values.items():
            key = key_of(name)
            if name not in self._without and self._owners.get(key, rank) >= rank:
                self._owners[key] = rank
                accepted[name] = value
        return None if "step" in self._without else step, accepted
