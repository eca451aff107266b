"""All routes as one ASGI application, behind a gate that rejects requests without a valid token."""

from __future__ import annotations

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairway.api.http.error import describe
from fairway.api.mlflow.artifact import ArtifactRoutes
from fairway.api.mlflow.experiment import ExperimentRoutes
from fairway.api.mlflow.logged_model import LoggedModelRoutes
from fairway.api.mlflow.metric import MetricHistoryRoutes
from fairway.api.mlflow.registry.model import RegisteredModelRoutes
from fairway.api.mlflow.registry.version import ModelVersionRoutes
from fairway.api.mlflow.response import answer
from fairway.api.mlflow.route import Handler
from fairway.api.mlflow.run import TrackedRunRoutes
from fairway.api.mlflow.token import speaker_of
from fairway.api.mlflow.unsupported import unavailable
from fairway.app.tracking.model import TrackedModelUseCases
from fairway.app.tracking.model_version import TrackedVersionUseCases
from fairway.app.tracking.run import TokenCaller
from fairway.errors import BugError, ConflictError, DeniedError, FairwayError, NotFoundError, UnavailableError

ROOTS = ("/api/2.0", "/ajax-api/2.0", "/api/3.0", "/ajax-api/3.0")
_CODES: tuple[tuple[type[FairwayError], str, int], ...] = (
    (NotFoundError, "RESOURCE_DOES_NOT_EXIST", 404),
    (ConflictError, "RESOURCE_ALREADY_EXISTS", 400),
    (DeniedError, "PERMISSION_DENIED", 403),
    (UnavailableError, "TEMPORARILY_UNAVAILABLE", 503),
    (BugError, "INTERNAL_ERROR", 500),
    (FairwayError, "INVALID_PARAMETER_VALUE", 400),
)


def make_mlflow(models: TrackedModelUseCases, secret: bytes, is_there: Callable[[TokenCaller], bool]) -> ASGIApp:
    """Build the application. `is_there` returns whether the caller still exists: the token of a deleted run is rejected."""
    routes: list[BaseRoute] = [
        Route(f"{root}/{path}", handler, methods=[method])
        for root in ROOTS
        for (method, path), handler in all_routes(models).items()
    ]
    return TokenGate(Router(routes, redirect_slashes=False, default=_nothing_here), secret, is_there)


def all_routes(models: TrackedModelUseCases) -> dict[tuple[str, str], Handler]:
    """Return every route by method and path below `/api/2.0/`. A test checks the permissions of a run's token against a table."""
    tracking = models.tracking
    changes = TrackedVersionUseCases(models, models.registry)
    tables = (
        ExperimentRoutes(tracking).routes(),
        TrackedRunRoutes(models).routes(),
        MetricHistoryRoutes(tracking).routes(),
        LoggedModelRoutes(models).routes(),
        RegisteredModelRoutes(models, changes).routes(),
        ModelVersionRoutes(models, changes).routes(),
    )
    routes: dict[tuple[str, str], Handler] = {
        (method, f"mlflow/{path}"): handler for table in tables for (method, path), handler in table.items()
    }
    return routes | ArtifactRoutes(models).routes()


class TokenGate:
    """Wraps all routes: authenticates the caller, and reports errors in the format of the protocol."""

    def __init__(self, app: ASGIApp, secret: bytes, is_there: Callable[[TokenCaller], bool]) -> None:
        self._app = app
        self._secret = secret
        self._is_there = is_there

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        caller = self._speaker(scope)
        if caller is None:
            await _told("UNAUTHENTICATED", "the token is missing or was not issued by this Fairway", 401)(scope, receive, send)
            return
        scope["fairway.speaker"] = caller
        scope["app"] = self  # Routes raise for a wrong method only if the scope contains an application.
        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            return
        except Exception as problem:  # Whatever it is, the client gets a response and the daemon continues.
            if begun:
                raise
            await _answer_to(problem, scope)(scope, receive, send)

    def _speaker(self, scope: Scope) -> TokenCaller | None:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, token = header.decode("latin-1").partition(" ")
        speaker = speaker_of(self._secret, token.strip()) if kind.lower() == "bearer" else None
        return speaker if speaker is not None and self._is_there(speaker) else None


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if not await unavailable(scope, receive, send):
        raise HTTPException(404)


def _answer_to(problem: Exception, scope: Scope) -> ASGIApp:
    if isinstance(problem, HTTPException):
        return _told("ENDPOINT_NOT_FOUND", f"there is nothing at {scope['method']} {scope['path']}", 404)
    error = describe(problem)
    code, status = next((code, status) for kind, code, status in _CODES if isinstance(error, kind))
    return _told(code, f"{error.message}; {error.fix}" if error.fix else error.message, status)


def _told(code: str, message: str, status: int) -> ASGIApp:
    return answer({"error_code": code, "message": message}, status)
