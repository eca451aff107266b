"""Detects stray pods, which no run observes. Pure.

The last write of an operator that died may arrive after its successor has listed the pods.
"""

from __future__ import annotations

from collections.abc import Collection

from fairway.state.task import TaskKey

PATIENCE = 10.0
"""Seconds until an unobserved pod counts as stray.

A gang that could not be created completely is created again after one second, and adopts the existing pods.
"""


class StrayPods:
    """Pods that have appeared recently, until their tasks are observed."""

    def __init__(self) -> None:
        self._came: dict[TaskKey, float] = {}

    def came(self, key: TaskKey | None, now: float) -> None:
        """Record that the pod of a task has appeared; None: of a pod that is no task."""
        if key is not None:
            self._came[key] = now

    def found(self, asked: Collection[TaskKey], now: float) -> set[TaskKey]:
        """Return the tasks that were not observed in time; each is returned once."""
        for key in [key for key in self._came if key in asked]:
            del self._came[key]
        late = {key for key, since in self._came.items() if now - since >= PATIENCE}
        for key in late:
            del self._came[key]
        return late
