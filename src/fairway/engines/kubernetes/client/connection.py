"""Requests to the API server: one session for calls and one for streams; calls are retried only where that is safe.

A write that fails without a response may have been done. It is retried only if it is idempotent (apply, delete with a
precondition, reading). Otherwise the error has `Unavailable.unknown`, and a level-triggered caller reads the state again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum

import aiohttp
import yarl

from fairway.app.port.port import Clock
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.cluster_target import ClusterTarget
from fairway.engines.kubernetes.client.identity import ClientCredentials
from fairway.version import VERSION

Chance = Callable[[], float]
"""Returns a random number from 0 to below 1."""

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

CALL_LIMIT = 60.0
"""Timeout in seconds for a call; the API server itself gives up after as many."""
CONNECT_LIMIT = 10.0
IN_FLIGHT = 32
"""Maximum number of concurrent calls; more only add latency."""
KEPT = 75.0
"""Seconds that an idle connection is kept: an API server closes it after 90, and a new one costs both sides milliseconds."""
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class RetryRule(Enum):
    """When a call may be sent again."""

    ALWAYS = "twice is once: also when nobody knows whether it was done"
    UNDONE = "only when it was certainly not done: no connection, or the server said later"
    NEVER = "not at all"


class ApiConnection:
    """Connections to one API server. Open it with `async with`."""

    def __init__(self, target: ClusterTarget, clock: Clock, chance: Chance | None = None) -> None:
        self.target = target
        self.clock = clock
        self.chance = chance or _chance
        self.identity = ClientCredentials(target, clock)
        self._agent = {"User-Agent": f"fairway/{VERSION}", "Accept": JSON}
        self._sessions: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> ApiConnection:
        await self.identity.refresh()
        whole = aiohttp.ClientTimeout(total=CALL_LIMIT, sock_connect=CONNECT_LIMIT)
        for limit, timeout in ((IN_FLIGHT, whole), (0, aiohttp.ClientTimeout(sock_connect=CONNECT_LIMIT))):
            self._sessions.append(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=limit, socket_factory=_socket, keepalive_timeout=KEPT),
                    headers=self._agent,
                    timeout=timeout,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=True,
                    read_bufsize=2**18,
                )
            )
        return self

    async def __aexit__(self, *exception: object) -> None:
        while self._sessions:
            await self._sessions.pop().close()

    async def call(
        self,
        asked: str,
        method: str,
        path: str,
        body: bytes | None = None,
        content: str = JSON,
        repeat: RetryRule = RetryRule.ALWAYS,
        permit: Callable[[], bool] | None = None,
    ) -> bytes:
        """Send a request and return the body of a successful response. `asked` describes the request in error messages.

        `permit` is checked before each attempt.
        """
        tries = 0
        while True:
            tries += 1
            if permit and not permit():
                raise errors.not_permitted(asked)
            try:
                return await self._once(asked, method, path, body, content)
            except errors.ApiError as error:
                if isinstance(error, errors.Unauthorized) and tries == 1 and await self.identity.renewed():
                    continue
                if tries >= _TRIES or not may_repeat(error, repeat):
                    raise
                await asyncio.sleep(pause(tries, error.retry_after, self.chance()))

    async def _once(self, asked: str, method: str, path: str, body: bytes | None, content: str) -> bytes:
        if self.identity.stale:
            await self.identity.refresh()
        headers = {**self.identity.headers, "Content-Type": content} if body is not None else self.identity.headers
        try:
            async with self._sessions[0].request(
                method,
                self._url(path),
                data=body,
                headers=headers,
                ssl=self.identity.tls,
                server_hostname=self.target.server_name or None,
                proxy=self.target.proxy or None,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
                if response.status < 300:
                    return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(asked, error) from error
        raise errors.failure(asked, response.status, answer, response.headers.get("Retry-After", ""))

    @asynccontextmanager
    async def stream(self, asked: str, path: str, silence: float | None = None) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a streamed response; raises an error after `silence` seconds without a byte."""
        if self.identity.stale:
            await self.identity.refresh()
        try:
            async with self._sessions[1].get(
                self._url(path),
                headers=self.identity.headers,
                ssl=self.identity.tls,
                server_hostname=self.target.server_name or None,
                proxy=self.target.proxy or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_LIMIT, sock_read=silence),
            ) as response:
                if response.status >= 300:
                    answer = await response.read()
                    if response.status == 401:
                        await self.identity.renewed()
                    raise errors.failure(asked, response.status, answer, response.headers.get("Retry-After", ""))
                yield response.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(asked, error) from error

    @asynccontextmanager
    async def socket(self, asked: str, path: str, protocol: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket with this subprotocol."""
        if self.identity.stale:
            await self.identity.refresh()
        try:
            opened = await self._sessions[1].ws_connect(
                self._url(path),
                protocols=(protocol,),
                headers={
                    **self.identity.headers,
                    "Accept": "*/*",
                },  # the response is no object, and the server refuses JSON alone
                ssl=self.identity.tls,
                server_hostname=self.target.server_name or None,
                proxy=self.target.proxy or None,
                heartbeat=30.0,
                max_msg_size=0,
            )
        except aiohttp.WSServerHandshakeError as error:
            await self._say_why(asked, path)
            raise errors.failure(asked, error.status, error.message.encode()) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(asked, error) from error
        try:
            yield opened
        finally:
            await opened.close()

    async def _say_why(self, asked: str, path: str) -> None:
        """Raise a specific error for a refused handshake.

        A handshake is refused without a message. The same request without one is refused with a message, or for not being a
        handshake.
        """
        try:
            await self._once(asked, "GET", path, None, JSON)
        except errors.BadRequest:
            return

    def _url(self, path: str) -> yarl.URL:
        return yarl.URL(self.target.server + path, encoded=True)

    def _unreachable(self, asked: str, error: BaseException) -> errors.Unavailable:
        certain = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | ConnectionRefusedError)
        why = str(error) or type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = f"its certificate is not accepted: {error.certificate_error}"
        return errors.unreachable(asked, self.target.server, why, unknown=not certain)


def may_repeat(error: errors.ApiError, repeat: RetryRule) -> bool:
    """Whether a call that failed with this error may be sent again."""
    if repeat is RetryRule.NEVER:
        return False
    if isinstance(error, errors.TooManyRequests):
        return not error.disruption_budget
    return isinstance(error, errors.Unavailable) and (repeat is RetryRule.ALWAYS or not error.unknown)


def pause(tries: int, retry_after: float, chance: float) -> float:
    """Return the seconds until the next try: the server's `Retry-After`, or an exponential back-off, with jitter."""
    base: float = retry_after or min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (tries - 1))
    return base * (1 + 0.25 * chance) if retry_after else base * (0.5 + 0.5 * chance)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that detects a dead peer within half a minute: a watch may be silent for long."""
    family, kind, protocol, _, _ = address
    result = socket.socket(family, kind, protocol)
    result.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            result.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return result


def _chance() -> float:
    return int.from_bytes(os.urandom(4)) / 2**32
