"""Requests to Fairway on a cluster: the same as to the daemon, sent over TLS to the API server as the caller's own user.

`/v1/REST` in a namespace is `/apis/record.fairway.dev/v1alpha1/namespaces/NS/REST` there. The API server authenticates and
authorizes the caller; its refusals are reported with its own messages.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fairway.engines.kubernetes.client import kubeconfig as client_kubeconfig
from fairway.engines.kubernetes.client.identity import ClientCredentials
from fairway.errors import DeniedError, FairwayError, UnavailableError, UsageError, from_wire
from fairway.sdk.transport import http
from fairway.sdk.transport.http import LostReplyError
from fairway.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fairway.engines.kubernetes.client.cluster_target import ClusterTarget
    from fairway.sdk.transport.http import Query

T = TypeVar("T")
ROOT = "/apis/record.fairway.dev/v1alpha1"
CONNECT_LIMIT = 10.0
CALL_LIMIT = 75.0
"""Timeout in seconds for a reply that is not a stream; the API server itself gives up after sixty."""
AWAY_LIMIT = 60.0
"""Seconds for which a cluster may be unreachable while a client follows a run or service."""
_PAUSE = 1.0
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Keep-alive options: a stream may be silent for long, so the kernel checks that the peer still exists."""
_BROKEN = ("EOF", "connection reset by peer", "broken pipe", "context deadline exceeded")
"""Endings of the API server's messages when it lost the connection over which it had forwarded a request."""
_STREAMS = ("/logs", "/watch", "/content")


class _CredentialClock:
    """The current time, for credentials that expire."""

    def now(self) -> float:
        return time.time()  # noqa: TID251 - runs in the caller's own process, as the command line does


def _settled(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, even if an event loop is running in this thread, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class ClusterConnection:
    """The cluster of a context, with the same interface as `Daemon`."""

    called = "the cluster"
    patience = 90.0
    """Seconds for which a request whose reply was lost is retried: replacing an operator takes a while."""

    def __init__(self, context: str, kubeconfig: str = "", *, say: Callable[[str], None] | None = None) -> None:
        self.target: ClusterTarget = client_kubeconfig.find(os.environ, context=context, kubeconfig=kubeconfig)
        self.say = say
        self._identity = ClientCredentials(self.target, _CredentialClock())

    def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes = b"",
        *,
        kind: str = http.JSON,
        start: bool = True,
        timeout: float | None = None,
    ) -> http.SocketReply:
        """Send a request; an error in the reply is raised. `start` is ignored: a client cannot start a cluster."""
        del start
        target, remaining_query = translate(path, query or {})
        limit = timeout if timeout is not None or path.endswith(_STREAMS) else CALL_LIMIT
        reply = self._exchange(method, http.encode_target(target, remaining_query), body, kind, limit)
        if reply.status == 401 and _settled(self._identity.renewed()):
            reply.close()
            reply = self._exchange(method, http.encode_target(target, remaining_query), body, kind, limit)
        if reply.status >= 400:
            raise read_error(reply.status, reply.read(), self.target)
        return reply

    def answers(self) -> bool:
        """Whether Fairway on that cluster answers."""
        try:
            self.request("GET", "/v1/health", {"namespace": self.target.namespace}).read()
        except UnavailableError:
            return False
        return True

    def start(self) -> None:
        """Wait until the cluster answers again; only its administrator can start it."""
        began = time.monotonic()
        while not self.answers():
            if time.monotonic() - began > AWAY_LIMIT:
                message = f"Fairway on {self.target.context} has not answered for {AWAY_LIMIT:.0f} s"
                raise UnavailableError(message, fix="running jobs and services continue; try again later")
            time.sleep(_PAUSE)

    def _exchange(self, method: str, target: str, body: bytes, kind: str, limit: float | None) -> http.SocketReply:
        if self._identity.stale:
            _settled(self._identity.refresh())
        url = urlsplit(self.target.server)
        lines = [f"{method} {url.path}{target} HTTP/1.1", f"Host: {url.netloc}", "Connection: close"]
        lines += [f"User-Agent: fairway/{VERSION}", f"Accept: {http.JSON}, */*"]
        lines += [f"{name}: {value}" for name, value in self._identity.headers.items()]
        if body or method in ("POST", "PUT"):
            lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        connection = self._connect(url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
        connection.settimeout(limit)
        return _ClusterReply(self.target, connection, ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8") + body)

    def _connect(self, host: str, port: int) -> socket.socket:
        if self.target.proxy:
            message = (
                f"the context {self.target.context!r} goes through a proxy ({self.target.proxy}), which Fairway does not support"
            )
            raise UsageError(message, fix="use a context that leads to the API server directly")
        try:
            plain = socket.create_connection((host, port), CONNECT_LIMIT)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            tls = self._identity.tls
            if isinstance(tls, ssl.SSLContext):
                return tls.wrap_socket(plain, server_hostname=self.target.server_name or host)
            return plain
        except ssl.SSLCertVerificationError as error:
            raise unreachable(self.target, f"its certificate is not accepted: {error.verify_message}") from error
        except OSError as error:
            raise unreachable(self.target, str(error.strerror or error)) from error


class _ClusterReply(http.SocketReply):
    """A reply of the API server."""

    def __init__(self, target: ClusterTarget, connection: socket.socket, request: bytes) -> None:
        self._target = target
        try:
            connection.sendall(request)
        except BrokenPipeError:
            # The server may have replied and closed before it read all of a request that it refuses.
            pass
        except OSError as error:
            connection.close()
            raise lost(target, f"the request could not be sent: {error.strerror or error}") from error
        super().__init__(connection)

    @property
    def ready(self) -> bool:
        """Whether `chunk` would return without waiting: TLS may hold decrypted data that `poll` does not show."""
        return super().ready or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    def _receive(self) -> bytes:
        patient = self._socket.gettimeout() != CALL_LIMIT
        try:
            return super()._receive()
        except TimeoutError:
            if patient:
                raise
            raise lost(self._target, f"no answer within {CALL_LIMIT:.0f} s") from None
        except UnavailableError:
            raise lost(self._target, "the connection broke off in the middle of an answer") from None


def translate(path: str, query: Query) -> tuple[str, dict[str, str | int | float | bool | None]]:
    """Translate the daemon's `path` to the API server's path, and return it with the remaining query."""
    segments = path.strip("/").split("/")[1:]
    remaining_query = {name: value for name, value in query.items() if name != "namespace"}
    match segments:
        case [("jobs" | "services") as kind, name, "logs"]:
            segments = [kind, name, "log"]
        case ["jobs", name, "watch"]:
            # The API server limits the duration of all requests except logs.
            segments, remaining_query = ["jobs", name, "log"], {**remaining_query, "watch": True}
        case ["datasets", name, "content"]:
            segments = ["datasets", name, "log"]
        case [("models" | "datasets") as kind, name, "verify"]:
            segments, remaining_query = [kind, name, "log"], {**remaining_query, "watch": True}
        case ["top", "jobs", name]:
            segments = ["jobs", name, "top"]
    namespace = str(query.get("namespace") or "default")
    rest = "/".join(segments)
    return (f"{ROOT}/{rest}" if namespace == "*" else f"{ROOT}/namespaces/{http.quote(namespace)}/{rest}"), remaining_query


def read_error(status: int, body: bytes, target: ClusterTarget) -> FairwayError:
    """Return the error that a reply carries: Fairway's own, or the API server's with its message."""
    payload: Any
    try:
        payload = json.loads(body)
    except ValueError:
        payload = None
    if isinstance(payload, dict) and isinstance(payload.get("error"), dict):
        return from_wire(payload["error"])
    text = str(payload.get("message") or "") if isinstance(payload, dict) else body.decode("utf-8", "replace").strip()[:500]
    if status == 401:
        message = f"{target.server} rejects your credentials: {text or 'Unauthorized'}"
        return DeniedError(message, fix=f"log in again, or correct the user of the context {target.context!r} in the kubeconfig")
    if status == 403:
        fix = "ask the administrator of the cluster for this permission (`kubectl auth can-i --list` shows your permissions)"
        return DeniedError(text, fix=fix if "cannot" in text else "")
    if status == 404:
        message = f"Fairway is not installed on {target.context or target.server}: {text}"
        return UnavailableError(message, fix=f"fairway --context {target.context} install kubernetes --image IMAGE")
    if status in (429, 502, 503, 504):
        message = f"Fairway on {target.context or target.server} does not answer: {text or f'HTTP {status}'}"
        # If the API server had forwarded the request, it may have taken effect.
        kind = LostReplyError if status in (502, 504) or text.endswith(_BROKEN) else UnavailableError
        return kind(message, fix="`kubectl get apiservice v1alpha1.record.fairway.dev` shows why; try again soon")
    return FairwayError(f"{target.server} answered with status {status}: {text}")


def unreachable(target: ClusterTarget, why: str) -> UnavailableError:
    """Return the error for a request that could not be sent."""
    message = f"{target.server} (context {target.context}) does not answer: {why}"
    return UnavailableError(message, fix="check that the API server runs and that its address in the kubeconfig is right")


def lost(target: ClusterTarget, why: str) -> LostReplyError:
    """Return the error for a request that was sent and got no reply."""
    error = unreachable(target, why)
    return LostReplyError(error.message, fix=error.fix)
