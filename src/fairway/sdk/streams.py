"""The asyncio way to the daemon: the requests and the decoder of `wire`, over asyncio's streams; to clusters, by threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from fairway.errors import UnavailableError
from fairway.sdk import wire
from fairway.sdk.cluster import Cluster
from fairway.sdk.daemon import Daemon
from fairway.sdk.verb import Call

R = TypeVar("R")

_PIECE = 65536


class Answer:
    """An answer whose head is known and whose body may still be on its way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = wire.Decoder()
        self._first = b""

    async def begin(self, request: bytes) -> Answer:
        """Send, and wait for the head; the error that the answer carries is raised."""
        self._writer.write(request)
        while not self._decoder.status:
            self._first += await self._receive()
        if self._decoder.status >= 400:
            raise wire.read_error(self._decoder.status, await self.read())
        return self

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""
        if self._first:
            yield self._first
        while not self._decoder.done:
            yield await self._receive()

    async def lines(self) -> AsyncIterator[bytes]:
        """The body, line by line, without the ends of lines."""
        rest = b""
        async for data in self.pieces():
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line
        if rest:
            yield rest

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def close(self) -> None:
        """Give up the connection."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            # It is gone either way.
            return

    async def _receive(self) -> bytes:
        try:
            data = await self._reader.read(_PIECE)
        except OSError:
            data = b""
        if not data:
            self._decoder.end()
            return b""
        return self._decoder.feed(data)


class ThreadAnswer:
    """The answer of a cluster, read in threads.

    `close` may be called while a thread still reads. It wakes that thread and closes the connection after the thread has
    left it: the number of a descriptor that is closed earlier can go to a new connection, whose bytes the thread would take.
    """

    def __init__(self, reply: wire.Reply) -> None:
        self._reply = reply
        # A duplicate made now leads to this connection for ever; one made from the number later might not.
        self._connection = socket.fromfd(reply.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        self._reading: asyncio.Future[Any] | None = None

    async def lines(self) -> AsyncIterator[bytes]:
        """The body, line by line, without the ends of lines."""
        lines = self._reply.lines()
        while (line := await self._in_thread(lambda: next(lines, None))) is not None:
            yield line

    async def read(self) -> bytes:
        """The whole body."""
        return await self._in_thread(self._reply.read)

    async def close(self) -> None:
        """Give up the connection. A thread that reads from it is woken first."""
        with contextlib.suppress(OSError):
            # Closing alone would not wake the thread.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        if self._reading is not None:
            await asyncio.wait([self._reading])
            # Marks the error of a broken connection as seen.
            self._reading.exception()
        self._reply.close()

    async def _in_thread(self, work: Callable[[], R]) -> R:
        """Do the work in a thread. Cancelling the caller leaves the thread to `close`."""
        reading = asyncio.ensure_future(asyncio.to_thread(work))
        self._reading = reading
        return await asyncio.shield(reading)


async def open_answer(daemon: Daemon | Cluster, call: Call) -> Answer | ThreadAnswer:
    """Send a request, starting the daemon when there is none."""
    if isinstance(daemon, Cluster):
        ask = functools.partial(daemon.request, call.method, call.path, call.query, call.body, kind=call.kind)
        return ThreadAnswer(await asyncio.to_thread(ask, timeout=call.patience))
    request = call.encode()
    try:
        reader, writer = await asyncio.open_unix_connection(daemon.find())
    except OSError:
        await asyncio.to_thread(daemon.start)
        try:
            reader, writer = await asyncio.open_unix_connection(daemon.find())
        except OSError as error:
            message = f"the daemon of {daemon.home} cannot be reached: {error}"
            raise UnavailableError(message, fix=f"look at {daemon.log}") from error
    answer = Answer(reader, writer)
    try:
        return await answer.begin(request)
    except BaseException:
        await answer.close()
        raise
