"""Errors on the wire: a status, and `{"error": {...}}`.

Any exception other than `FairwayError` is a bug in Fairway and gets a reference into the log.
"""

from __future__ import annotations

import logging
import secrets

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairway.errors import BugError, FairwayError, NotFoundError, UsageError
from fairway.views.text.output_format import to_json

log = logging.getLogger("fairway.api")


def describe(problem: Exception) -> FairwayError:
    """Return the error to send. An unexpected exception is logged with its traceback under a reference sent to the caller."""
    if isinstance(problem, FairwayError):
        return problem
    reference = secrets.token_hex(4)
    log.error("unexpected error %s", reference, exc_info=problem)
    message = f"something in Fairway itself went wrong ({type(problem).__name__}, reference {reference})"
    return BugError(message, fix=f"look for {reference} in the daemon's log, and please report it")


def error_body(problem: FairwayError) -> bytes:
    """Return the body of an error response."""
    return to_json({"error": problem.as_dict()})


class ErrorMiddleware:
    """Wraps all routes: turns exceptions into responses, and adds the daemon's version and key support to all responses.

    If the response has already begun, the connection is closed.
    """

    def __init__(self, app: ASGIApp, version: str) -> None:
        self._app = app
        # The second header means: requests with a key are executed once, so that a client may repeat one after a lost response.
        self._headers = [(b"fairway-version", version.encode()), (b"fairway-keys", b"1")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": [*message["headers"], *self._headers]}
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            return
        except Exception as problem:  # Whatever it is, the caller gets a response and the daemon continues.
            error = describe(_from_router(problem, scope))
            if begun:
                raise error from problem
            await _send(error, problem, noting)


def _from_router(problem: Exception, scope: Scope) -> Exception:
    if not isinstance(problem, HTTPException):
        return problem
    request_line = f"{scope['method']} {scope['path']}"
    if problem.status_code == 405:
        return UsageError(
            f"{request_line} is not possible", fix="the command and the daemon may differ in version; see: fairway daemon status"
        )
    return NotFoundError(
        f"there is nothing at {request_line}", fix="the command and the daemon may differ in version; see: fairway daemon status"
    )


async def _send(told: FairwayError, problem: Exception, send: Send) -> None:
    status = problem.status_code if isinstance(problem, HTTPException) else told.status
    body = error_body(told)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
