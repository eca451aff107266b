"""One thing that `fairway doctor` looked at."""

from __future__ import annotations

OK, WARNING, PROBLEM = "ok", "warning", "problem"


class Finding:
    """What was looked at, how it is, and the fix."""

    def __init__(self, name: str, state: str, text: str, fix: str = "") -> None:
        self.name = name
        self.state = state
        self.text = text
        self.fix = fix

    def as_dict(self) -> dict[str, str]:
        """For programs."""
        return {"name": self.name, "state": self.state, "text": self.text, "fix": self.fix}
