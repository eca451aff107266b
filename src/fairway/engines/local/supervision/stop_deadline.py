"""Decides when a supervisor sends which signal: the deadlines of a task's end. Standard library only.

The present time is an argument; it is never read here.
"""

from __future__ import annotations

LINGER = 0.3
"""Seconds in which the leftovers of a finished process may end by themselves (trackers of shared memory do)."""
LINGER_AFTER_TERM = 0.7
LOOK_AGAIN = 0.1
"""Seconds between two checks whether a program still watches for stop requests."""
LAST_PART = 0.2
"""The part of the grace period left for SIGTERM when a program that watches for stop requests does not end."""
LAST_SECONDS = 5.0
"""The limit of that part, in seconds."""
INTERRUPT_HANDLING = 10.0
"""Seconds after a SIGINT in which SIGTERM is delayed, so that the program can finish handling the interrupt."""


class StopDeadlines:
    """The steps to the end: first SIGTERM, at last SIGKILL. Deadlines are only ever brought nearer."""

    def __init__(self) -> None:
        self.term_at: float | None = None
        self.kill_at: float | None = None
        self.patient = False
        """Whether SIGTERM waits for programs that were asked to stop."""
        self._handles_until = float("-inf")

    @property
    def asked(self) -> bool:
        """Whether the end was requested."""
        return self.kill_at is not None

    def within(self, now: float, grace: float, *, patient: bool = False, wanted: bool = False) -> None:
        """Schedule SIGKILL after the grace period, and SIGTERM now, or late in the period for a program that may end by itself.

        A stop that no user requested follows from the end of a peer: then SIGTERM is also delayed while an interrupt is handled.
        """
        deadline = now + max(0.0, grace)
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        latest = max(now, self.kill_at - min(LAST_SECONDS, grace * LAST_PART))
        term = latest if patient else now if wanted else min(latest, max(now, self._handles_until))
        self.term_at = term if self.term_at is None else min(self.term_at, term)
        self.patient = patient and self.term_at > now

    def interrupted(self, now: float) -> None:
        """Record that the processes got SIGINT."""
        self._handles_until = now + INTERRUPT_HANDLING

    def unheard(self, now: float) -> None:
        """Schedule SIGTERM shortly: no process watches for stop requests any more, and the others may still end by themselves."""
        self.patient = False
        if self.term_at is not None:
            self.term_at = min(self.term_at, max(now + LINGER, self._handles_until))

    def alone(self, now: float) -> None:
        """Schedule the end of leftovers after all processes have ended, unless the end was requested before."""
        self._handles_until = float("-inf")
        if self.asked:
            self.unheard(now)
        else:
            self.term_at = now + LINGER
            self.kill_at = now + LINGER + LINGER_AFTER_TERM

    def must_term(self, now: float) -> bool:
        """Return whether SIGTERM is due."""
        return self.term_at is not None and now >= self.term_at

    def must_kill(self, now: float) -> bool:
        """Return whether SIGKILL is due."""
        return self.kill_at is not None and now >= self.kill_at

    def next(self, now: float) -> float | None:
        """Return the next time at which something is due."""
        ahead = [at for at in (self.term_at, self.kill_at) if at is not None and at > now]
        if self.patient:
            ahead.append(now + LOOK_AGAIN)
        return min(ahead) if ahead else None
