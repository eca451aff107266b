"""What goes wrong with one request, with the status that says so."""

from __future__ import annotations

from fairway.errors import FairwayError


class RequestError(FairwayError):
    """The request gets this status and these words; nothing else is harmed."""

    code = "request"

    def __init__(
        self, status: int, message: str, *, fix: str = "", retry_after: float = 0.0, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.retry_after = retry_after
        """Seconds after which it may go better; 0: trying again does not help."""
        self.headers = headers

    @property
    def words(self) -> str:
        """The message and the fix in one line, as the protocols want it."""
        return f"{self.message}; {self.fix}" if self.fix else self.message


class ModelError(RequestError):
    """The model itself failed on an input: 400 when it says that the input is wrong, else 500."""


def bad(message: str, fix: str = "") -> RequestError:
    """A request that makes no sense."""
    return RequestError(400, message, fix=fix)
