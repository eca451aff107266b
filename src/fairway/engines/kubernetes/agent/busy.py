"""How busy the GPUs of a node are, asked of its agent over HTTP when somebody wants to know: no writes, no chatter.

Who asks shows a token (`known.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from fairway.units.number import finite

PATH = "/use"
PATIENCE = 2.0
"""Seconds for a whole question; whoever takes longer says nothing."""
_HEAD_LIMIT = 8192

Use = Callable[[], Awaitable[dict[str, float]]]
Judge = Callable[[str], Awaitable[bool]]
"""Whether whoever shows this token may know."""

log = logging.getLogger("fairway.agent")


class BusyServer:
    """Answers `GET /use` with `{"GPU-1": 0.87}`, to those who are known."""

    def __init__(self, use: Use, known: Judge) -> None:
        self._use = use
        self._known = known
        self._server: asyncio.Server | None = None

    async def open(self, port: int) -> int:
        """Listen; returns the port."""
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listening = socket.create_server(("", port), family=family, dualstack_ipv6=both)
        self._server = await asyncio.start_server(self._answer, sock=listening, limit=_HEAD_LIMIT)
        found: int = listening.getsockname()[1]
        return found

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                line, *headers = head.split(b"\r\n")
                status, body = "404 Not Found", b"{}"
                if line.split(b" ")[:2] == [b"GET", PATH.encode()]:
                    status = "401 Unauthorized"
                    if await self._known(_token(headers)):
                        status, body = "200 OK", json.dumps(await self._use()).encode()
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n".encode()
                writer.write(head + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a question was not answered: %s", error)
        finally:
            writer.close()


def _token(headers: list[bytes]) -> str:
    """What follows `Authorization: Bearer`; empty when nothing does."""
    for header in headers:
        name, _, value = header.decode("latin-1").partition(":")
        scheme, _, token = value.strip().partition(" ")
        if name.strip().lower() == "authorization" and scheme.lower() == "bearer":
            return token.strip()
    return ""


async def ask(endpoint: str, token: str) -> dict[str, float]:
    """How busy each GPU is that this agent knows; nothing when it does not answer in time, or no sense."""
    place = urlsplit(endpoint)
    if place.hostname is None or place.port is None:
        return {}
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            try:
                shown = f"Authorization: Bearer {token}\r\n" if token else ""
                writer.write(f"GET {PATH} HTTP/1.1\r\nHost: {place.netloc}\r\n{shown}Connection: close\r\n\r\n".encode())
                answer = await reader.read(1 << 20)
                while more := await reader.read(1 << 20):
                    answer += more
            finally:
                writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        said = json.loads(body) if head.split(b" ")[1:2] == [b"200"] else {}
        return {str(uuid): number for uuid, part in said.items() if (number := finite(part)) is not None}
    except (OSError, TimeoutError, ValueError, TypeError, AttributeError, RecursionError) as error:
        log.debug("%s does not say how busy its GPUs are: %s", endpoint, error)
        return {}
