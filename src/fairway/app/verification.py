"""How far the verification of kept content is. One thread reads content, another asks how far it is and may stop it."""

from __future__ import annotations

from dataclasses import dataclass


class StoppedError(Exception):
    """The verification was stopped before its end."""


@dataclass(slots=True)
class Course:
    """Bytes that were read, of those to read."""

    done: int = 0
    total: int = 0
    stopped: bool = False

    def read(self, count: int) -> None:
        """So many bytes more. Raises `StoppedError` once it was stopped."""
        if self.stopped:
            raise StoppedError
        self.done += count
