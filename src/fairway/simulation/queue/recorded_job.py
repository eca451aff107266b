"""One job of a recorded queue."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.state.queue import DEFAULT_QUEUE


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """The request of a job, its time of submission, and how long it ran."""

    submitted: float
    gpus: int
    duration: float
    """Required run time in seconds. Only policies called oracles may use it."""
    name: str = ""
    user: str = ""
    queue: str = DEFAULT_QUEUE
    """Queue of the job; only the production scheduler uses it."""
