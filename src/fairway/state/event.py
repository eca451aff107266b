"""Events: a record for people of what happened. Never the source of truth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of one subject."""

    time: float
    subject: str
    """`default/mnist-7` or `default/mnist-7/worker-0#1`."""
    reason: str
    """Machine-readable reason: `Submitted`, `Placed`, `Restarting` ..."""
    message: str

    @property
    def run(self) -> str:
        """The run of the subject: `default/mnist-7` for `default/mnist-7/worker-0#1`."""
        return "/".join(self.subject.split("/", 2)[:2])
