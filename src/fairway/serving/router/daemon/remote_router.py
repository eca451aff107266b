"""The client for routers in pods: sends plans, reads loads and listens for wake-ups. The token is sent after the handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from fairway.app.port.port import Clock
from fairway.runtime.secured.connection_pool import PodConnectionPool
from fairway.runtime.secured.pod_peer import PodPeer, dial
from fairway.serving.router.control_socket import LINE_LIMIT
from fairway.serving.router.wire_format import add_loads, check_plan, decode_load, encode_plan, moved
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan

ANSWER_SECONDS = 2.0


class RemoteRouters:
    """Calls routers by control port and token. Raises `OSError` if a router does not answer or is not the expected pod."""

    def __init__(self, clock: Clock, trusted: ssl.SSLContext | None = None) -> None:
        """Create the client. `trusted` verifies routers that use TLS."""
        self._clock = clock
        self._trusted = trusted
        self._lines = PodConnectionPool(trusted, LINE_LIMIT)

    async def put(self, peer: PodPeer, token: str, plan: RoutePlan) -> None:
        """Send the plan to a router; it is in force when this returns."""
        check_plan(plan)
        answer = await self._ask(peer, token, b"put " + encode_plan(plan))
        if answer.split(b" ")[0] not in (b"serving", b"draining"):
            message = (
                f"the router at {peer.address} did not accept the plan: "
                f"{answer.decode(errors='replace') or 'it closed the connection'}"
            )
            raise OSError(message)

    async def look(self, peer: PodPeer, token: str) -> RouteLoad:
        """Return a router's load."""
        answer = await self._ask(peer, token, b"look")
        if not answer:
            message = f"the router at {peer.address} did not answer"
            raise OSError(message)
        try:
            load, now = decode_load(answer), self._clock.now()
        except ValueError as error:
            # The router died in the middle of its answer, or its address now belongs to another process.
            message = f"the router at {peer.address} sent an invalid answer, {answer[:100]!r}: {error}"
            raise OSError(message) from error
        return moved(load, now)

    async def follow(self, peer: PodPeer, token: str, wake: Callable[[], None]) -> None:
        """Call `wake` for every urgent event of a router, until it closes the connection."""
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await dial(peer, self._trusted, LINE_LIMIT)
        try:
            writer.write(token.encode() + b"\nwatch\n")
            while line := await reader.readline():
                if line == b"wake\n":
                    wake()
        finally:
            writer.close()

    def together(self, loads: list[RouteLoad]) -> RouteLoad:
        """Return the sum of the loads of several routers of one service."""
        return add_loads(loads)

    def close(self) -> None:
        """Close the connections."""
        self._lines.close()

    async def _ask(self, peer: PodPeer, token: str, line: bytes) -> bytes:
        """Send one line to a router and return its answer; empty if it closes the connection."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._lines.ask(peer, token.encode() + b"\n", line + b"\n", _answer)
        except EOFError:
            return b""


async def _answer(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line:
        raise EOFError
    return line.strip()
