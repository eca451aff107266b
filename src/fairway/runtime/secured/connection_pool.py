"""Persistent connections to pods: a handshake costs more than a request. Standard library only.

A certificate is verified when a connection is opened. Its later renewal does not affect the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from typing import Callable, TypeVar

from fairway.runtime.secured.pod_peer import PodPeer, dial

IDLE = 15.0
"""Seconds without a request after which a connection is closed."""

Answer = TypeVar("Answer")


class _PodConnection:
    """The connection to one pod."""

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.idle: asyncio.TimerHandle | None = None

    def is_open(self) -> bool:
        return self.reader is not None and self.writer is not None and not (self.reader.at_eof() or self.writer.is_closing())

    def hang_up(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
        if self.idle is not None:
            self.idle.cancel()
        self.reader = self.writer = self.idle = None


class PodConnectionPool:
    """Sends requests to pods, one at a time to each pod."""

    def __init__(self, trusted: ssl.SSLContext | None, limit: int) -> None:
        """`trusted` verifies pods; `limit`: maximum bytes of an answer that are buffered before they are read."""
        self._trusted = trusted
        self._limit = limit
        self._kept: dict[tuple[PodPeer, bytes], _PodConnection] = {}
        """Connections by pod and greeting."""

    async def ask(
        self, peer: PodPeer, greeting: bytes, question: bytes, read: Callable[[asyncio.StreamReader], Awaitable[Answer]]
    ) -> Answer:
        """Send a request and return what `read` returns for the answer; `greeting` precedes the first request of a connection.

        Raises the exceptions of `read` and of the network. If the pod closed the connection since the last request, the request
        is sent once more on a new connection, so it must be idempotent.
        """
        line = self._kept.setdefault((peer, greeting), _PodConnection())
        async with line.asking:
            if line.is_open():
                try:
                    return await self._ask(line, question, read)
                except (OSError, EOFError):
                    line.hang_up()
            line.hang_up()
            line.reader, line.writer = await dial(peer, self._trusted, self._limit)
            # A connection that was closed while this call waited is no longer in the table.
            self._kept[peer, greeting] = line
            return await self._ask(line, greeting + question, read)

    def close(self) -> None:
        """Close all connections."""
        for line in self._kept.values():
            line.hang_up()
        self._kept.clear()

    async def _ask(
        self, line: _PodConnection, question: bytes, read: Callable[[asyncio.StreamReader], Awaitable[Answer]]
    ) -> Answer:
        assert line.reader is not None
        assert line.writer is not None
        if line.idle is not None:
            line.idle.cancel()
        try:
            line.writer.write(question)
            answer = await read(line.reader)
        except BaseException:
            # Also on cancellation: otherwise a late answer would be taken for that of the next request.
            line.hang_up()
            raise
        line.idle = asyncio.get_running_loop().call_later(IDLE, self._give_up, line)
        return answer

    def _give_up(self, line: _PodConnection) -> None:
        if not line.asking.locked():
            line.hang_up()
            self._kept = {key: kept_line for key, kept_line in self._kept.items() if kept_line is not line}
