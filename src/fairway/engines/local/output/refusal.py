"""Collects what was refused of one run: each kind is reported once, not for every line."""

from __future__ import annotations

from collections.abc import Iterable

from fairway.runtime.event_folder import AUTO, LOG, REPORT, TENSORBOARD
from fairway.runtime.number import Refuse

CHECKPOINT = "checkpoint"
_WORDS = {REPORT: "report", TENSORBOARD: "event file", LOG: "printed line", AUTO: "metric", CHECKPOINT: "checkpoint"}
_LONGEST = 500
"""Limit of characters of one message."""


class MetricRefusals:
    """Collects reasons until they are taken. Kinds are named in the code that reads, so that there are only a few."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        """Every kind reported so far."""
        self._new: list[str] = []

    def remember(self, kinds: Iterable[str]) -> None:
        """Treat these kinds as reported."""
        self.kinds.update(kinds)

    def of(self, source: str, task: str = "") -> Refuse:
        """Return a function that records reasons for one source of one task."""

        def refuse(kind: str, reason: str) -> None:
            self.add(source, kind, reason, task)

        return refuse

    def add(self, source: str, kind: str, reason: str, task: str = "") -> bool:
        """Record a reason; return whether it is the first of its kind."""
        name = f"{source}/{kind}"
        if name in self.kinds:
            return False
        self.kinds.add(name)
        by = f" ({task})" if task else ""
        self._new.append(f"{_WORDS.get(source, source)} refused: {reason[:_LONGEST]}{by}")
        return True

    def take(self) -> tuple[str, ...]:
        """Return the messages since the last call."""
        new, self._new = tuple(self._new), []
        return new
