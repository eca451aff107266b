"""Errors of a single request, with their HTTP status."""

from __future__ import annotations

from fairway.errors import FairwayError


class RequestError(FairwayError):
    """The request gets this status and message; other requests are not affected."""

    code = "request"

    def __init__(
        self, status: int, message: str, *, fix: str = "", retry_after: float = 0.0, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; 0: retrying does not help."""
        self.headers = headers

    @property
    def words(self) -> str:
        """The message and the fix in one line, as the protocols require."""
        return f"{self.message}; {self.fix}" if self.fix else self.message


class ModelError(RequestError):
    """The model failed on an input: 400 when the model reports an invalid input, otherwise 500."""


def bad(message: str, fix: str = "") -> RequestError:
    """Return the error for an invalid request."""
    return RequestError(400, message, fix=fix)
