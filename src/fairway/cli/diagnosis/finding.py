"""A finding of `fairway doctor`."""

from __future__ import annotations

OK, WARNING, PROBLEM = "ok", "warning", "problem"


class DoctorFinding:
    """The name of a check, its state, a text and the fix."""

    def __init__(self, name: str, state: str, text: str, fix: str = "") -> None:
        self.name = name
        self.state = state
        self.text = text
        self.fix = fix

    def as_dict(self) -> dict[str, str]:
        """Return the fields as a dictionary, for JSON output."""
        return {"name": self.name, "state": self.state, "text": self.text, "fix": self.fix}
