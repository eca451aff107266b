"""Gangs of which only some pods are bound: whoever bound them ended in between, or others took the rest of the room. Pure.

The rest is placed as soon as there is room. After a time the gang is taken back whole: half of one helps nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.objects import Pod, condition
from fairway.engines.kubernetes.scheduler.gangs import Member
from fairway.engines.kubernetes.times import seconds
from fairway.state.job import JobKey

HALF_TIMEOUT = 30.0
"""Seconds that a gang may be half bound."""


class Halves:
    """Which gangs are half bound, and since when."""

    def __init__(self) -> None:
        self._since: dict[JobKey, float] = {}
        self._bound: dict[JobKey, tuple[Pod, ...]] = {}

    def look(self, key: JobKey, members: Sequence[Member], now: float) -> None:
        """These are the pods of a gang now."""
        bound = _half(members) if len(members) > 1 else ()
        if bound:
            self._since.setdefault(key, now)
            self._bound[key] = bound
        elif key in self._since:
            del self._since[key], self._bound[key]

    def overdue(self, now: float) -> list[tuple[Pod, ...]]:
        """The bound pods of gangs that have been half bound for too long; each is told once a time."""
        late = [key for key, since in self._since.items() if now - since >= HALF_TIMEOUT]
        for key in late:
            self._since[key] = now
        return [self._bound[key] for key in late]

    def next(self) -> float | None:
        """When to look again."""
        return min(self._since.values()) + HALF_TIMEOUT if self._since else None


def _half(members: Sequence[Member]) -> tuple[Pod, ...]:
    """The bound pods that were made together with others that wait."""
    # Also those that have a place in mind: who refuses a binding may do so for ever.
    waiting = [member.pod for member in members if not member.pod.spec.node_name]
    bound = [member.pod for member in members if member.pod.spec.node_name] if waiting else []
    return tuple(pod for pod in bound if any(_made(pod) == _made(one) and not _came_later(one, pod) for one in waiting))


def _came_later(one: Pod, bound: Pod) -> bool:
    """Whether it was made when the other was bound already: it takes the place of one that has ended."""
    told = condition(bound.status.conditions, "PodScheduled")
    since = seconds(told.last_transition_time) if told is not None else None
    made = seconds(one.metadata.creation_timestamp)
    return since is not None and made is not None and made > since


def _made(pod: Pod) -> tuple[str, str]:
    """Equal for pods that start together. One that starts again while its peers go on has an attempt of its own."""
    return pod.metadata.annotations.get(marks.GANG, pod.metadata.uid), pod.metadata.labels.get(marks.ATTEMPT, "")
