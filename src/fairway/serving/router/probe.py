"""Whether a service's port answers: what a request says."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache

from fairway.state.route import RoutePlan

WITHIN = 2.0
"""Seconds in which an answer must begin."""
_REQUEST = b"GET /fairway/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""A path that the router answers itself: it counts as no request, and starts no replica."""
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class Probe:
    """Asks the port of one service again and again, beside whatever else is done."""

    def __init__(self) -> None:
        self._answered = True
        self._asking: asyncio.Task[bool] | None = None

    def answers(self, plan: RoutePlan | None, port: int) -> bool:
        """Whether the last request was answered; the next one begins. True before the first is over."""
        if self._asking is not None and self._asking.done():
            self._answered, self._asking = self._asking.result(), None
        if self._asking is None and plan is not None and port:
            tls = plan.access is not None and plan.access.tls is not None
            self._asking = asyncio.get_running_loop().create_task(ask(_ANY.get(plan.host, plan.host), port, tls=tls))
        return self._answered

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


@cache
def _unverified() -> ssl.SSLContext:
    """Trusts any certificate: nothing secret is sent, and whether clients trust it is another question."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def ask(host: str, port: int, *, tls: bool = False) -> bool:
    """Whether a request to a port is answered: something comes back, or the connection is closed in order."""
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
