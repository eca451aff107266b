"""When a supervisor sends which signal: the deadlines of a task's end. Standard library only.

It is told the time and never asks for it.
"""

from __future__ import annotations

LINGER = 0.3
"""Seconds in which what a finished process left behind may end by itself (trackers of shared memory do)."""
LINGER_AFTER_TERM = 0.7


class Stopping:
    """The way to the end: first SIGTERM, at last SIGKILL. Deadlines only ever come nearer."""

    def __init__(self) -> None:
        self.term_at: float | None = None
        self.kill_at: float | None = None

    @property
    def asked(self) -> bool:
        """Whether somebody asked for the end."""
        return self.kill_at is not None

    def within(self, now: float, grace: float) -> None:
        """SIGTERM now, SIGKILL after the grace."""
        self.term_at = now
        deadline = now + max(0.0, grace)
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)

    def alone(self, now: float) -> None:
        """The processes have ended; what they left behind gets a moment, unless the end was asked for before."""
        if not self.asked:
            self.term_at = now + LINGER
            self.kill_at = now + LINGER + LINGER_AFTER_TERM

    def must_term(self, now: float) -> bool:
        """Whether it is time for SIGTERM."""
        return self.term_at is not None and now >= self.term_at

    def must_kill(self, now: float) -> bool:
        """Whether it is time for SIGKILL."""
        return self.kill_at is not None and now >= self.kill_at

    def next(self, now: float) -> float | None:
        """The next moment at which something is due."""
        ahead = [at for at in (self.term_at, self.kill_at) if at is not None and at > now]
        return min(ahead) if ahead else None
