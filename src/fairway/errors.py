"""The exceptions of Fairway.

    FairwayError                 exit  http   when
    ├── UsageError                 2   400    the command or request is invalid
    ├── SpecError                  2   422    a document is invalid; carries all mistakes at once
    ├── NotFoundError              3   404    the named object does not exist
    ├── UnavailableError           4   503    the engine cannot be reached, or is not ready
    ├── RefusedError               5   409    the request is valid, but was refused
    │   ├── ConflictError          5   409    it conflicts with the current state
    │   ├── DamagedError           5   409    stored content does not match its digest
    │   ├── NeverFitsError         5   409    no node could ever run it
    │   └── DeniedError            5   403    the caller lacks permission
    └── BugError                   1   500    an error in Fairway itself; please report it

Every message states what is wrong, with the value; `fix` states what to do next. This module imports nothing, so that every layer
may use it.
"""

from __future__ import annotations


class DocumentMistake:
    """One mistake in a document: its position, the value, what is wrong, and the fix."""

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
        """Return for example `job.yaml:7:12 roles.worker.replicas: "two" is not a number; write 2`."""
        position = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        head = " ".join(part for part in (position, self.path) if part)
        what = f"{self.value} {self.message}" if self.value else self.message
        text = f"{head}: {what}" if head else what
        return f"{text}; {self.fix}" if self.fix else text

    def as_dict(self) -> dict[str, object]:
        """Return the mistake as plain data, for the wire."""
        return {name: getattr(self, name) for name in sorted(self.__slots__)}


class FairwayError(Exception):
    """Base class. `code` is stable and sent over the wire; `exit_code` is the exit status of the command line."""

    code = "error"
    exit_code = 1
    status = 500

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        """Return the message, with the fix on its own line."""
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message

    def as_dict(self) -> dict[str, object]:
        """Return the error as plain data, for the wire."""
        return {"code": self.code, "message": self.message, "fix": self.fix}


class UsageError(FairwayError):
    """The command or the request is invalid."""

    code = "usage"
    exit_code = 2
    status = 400


class SpecError(FairwayError):
    """A document is invalid. Holds all mistakes found, not only the first."""

    code = "spec"
    exit_code = 2
    status = 422

    def __init__(self, mistakes: list[DocumentMistake] | tuple[DocumentMistake, ...]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    def as_dict(self) -> dict[str, object]:
        """Return the error with its mistakes, for the wire."""
        return {**super().as_dict(), "mistakes": [mistake.as_dict() for mistake in self.mistakes]}


class NotFoundError(FairwayError):
    """The named object does not exist."""

    code = "not_found"
    exit_code = 3
    status = 404


class UnavailableError(FairwayError):
    """The engine cannot be reached, or is not ready."""

    code = "unavailable"
    exit_code = 4
    status = 503


class RefusedError(FairwayError):
    """The request is valid, but was refused."""

    code = "refused"
    exit_code = 5
    status = 409


class ConflictError(RefusedError):
    """The request conflicts with the current state."""

    code = "conflict"


class DamagedError(RefusedError):
    """Stored content does not match its digest."""

    code = "damaged"


class NeverFitsError(RefusedError):
    """No known node could ever run it."""

    code = "never_fits"


class DeniedError(RefusedError):
    """The caller lacks permission."""

    code = "denied"
    status = 403


class BugError(FairwayError):
    """An error in Fairway itself."""

    code = "bug"


def from_wire(body: dict[str, object]) -> FairwayError:
    """Return the exception that `as_dict` described; an unknown code becomes a plain `FairwayError`."""
    if body.get("code") == SpecError.code:
        mistakes = body.get("mistakes")
        return SpecError([DocumentMistake(**entry) for entry in mistakes] if isinstance(mistakes, list) else [])
    code = str(body.get("code"))
    # The first match is the most general class: the result must not depend on which subclasses are loaded.
    kind = next((kind for kind in _all_kinds(FairwayError) if kind.code == code), FairwayError)
    return kind(str(body.get("message", "")), fix=str(body.get("fix", "")))


def _all_kinds(kind: type[FairwayError]) -> list[type[FairwayError]]:
    kinds = [kind]
    for child in kind.__subclasses__():
        kinds.extend(_all_kinds(child))
    return kinds
