"""Connections to pods that stay open between questions: a handshake costs more than a question. Standard library only.

A certificate is verified when a connection is opened. One that is renewed meanwhile changes nothing for it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from typing import Callable, TypeVar

from fairway.runtime.secured.peer import Peer, dial

IDLE = 15.0
"""Seconds without a question after which a connection is closed."""

Answer = TypeVar("Answer")


class _Line:
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


class Lines:
    """Asks pods, each one question at a time."""

    def __init__(self, trusted: ssl.SSLContext | None, limit: int) -> None:
        """`trusted` verifies pods; `limit`: bytes of an answer that are kept before they are looked at."""
        self._trusted = trusted
        self._limit = limit
        self._kept: dict[tuple[Peer, bytes], _Line] = {}
        """By pod and greeting."""

    async def ask(
        self, peer: Peer, greeting: bytes, question: bytes, read: Callable[[asyncio.StreamReader], Awaitable[Answer]]
    ) -> Answer:
        """What `read` makes of the answer; `greeting` goes before the first question of a connection.

        Raises what `read` and the network raise. A connection that a pod closed since the last question is opened anew once:
        ask what may be asked twice.
        """
        line = self._kept.setdefault((peer, greeting), _Line())
        async with line.asking:
            if line.is_open():
                try:
                    return await self._ask(line, question, read)
                except (OSError, EOFError):
                    line.hang_up()
            line.hang_up()
            line.reader, line.writer = await dial(peer, self._trusted, self._limit)
            # A line that was given up while it waited is not in the table any more.
            self._kept[peer, greeting] = line
            return await self._ask(line, greeting + question, read)

    def close(self) -> None:
        """Hang up everywhere."""
        for line in self._kept.values():
            line.hang_up()
        self._kept.clear()

    async def _ask(self, line: _Line, question: bytes, read: Callable[[asyncio.StreamReader], Awaitable[Answer]]) -> Answer:
        assert line.reader is not None
        assert line.writer is not None
        if line.idle is not None:
            line.idle.cancel()
        try:
            line.writer.write(question)
            answer = await read(line.reader)
        except BaseException:
            # Also one that is cancelled: what comes later would be taken for the answer to the next question.
            line.hang_up()
            raise
        line.idle = asyncio.get_running_loop().call_later(IDLE, self._give_up, line)
        return answer

    def _give_up(self, line: _Line) -> None:
        if not line.asking.locked():
            line.hang_up()
            self._kept = {key: one for key, one in self._kept.items() if one is not line}
