"""GPU usage of a node, requested from its agent over HTTPS on demand: no writes, no polling.

The client verifies the agent and then sends a token (`token_review.py`). Agents of an earlier version are reached over HTTP: the
endpoint that an agent writes into its own `GpuNode` shows which.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from fairway.runtime.secured.pod_peer import PodPeer, dial
from fairway.runtime.secured.tls_listener import TlsListener
from fairway.units.number import finite

PATH = "/use"
PATIENCE = 2.0
"""Timeout in seconds for a request; a slower agent counts as having no answer."""
_HEAD_LIMIT = 8192

Use = Callable[[], Awaitable[dict[str, float]]]
Judge = Callable[[str], Awaitable[bool]]
"""Whether the client with this token may read the usage."""

log = logging.getLogger("fairway.agent")


class GpuUsageServer:
    """Answers `GET /use` with `{"GPU-1": 0.87}`, to authenticated clients."""

    def __init__(self, use: Use, known: Judge, tls: ssl.SSLContext | None = None) -> None:
        """With `tls`, connections without TLS are refused."""
        self._use = use
        self._known = known
        self._server = TlsListener(tls, self._answer, _HEAD_LIMIT)

    async def open(self, port: int) -> int:
        """Listen; returns the port."""
        return await self._server.open(port)

    async def close(self) -> None:
        """Stop listening."""
        self._server.close()

    async def _said(self) -> tuple[str, bytes]:
        try:
            return "200 OK", json.dumps(await self._use()).encode()
        except Exception as problem:  # The failure is that of this response only.
            log.exception("could not measure GPU usage")
            return "500 Internal Server Error", json.dumps({"error": repr(problem)}).encode()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                line, *headers = head.split(b"\r\n")
                status, body = "404 Not Found", b"{}"
                if line.split(b" ")[:2] == [b"GET", PATH.encode()]:
                    status = "401 Unauthorized"
                    if await self._known(_token(headers)):
                        status, body = await self._said()
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n".encode()
                writer.write(head + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a request was not answered: %s", error)
        except Exception:  # The next request is answered all the same.
            log.exception("a request was not answered")
        finally:
            writer.close()


def _token(headers: list[bytes]) -> str:
    """Return the token after `Authorization: Bearer`; empty when there is none."""
    for header in headers:
        name, _, value = header.decode("latin-1").partition(":")
        scheme, _, token = value.strip().partition(" ")
        if name.strip().lower() == "authorization" and scheme.lower() == "bearer":
            return token.strip()
    return ""


async def ask(endpoint: str, token: str, name: str = "", trusted: ssl.SSLContext | None = None) -> dict[str, float]:
    """Return how busy each GPU of this agent is; empty when there is no valid response in time.

    An `https` endpoint must have a certificate of `name` that `trusted` verifies; only then is the token sent.
    """
    try:
        url = urlsplit(endpoint)
        if url.hostname is None or url.port is None or (url.scheme == "https" and not name):
            return {}
        peer = PodPeer(f"{url.hostname}:{url.port}", name if url.scheme == "https" else "")
        async with asyncio.timeout(PATIENCE):
            reader, writer = await dial(peer, trusted)
            try:
                authorization = f"Authorization: Bearer {token}\r\n" if token else ""
                writer.write(f"GET {PATH} HTTP/1.1\r\nHost: {url.netloc}\r\n{authorization}Connection: close\r\n\r\n".encode())
                answer = await reader.read(1 << 20)
                while more := await reader.read(1 << 20):
                    answer += more
            finally:
                writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        usage = json.loads(body) if head.split(b" ")[1:2] == [b"200"] else {}
        return {str(uuid): number for uuid, part in usage.items() if (number := finite(part)) is not None}
    except (OSError, TimeoutError, ValueError, TypeError, AttributeError, RecursionError) as error:
        log.debug("could not read the GPU usage from %s: %s", endpoint, error)
        return {}
