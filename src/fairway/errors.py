"""The exceptions of Fairway.

    FairwayError                 exit  http   when
    ├── UsageError                 2   400    the command or request makes no sense
    ├── SpecError                  2   422    a document is wrong; carries every mistake at once
    ├── NotFoundError              3   404    the thing named does not exist
    ├── UnavailableError           4   503    the engine cannot be reached, or is not ready
    ├── RefusedError               5   409    understood, and not done
    │   ├── ConflictError          5   409    it clashes with what is there
    │   ├── NeverFitsError         5   409    no machine here could ever run it
    │   └── DeniedError            5   403    the caller may not
    └── BugError                   1   500    ours; please report it

Every message says what is wrong, with the value; `fix` says what to do next.
This module imports nothing, so that every layer may use it.
"""

from __future__ import annotations


class Mistake:
    """One thing wrong in a document: where, what was there, what is wrong, and the fix."""

    __slots__ = ("column", "file", "fix", "line", "message", "path", "value")

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        value: str = "",
        fix: str = "",
        file: str = "",
        line: int = 0,
        column: int = 0,
    ) -> None:
        self.message = message
        self.path = path
        self.value = value
        self.fix = fix
        self.file = file
        self.line = line
        self.column = column

    def __str__(self) -> str:
        """`job.yaml:7:12 roles.worker.replicas: "two" is not a number; write 2`."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        head = " ".join(part for part in (place, self.path) if part)
        what = f"{self.value} {self.message}" if self.value else self.message
        text = f"{head}: {what}" if head else what
        return f"{text}; {self.fix}" if self.fix else text

    def as_dict(self) -> dict[str, object]:
        """The mistake as plain data, for the wire."""
        return {name: getattr(self, name) for name in sorted(self.__slots__)}


class FairwayError(Exception):
    """The root. `code` is stable and goes over the wire; `exit_code` is what the command line returns."""

    code = "error"
    exit_code = 1
    status = 500

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        """The message, and the fix on its own line."""
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message

    def as_dict(self) -> dict[str, object]:
        """The error as plain data, for the wire."""
        return {"code": self.code, "message": self.message, "fix": self.fix}


class UsageError(FairwayError):
    """The command or the request makes no sense."""

    code = "usage"
    exit_code = 2
    status = 400


class SpecError(FairwayError):
    """A document is wrong. Holds every mistake found, never only the first."""

    code = "spec"
    exit_code = 2
    status = 422

    def __init__(self, mistakes: list[Mistake] | tuple[Mistake, ...]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    def as_dict(self) -> dict[str, object]:
        """The error with its mistakes, for the wire."""
        return {**super().as_dict(), "mistakes": [mistake.as_dict() for mistake in self.mistakes]}


class NotFoundError(FairwayError):
    """The thing named does not exist."""

    code = "not_found"
    exit_code = 3
    status = 404


class UnavailableError(FairwayError):
    """The engine cannot be reached, or is not ready."""

    code = "unavailable"
    exit_code = 4
    status = 503


class RefusedError(FairwayError):
    """Understood, and not done."""

    code = "refused"
    exit_code = 5
    status = 409


class ConflictError(RefusedError):
    """It clashes with what is there already."""

    code = "conflict"


class DamagedError(RefusedError):
    """Content that was kept is not what its digest says."""

    code = "damaged"


class NeverFitsError(RefusedError):
    """No machine known here could ever run it."""

    code = "never_fits"


class DeniedError(RefusedError):
    """The caller may not do this."""

    code = "denied"
    status = 403


class BugError(FairwayError):
    """Something in Fairway itself is wrong."""

    code = "bug"


def from_wire(body: dict[str, object]) -> FairwayError:
    """The exception that `as_dict` described; an unknown code becomes a plain `FairwayError`."""
    if body.get("code") == SpecError.code:
        given = body.get("mistakes")
        return SpecError([Mistake(**entry) for entry in given] if isinstance(given, list) else [])
    code = str(body.get("code"))
    # The first is the most general: what is loaded of narrower ones must not matter.
    kind = next((kind for kind in _all_kinds(FairwayError) if kind.code == code), FairwayError)
    return kind(str(body.get("message", "")), fix=str(body.get("fix", "")))


def _all_kinds(kind: type[FairwayError]) -> list[type[FairwayError]]:
    found = [kind]
    for child in kind.__subclasses__():
        found.extend(_all_kinds(child))
    return found
