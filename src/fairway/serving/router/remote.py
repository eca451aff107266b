"""How routers in pods are talked to: told their plan, asked what they saw, listened to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fairway.app.ports import Clock
from fairway.serving.router.control import LINE_LIMIT
from fairway.serving.router.wire import add_loads, check_plan, decode_load, encode_plan
from fairway.state.load import RouteLoad
from fairway.state.route import RoutePlan

ANSWER_SECONDS = 2.0


class RemoteRouters:
    """Talks to routers by address (`HOST:PORT` of the control port) and token. `OSError` when one does not answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def put(self, address: str, token: str, plan: RoutePlan) -> None:
        """Tell one the plan; it is in force when this returns."""
        check_plan(plan)
        said = await _ask(address, token, b"put " + encode_plan(plan))
        if said.split(b" ")[0] not in (b"serving", b"draining"):
            message = f"the router at {address} does not take the plan: {said.decode(errors='replace') or 'it hung up'}"
            raise OSError(message)

    async def look(self, address: str, token: str) -> RouteLoad:
        """What one has counted."""
        said = await _ask(address, token, b"look")
        if not said:
            message = f"the router at {address} says nothing"
            raise OSError(message)
        try:
            load, now = decode_load(said), self._clock.now()
        except ValueError as error:
            # It died in the middle of its answer, or its address is somebody else's by now.
            message = f"the router at {address} says {said[:100]!r}: {error}"
            raise OSError(message) from error
        return replace(load, time=now, held_since=None if load.held_since is None else now + load.held_since)

    async def follow(self, address: str, token: str, wake: Callable[[], None]) -> None:
        """Call `wake` whenever one sees something urgent, until it hangs up."""
        reader, writer = await _open(address, token)
        try:
            writer.write(b"watch\n")
            while line := await reader.readline():
                if line == b"wake\n":
                    wake()
        finally:
            writer.close()

    def together(self, loads: list[RouteLoad]) -> RouteLoad:
        """What several routers of one service saw."""
        return add_loads(loads)


async def _open(address: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection(host, int(port), limit=LINE_LIMIT)
    writer.write(token.encode() + b"\n")
    return reader, writer


async def _ask(address: str, token: str, line: bytes) -> bytes:
    """The answer of a router to one line; empty when it hangs up."""
    reader, writer = await _open(address, token)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            writer.write(line + b"\n")
            return (await reader.readline()).strip()
    finally:
        writer.close()
