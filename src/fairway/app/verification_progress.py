"""Progress of the verification of stored content. One thread reads content, another reads the progress and may stop it."""

from __future__ import annotations

from dataclasses import dataclass


class VerificationStoppedError(Exception):
    """The verification was stopped before its end."""


@dataclass(slots=True)
class VerificationProgress:
    """Number of bytes read, and to be read."""

    done: int = 0
    total: int = 0
    stopped: bool = False

    def read(self, count: int) -> None:
        """Add to the number of bytes read. Raises `VerificationStoppedError` if the verification was stopped."""
        if self.stopped:
            raise VerificationStoppedError
        self.done += count
