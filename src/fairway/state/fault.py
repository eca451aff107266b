"""A failure of Fairway's own work on one object. It is contained there: shown on the object, and retried with back-off."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_RETRY = 1.0
"""Seconds until the first retry."""
LONGEST_RETRY = 60.0
"""Seconds between two retries at most."""
LAPSE = 60.0
"""Seconds after a due retry in which it must have been tried; otherwise nothing is left that fails, and the fault ends."""
ANSWERING = "answer requests"
"""The work of a service that fails while its port refuses connections or gives no answer."""
ROUTING = "route"
"""The work of a service that fails while its router does not follow its routes, or cannot listen where it should."""
CAUSE_LIMIT = 500
"""Characters of a cause that are kept."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One piece of work on one object that fails until its cause is gone."""

    subject: str
    """`default/mnist-7`, `service:default/mnist`, `queue:research`, `companion:samples`, `engine`, `store` or `scheduler`."""
    work: str
    """What fails: `observe`, `perform`, `store`, `plan`, `route` and the like."""
    cause: str
    since: float
    """When it failed first."""
    tries: int
    retry_at: float

    def stands(self, now: float) -> bool:
        """Whether it still says something of the object: it waits for its retry, or was tried just now."""
        return now <= self.retry_at + LAPSE

    @property
    def text(self) -> str:
        """What fails and why, for people."""
        return f"{self.work} failed: {self.cause}"


def failed(before: Fault | None, subject: str, work: str, cause: str, now: float) -> Fault:
    """The fault after one more failure: the delay until the next try doubles up to a limit."""
    cause = cause if len(cause) <= CAUSE_LIMIT else f"{cause[:CAUSE_LIMIT]}..."
    if before is None:
        return Fault(subject, work, cause, now, 1, now + FIRST_RETRY)
    delay = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(before.tries, 16))
    return replace(before, cause=cause, tries=before.tries + 1, retry_at=now + delay)
