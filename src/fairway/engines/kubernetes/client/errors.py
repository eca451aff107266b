"""Failure responses of the API server, as exceptions.

    ApiError                            reason on the wire
    ├── NotFound          (NotFoundError)     NotFound
    ├── Conflict          (ConflictError)     Conflict: another client was faster, or a precondition does not hold
    │   └── AlreadyExists                     AlreadyExists
    ├── Gone              (ApiError)          Gone, Expired: a resourceVersion or a continuation is too old; list again
    ├── Forbidden         (DeniedError)       Forbidden: RBAC, quota, admission
    ├── Unauthorized      (DeniedError)       Unauthorized: the credentials are missing or not accepted
    ├── Invalid           (RefusedError)      Invalid: `causes` by field
    ├── BadRequest        (UsageError)        BadRequest and other requests that should not have been sent
    ├── TooManyRequests   (UnavailableError)  TooManyRequests: `retry_after`; for an eviction: a disruption budget
    ├── ServerTimeout     (UnavailableError)  ServerTimeout, Timeout
    ├── NotPermitted      (RefusedError)      none: this process may not write any more, such as a leader that was replaced
    └── Unavailable       (UnavailableError)  ServiceUnavailable, or no connection; `unknown` when it may have been done

The server's own message is kept. `asked` describes the request (`create Pod team/a`).
"""

from __future__ import annotations

import msgspec

from fairway.errors import (
    ConflictError,
    DeniedError,
    DocumentMistake,
    FairwayError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UsageError,
)


class StatusCause(msgspec.Struct, frozen=True, gc=False):
    """A single mistake: its field and a message."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The object that a status concerns."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, frozen=True, gc=False):
    """A response of the API server that is no object."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ApiError(FairwayError):
    """The API server did not fulfil a request."""

    code = "kubernetes"

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        asked: str = "",
        http: int = 0,
        reason: str = "",
        causes: tuple[StatusCause, ...] = (),
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message, fix=fix)
        self.asked = asked
        self.http = http
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after


class NotFound(ApiError, NotFoundError):
    """The object does not exist, or the kind is not known."""

    code, exit_code, status = NotFoundError.code, NotFoundError.exit_code, NotFoundError.status


class Conflict(ApiError, ConflictError):
    """Another client was faster, or a precondition does not hold."""

    code, exit_code, status = ConflictError.code, ConflictError.exit_code, ConflictError.status


class AlreadyExists(Conflict):
    """There is an object of this name already."""


class Gone(ApiError):
    """The version or continuation is too old; list again."""


class Forbidden(ApiError, DeniedError):
    """The caller lacks the permission, or a quota or an admission rule refuses the request."""

    code, exit_code, status = DeniedError.code, DeniedError.exit_code, DeniedError.status


class Unauthorized(ApiError, DeniedError):
    """The API server does not accept the credentials."""

    code, exit_code, status = DeniedError.code, DeniedError.exit_code, DeniedError.status


class Invalid(ApiError, RefusedError):
    """The object is invalid; `mistakes` has the details."""

    code, exit_code, status = "invalid", UsageError.exit_code, 422

    @property
    def mistakes(self) -> tuple[DocumentMistake, ...]:
        """What is wrong, by field."""
        return tuple(DocumentMistake(cause.message, path=cause.field) for cause in self.causes)


class BadRequest(ApiError, UsageError):
    """The API server cannot process the request."""

    code, exit_code, status = UsageError.code, UsageError.exit_code, UsageError.status


class TooManyRequests(ApiError, UnavailableError):
    """Retry after `retry_after` seconds. For an eviction it means that a disruption budget does not allow it now."""

    code, exit_code, status = UnavailableError.code, UnavailableError.exit_code, 429

    @property
    def disruption_budget(self) -> bool:
        """Whether a disruption budget is the cause, and not the load."""
        return any(cause.reason == "DisruptionBudget" for cause in self.causes)


class NotPermitted(ApiError, RefusedError):
    """This process may not write any more; nothing was sent."""

    code, exit_code, status = RefusedError.code, RefusedError.exit_code, RefusedError.status


class Unavailable(ApiError, UnavailableError):
    """The API server cannot be reached or is not ready. `unknown`: it may have fulfilled the request all the same."""

    code, exit_code, status = UnavailableError.code, UnavailableError.exit_code, UnavailableError.status
    unknown = False


class ServerTimeout(Unavailable):
    """The API server ran out of time; it may have fulfilled the request."""

    unknown = True


_BY_REASON: dict[str, type[ApiError]] = {
    "NotFound": NotFound,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Gone": Gone,
    "Expired": Gone,
    "Forbidden": Forbidden,
    "Unauthorized": Unauthorized,
    "Invalid": Invalid,
    "BadRequest": BadRequest,
    "TooManyRequests": TooManyRequests,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
    "ServiceUnavailable": Unavailable,
}
_BY_HTTP: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: BadRequest,
    409: Conflict,
    410: Gone,
    413: BadRequest,
    415: BadRequest,
    422: Invalid,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: ServerTimeout,
}
_FIXES: dict[type[ApiError], str] = {
    Unauthorized: "log in to the cluster again, or check the credentials of the context in the kubeconfig",
    Forbidden: "ask the administrator of the cluster for this permission (`kubectl auth can-i` tells what you have)",
    Unavailable: "check that the API server runs and that its address in the kubeconfig is right",
}

_status = msgspec.json.Decoder(ApiStatus)


def failure(asked: str, http: int, body: bytes, retry_after: str = "") -> ApiError:
    """Return the exception for an unsuccessful response."""
    try:
        status = _status.decode(body)
    except msgspec.DecodeError:  # from a proxy in between, not from the API server
        status = ApiStatus(message=body[:500].decode(errors="replace").strip())
    return from_status(asked, status, http, retry_after)


def from_status(asked: str, said: ApiStatus, http: int = 0, retry_after: str = "") -> ApiError:
    """Return the exception for a status, also for one in the middle of a watch."""
    http = http or said.code
    kind = _BY_REASON.get(said.reason) or _BY_HTTP.get(http, ApiError)
    details = said.details or StatusDetails()
    words = said.message or said.reason or "no reason is given"
    return kind(
        f"cannot {asked}: {words} (HTTP {http})" if http else f"cannot {asked}: {words}",
        fix=_fix(kind, words),
        asked=asked,
        http=http,
        reason=said.reason,
        causes=details.causes,
        retry_after=_seconds(retry_after) or float(details.retry_after_seconds),
    )


def unreachable(asked: str, server: str, why: str, *, unknown: bool) -> Unavailable:
    """Return the exception for a request without a response."""
    doubt = "; the request may have been executed" if unknown else ""
    error = Unavailable(f"cannot {asked}: {server} does not answer: {why}{doubt}", fix=_FIXES[Unavailable], asked=asked)
    error.unknown = unknown
    return error


def not_permitted(asked: str) -> NotPermitted:
    """Return the exception for a write that was not sent."""
    return NotPermitted(f"cannot {asked}: this process is not the leader any more", asked=asked)


def _fix(kind: type[ApiError], words: str) -> str:
    # A quota and an admission rule refuse with the same reason as RBAC; their own messages contain the fix.
    if kind is Forbidden and "cannot" not in words:
        return ""
    return _FIXES.get(kind, "")


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else 0.0
