"""A failure of Fairway's own work on one object. It affects only that object, is shown there, and is retried with back-off."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_RETRY = 1.0
"""Seconds until the first retry."""
LONGEST_RETRY = 60.0
"""Maximum seconds between two retries."""
LAPSE = 60.0
"""Seconds after a due retry after which a fault without a new attempt ends: the work that failed no longer exists."""
ANSWERING = "answer requests"
"""Work of a service that fails while its port refuses connections or does not answer."""
ROUTING = "route"
"""Work of a service that fails while its router does not follow the route plan or cannot listen on its address."""
CAUSE_LIMIT = 500
"""Maximum length of a stored cause, in characters."""


@dataclass(frozen=True, slots=True)
class WorkFault:
    """A piece of work on one object that keeps failing until its cause is removed."""

    subject: str
    """`default/mnist-7`, `service:default/mnist`, `queue:research`, `companion:samples`, `engine`, `store` or `scheduler`."""
    work: str
    """The work that fails: `observe`, `perform`, `store`, `plan`, `route` and the like."""
    cause: str
    since: float
    """Time of the first failure."""
    tries: int
    retry_at: float

    def stands(self, now: float) -> bool:
        """Return whether the fault is still current: it waits for its retry, or was retried just now."""
        return now <= self.retry_at + LAPSE

    @property
    def text(self) -> str:
        """The failing work and the cause, for people."""
        return f"{self.work} failed: {self.cause}"


def failed(before: WorkFault | None, subject: str, work: str, cause: str, now: float) -> WorkFault:
    """Return the fault after one more failure. The delay until the next try doubles up to a limit."""
    cause = cause if len(cause) <= CAUSE_LIMIT else f"{cause[:CAUSE_LIMIT]}..."
    if before is None:
        return WorkFault(subject, work, cause, now, 1, now + FIRST_RETRY)
    delay = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(before.tries, 16))
    return replace(before, cause=cause, tries=before.tries + 1, retry_at=now + delay)
