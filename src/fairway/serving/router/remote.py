"""How routers in pods are talked to: told their plan, asked what they saw, listened to. Their token follows the handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from fairway.app.ports import Clock
from fairway.runtime.secured.lines import Lines
from fairway.runtime.secured.peer import Peer, dial
from fairway.serving.router.control import LINE_LIMIT
from fairway.serving.router.wire import add_loads, check_plan, decode_load, encode_plan, moved
from fairway.state.load import RouteLoad
from fairway.state.route import RoutePlan

ANSWER_SECONDS = 2.0


class RemoteRouters:
    """Talks to routers by control port and token. `OSError` when one does not answer, or is not the pod that it should be."""

    def __init__(self, clock: Clock, trusted: ssl.SSLContext | None = None) -> None:
        """`trusted` verifies those that speak TLS."""
        self._clock = clock
        self._trusted = trusted
        self._lines = Lines(trusted, LINE_LIMIT)

    async def put(self, peer: Peer, token: str, plan: RoutePlan) -> None:
        """Tell one the plan; it is in force when this returns."""
        check_plan(plan)
        said = await self._ask(peer, token, b"put " + encode_plan(plan))
        if said.split(b" ")[0] not in (b"serving", b"draining"):
            message = f"the router at {peer.address} does not take the plan: {said.decode(errors='replace') or 'it hung up'}"
            raise OSError(message)

    async def look(self, peer: Peer, token: str) -> RouteLoad:
        """What one has counted."""
        said = await self._ask(peer, token, b"look")
        if not said:
            message = f"the router at {peer.address} says nothing"
            raise OSError(message)
        try:
            load, now = decode_load(said), self._clock.now()
        except ValueError as error:
            # It died in the middle of its answer, or its address is somebody else's by now.
            message = f"the router at {peer.address} says {said[:100]!r}: {error}"
            raise OSError(message) from error
        return moved(load, now)

    async def follow(self, peer: Peer, token: str, wake: Callable[[], None]) -> None:
        """Call `wake` whenever one sees something urgent, until it hangs up."""
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
        """What several routers of one service saw."""
        return add_loads(loads)

    def close(self) -> None:
        """Hang up."""
        self._lines.close()

    async def _ask(self, peer: Peer, token: str, line: bytes) -> bytes:
        """The answer of a router to one line; empty when it hangs up."""
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
