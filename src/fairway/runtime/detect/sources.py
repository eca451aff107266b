"""Which of the detected sources tells a metric. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

from collections.abc import Iterable

from fairway.runtime.detect.lines import key_of

EVENTS, TABLE, LINES, STATE = "events", "table", "lines", "state"
_ORDER = (EVENTS, TABLE, LINES, STATE)
"""The best first: those with steps and full precision before printed ones. A state comes late, and repeats what was printed."""


class Sources:
    """Keeps one source for each metric: once a better one has told it, the lesser ones are ignored for that metric."""

    def __init__(self, without: Iterable[str] = ()) -> None:
        """`without`: names, and `step`, that a stop condition asks for. What was only detected decides no such thing."""
        self._without = frozenset(without)
        self._owners: dict[str, int] = {}

    def kept(self, source: str, step: int | None, values: dict[str, float]) -> tuple[int | None, dict[str, float]]:
        """The step and the values that count."""
        rank = _ORDER.index(source)
        found = {}
        for name, value in values.items():
            key = key_of(name)
            if name not in self._without and self._owners.get(key, rank) >= rank:
                self._owners[key] = rank
                found[name] = value
        return None if "step" in self._without else step, found
