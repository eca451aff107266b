"""The API behind a cluster's API server: the daemon's own routes, for callers authenticated by the API server.

`/apis/record.fairway.dev/v1alpha1/namespaces/NS/REST` is `/v1/REST` in that namespace and in no other. Discovery requests of the
API server are answered here. Only the API server identifies the caller: see `FrontProxy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fairway.api.http.error import ErrorMiddleware
from fairway.api.http.response import json_answer
from fairway.app.upload import Held
from fairway.engines.kubernetes.annotation import BLOB
from fairway.engines.kubernetes.identity.caller import CALLER, ClusterCaller
from fairway.engines.kubernetes.record import resource as record_resource
from fairway.engines.kubernetes.record.code_upload import CodeUploads
from fairway.engines.kubernetes.record.front_proxy import FrontProxy
from fairway.engines.kubernetes.record.upload import UploadReceiver
from fairway.errors import DeniedError, NotFoundError, UsageError

CODE = "code"
BLOBS = "blobs"
_DISCOVERY = {
    "/apis": record_resource.groups,
    f"/apis/{record_resource.GROUP}": record_resource.group,
    record_resource.ROOT: record_resource.resources,
}
_EVERYWHERE = ("jobs", "services", "top")
"""Resources that may be listed in all namespaces at once, by callers who may list them in the whole cluster."""


class UploadRights(Protocol):
    """Records which users have uploaded which content."""

    async def held(self, caller: ClusterCaller, namespace: str) -> Held:
        """Return which content a caller need not upload to a namespace."""
        ...

    def note_code(self, caller: ClusterCaller, namespace: str, digest: str) -> None:
        """Record that a caller has uploaded code to a namespace."""
        ...


class AggregatedApi:
    """An ASGI application in front of the daemon's."""

    def __init__(
        self, api: ASGIApp, codes: CodeUploads, uploads: UploadReceiver, rights: UploadRights, front: Callable[[], FrontProxy]
    ) -> None:
        self._api = api
        self._codes = codes
        self._uploads = uploads
        self._rights = rights
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path = str(scope["path"]).rstrip("/")
        if path in _DISCOVERY:
            await json_answer(_DISCOVERY[path]())(scope, receive, send)
            return
        if not path.startswith(f"{record_resource.ROOT}/"):
            # For example /openapi: there is none, and the API server expects a 404 then.
            await Response(status_code=404)(scope, receive, send)
            return
        caller = self._front().caller(scope["headers"])
        if caller is None:
            message = "the request does not name its user"
            raise DeniedError(message, fix="send the request through the API server")
        CALLER.set(caller)
        namespace, rest = _split(path.removeprefix(f"{record_resource.ROOT}/"))
        _check(scope["method"], rest)
        if rest == [CODE]:
            await self._keep(caller, namespace, scope, receive, send)
            return
        if rest == [BLOBS]:
            held = await self._rights.held(caller, namespace)
            progress = await self._uploads.take(Request(scope, receive).stream(), caller.user, held)
            await json_answer({"standing": progress})(scope, receive, send)
            return
        await self._api(_inner(scope, namespace, rest), receive, send)

    async def _keep(self, caller: ClusterCaller, namespace: str, scope: Scope, receive: Receive, send: Send) -> None:
        digest = await self._codes.keep(Request(scope, receive).stream(), caller.user)
        self._rights.note_code(caller, namespace, digest.removeprefix(BLOB))
        await json_answer({"code": digest}, 201)(scope, receive, send)


def make_aggregated(
    api: ASGIApp, codes: CodeUploads, uploads: UploadReceiver, rights: UploadRights, front: Callable[[], FrontProxy], version: str
) -> ASGIApp:
    """Build the whole application, with the same error format as the daemon's API."""
    return ErrorMiddleware(AggregatedApi(api, codes, uploads, rights, front), version)


def _split(rest: str) -> tuple[str, list[str]]:
    """Return the namespace (`*` for all) and the path within it."""
    words = rest.split("/")
    if words[0] != "namespaces":
        return "*", words
    if len(words) < 3 or not words[1]:
        message = f"{rest} names no resource in a namespace"
        raise NotFoundError(message, fix=f"request {record_resource.ROOT}/namespaces/NAME/jobs")
    return words[1], words[2:]


def _check(method: str, rest: list[str]) -> None:
    """Reject any request that the table of resources does not contain, whatever routes exist."""
    resource, subresource = rest[0], rest[2] if len(rest) > 2 else ""
    if resource in ("", "namespaces") or not record_resource.meaning(resource, subresource, method):
        message = f"{method} {'/'.join(rest)} is not possible on a cluster"
        raise UsageError(message, fix="use a local daemon (`fairway use local`), or the cluster's own tools")


def _inner(scope: Scope, namespace: str, rest: list[str]) -> Scope:
    """Translate the request to the daemon's routes."""
    query = [(name, value) for name, value in parse_qsl(scope["query_string"].decode(), keep_blank_values=True)]
    watched = any(name == "watch" for name, _ in query)
    query = [(name, value) for name, value in query if name not in ("namespace", "watch", "within")]
    if namespace == "*" and rest[0] not in _EVERYWHERE:
        message = f"{rest[0]} can be requested only within one namespace"
        raise UsageError(message, fix=f"request {record_resource.ROOT}/namespaces/NAME/{rest[0]}")
    query.append(("namespace", namespace))
    if rest[0] == "events":
        query.append(("within", namespace))
    path = _route(rest, watched=watched)
    return {**scope, "path": path, "raw_path": path.encode(), "query_string": urlencode(query).encode()}


def _route(rest: list[str], *, watched: bool) -> str:
    """Map `jobs/NAME/log` to `logs` or, if `watched`, to `watch`: the API server allows long responses only for logs.

    For the same reason the content of a dataset and the verification of a model or a dataset are logs too.
    """
    match rest:
        case ["jobs", name, "log"]:
            return f"/v1/jobs/{name}/{'watch' if watched else 'logs'}"
        case ["services", name, "log"]:
            return f"/v1/services/{name}/logs"
        case ["models", name, "log"]:
            return f"/v1/models/{name}/verify"
        case ["datasets", name, "log"] if watched:
            return f"/v1/datasets/{name}/verify"
        case ["datasets", name, "log"]:
            return f"/v1/datasets/{name}/content"
        case ["jobs", name, "top"]:
            return f"/v1/top/jobs/{name}"
        case _:
            return f"/v1/{'/'.join(rest)}"
