"""Tracks gangs of which only some pods are bound: the binder ended midway, or other pods took the remaining room. Pure.

The other pods are placed as soon as there is room. After a timeout the gang is rolled back as a whole: half a gang is of no use.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod, condition
from fairway.engines.kubernetes.scheduler.gang import GangPod
from fairway.engines.kubernetes.timestamp import seconds
from fairway.state.job import JobKey

HALF_TIMEOUT = 30.0
"""Seconds that a gang may be half bound."""


class HalfBoundGangs:
    """The half bound gangs, and since when."""

    def __init__(self) -> None:
        self._since: dict[JobKey, float] = {}
        self._bound: dict[JobKey, tuple[Pod, ...]] = {}

    def look(self, key: JobKey, members: Sequence[GangPod], now: float) -> None:
        """Update the state of a gang from its present pods."""
        bound = _half(members) if len(members) > 1 else ()
        if bound:
            self._since.setdefault(key, now)
            self._bound[key] = bound
        elif key in self._since:
            del self._since[key], self._bound[key]

    def overdue(self, now: float) -> list[tuple[Pod, ...]]:
        """Return the bound pods of gangs that have been half bound for too long; each is reported once per timeout."""
        late = [key for key, since in self._since.items() if now - since >= HALF_TIMEOUT]
        for key in late:
            self._since[key] = now
        return [self._bound[key] for key in late]

    def next(self) -> float | None:
        """Return when the next gang is overdue."""
        return min(self._since.values()) + HALF_TIMEOUT if self._since else None


def _half(members: Sequence[GangPod]) -> tuple[Pod, ...]:
    """Return the bound pods that were created together with waiting ones."""
    # This includes pods with an assumed place: the API server may reject their bindings for ever.
    waiting = [member.pod for member in members if not member.pod.spec.node_name]
    bound = [member.pod for member in members if member.pod.spec.node_name] if waiting else []
    return tuple(
        pod
        for pod in bound
        if any(_made(pod) == _made(waiting_pod) and not _came_later(waiting_pod, pod) for waiting_pod in waiting)
    )


def _came_later(one: Pod, bound: Pod) -> bool:
    """Return whether the pod was created when the other was bound already: it replaces one that has ended."""
    scheduled = condition(bound.status.conditions, "PodScheduled")
    since = seconds(scheduled.last_transition_time) if scheduled is not None else None
    created = seconds(one.metadata.creation_timestamp)
    return since is not None and created is not None and created > since


def _made(pod: Pod) -> tuple[str, str]:
    """Return a key that is equal for pods that start together. A pod that restarts alone has an attempt of its own."""
    return pod.metadata.annotations.get(annotation.GANG, pod.metadata.uid), pod.metadata.labels.get(annotation.ATTEMPT, "")
