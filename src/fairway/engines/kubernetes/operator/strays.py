"""Pods that came and that nobody asks for: the last write of an operator that died may be done after the next looked. Pure."""

from __future__ import annotations

from collections.abc import Collection

from fairway.state.task import TaskKey

PATIENCE = 10.0
"""Seconds until one counts as such: a gang that could not be made whole is made again after one, and takes what is there."""


class Strays:
    """Pods that have come lately, until they are asked for."""

    def __init__(self) -> None:
        self._came: dict[TaskKey, float] = {}

    def came(self, key: TaskKey | None, now: float) -> None:
        """The pod of a task is there; None: of nobody's task."""
        if key is not None:
            self._came[key] = now

    def found(self, asked: Collection[TaskKey], now: float) -> set[TaskKey]:
        """Those that nobody asked for in time; each is told once."""
        for key in [key for key in self._came if key in asked]:
            del self._came[key]
        late = {key for key, since in self._came.items() if now - since >= PATIENCE}
        for key in late:
            del self._came[key]
        return late
