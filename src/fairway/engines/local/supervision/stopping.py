"""When a supervisor sends which signal: the deadlines of a task's end. Standard library only.

It is told the time and never asks for it.
"""

from __future__ import annotations

LINGER = 0.3
"""Seconds in which what a finished process left behind may end by itself (trackers of shared memory do)."""
LINGER_AFTER_TERM = 0.7
LOOK_AGAIN = 0.1
"""Seconds between two looks whether a program still listens."""
LAST_PART = 0.2
"""The part of the grace that is left for SIGTERM when a program that listens does not end."""
LAST_SECONDS = 5.0
"""At most so many seconds of it."""
INTERRUPT_HANDLING = 10.0
"""Seconds after a SIGINT in which SIGTERM waits, so that the program can handle the interrupt to its end."""


class Stopping:
    """The way to the end: first SIGTERM, at last SIGKILL. Deadlines only ever come nearer."""

    def __init__(self) -> None:
        self.term_at: float | None = None
        self.kill_at: float | None = None
        self.patient = False
        """Whether SIGTERM waits for programs that were asked to end."""
        self._handles_until = float("-inf")

    @property
    def asked(self) -> bool:
        """Whether somebody asked for the end."""
        return self.kill_at is not None

    def within(self, now: float, grace: float, *, patient: bool = False, wanted: bool = False) -> None:
        """SIGKILL after the grace. SIGTERM now, or near the end of the grace when a program listens and may end by itself.

        A stop that no person wanted follows from the end of a peer: then SIGTERM also waits while an interrupt is handled.
        """
        deadline = now + max(0.0, grace)
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        latest = max(now, self.kill_at - min(LAST_SECONDS, grace * LAST_PART))
        term = latest if patient else now if wanted else min(latest, max(now, self._handles_until))
        self.term_at = term if self.term_at is None else min(self.term_at, term)
        self.patient = patient and self.term_at > now

    def interrupted(self, now: float) -> None:
        """The processes got SIGINT."""
        self._handles_until = now + INTERRUPT_HANDLING

    def unheard(self, now: float) -> None:
        """No process listens any more: what is left gets a moment to end by itself, then SIGTERM."""
        self.patient = False
        if self.term_at is not None:
            self.term_at = min(self.term_at, max(now + LINGER, self._handles_until))

    def alone(self, now: float) -> None:
        """The processes have ended; what they left behind gets a moment, unless the end was asked for before."""
        self._handles_until = float("-inf")
        if self.asked:
            self.unheard(now)
        else:
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
        if self.patient:
            ahead.append(now + LOOK_AGAIN)
        return min(ahead) if ahead else None
