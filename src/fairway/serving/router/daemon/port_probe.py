"""Checks whether a service's port answers, by sending requests to it."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache

from fairway.state.serving.route import RoutePlan

WITHIN = 2.0
"""Timeout for the beginning of an answer, in seconds."""
_REQUEST = b"GET /fairway/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""A path that the router itself answers: the request is not counted and starts no replica."""
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class PortProbe:
    """Sends requests to the port of one service, in the background."""

    def __init__(self) -> None:
        self._answered = True
        self._asking: asyncio.Task[bool] | None = None

    def answers(self, plan: RoutePlan | None, port: int) -> bool:
        """Return whether the last request was answered, and start the next one. True until the first one has ended."""
        if self._asking is not None and self._asking.done():
            self._answered, self._asking = self._asking.result(), None
        if self._asking is None and plan is not None and port:
            tls = plan.access is not None and plan.access.tls is not None
            self._asking = asyncio.get_running_loop().create_task(ask(_ANY.get(plan.host, plan.host), port, tls=tls))
        return self._answered

    async def close(self) -> None:
        """Stop sending requests."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


@cache
def _unverified() -> ssl.SSLContext:
    """Return a context that accepts any certificate: no secret is sent, and whether clients trust it is a separate question."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def ask(host: str, port: int, *, tls: bool = False) -> bool:
    """Return whether a port answers a request: with data, or by closing the connection in order."""
    try:
        async with asyncio.timeout(WITHIN):
            reader, writer = await asyncio.open_connection(host, port, ssl=_unverified() if tls else None)
            try:
                writer.write(_REQUEST)
                await reader.read(1)
            finally:
                writer.close()
    except OSError:
        return False
    return True
