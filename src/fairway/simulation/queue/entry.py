"""One job of a recorded queue."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.state.queue import DEFAULT_QUEUE


@dataclass(frozen=True, slots=True)
class Entry:
    """What was asked, when, and how long it took."""

    submitted: float
    gpus: int
    duration: float
    """Seconds of running that it needs. Only policies called oracles may look at it."""
    name: str = ""
    user: str = ""
    queue: str = DEFAULT_QUEUE
    """Only the scheduler itself knows of queues."""
