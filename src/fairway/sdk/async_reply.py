"""Asyncio connections: to the daemon with the requests and the decoder of `wire` over asyncio streams, to clusters in threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from fairway.errors import UnavailableError
from fairway.sdk.method.call import ApiCall
from fairway.sdk.transport import http
from fairway.sdk.transport.cluster import ClusterConnection
from fairway.sdk.transport.daemon import DaemonConnection

R = TypeVar("R")

_PIECE = 65536


class AsyncReply:
    """A reply whose head has arrived and whose body may still be arriving."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = http.ReplyDecoder()
        self._first = b""

    async def begin(self, request: bytes) -> AsyncReply:
        """Send the request and wait for the head; an error in the reply is raised."""
        self._writer.write(request)
        while not self._decoder.status:
            self._first += await self._receive()
        if self._decoder.status >= 400:
            raise http.read_error(self._decoder.status, await self.read())
        return self

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces as they arrive."""
        if self._first:
            yield self._first
        while not self._decoder.done:
            yield await self._receive()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the body line by line, without line ends."""
        rest = b""
        async for data in self.pieces():
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                yield line
        if rest:
            yield rest

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            # The connection is gone either way.
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


class ThreadReply:
    """A reply of a cluster, read in threads.

    `close` may be called while a thread still reads. It wakes that thread and closes the connection only after the thread
    has stopped using it: if it were closed earlier, its descriptor number could be reused by a new connection, and the
    thread would read that connection's bytes.
    """

    def __init__(self, reply: http.SocketReply) -> None:
        self._reply = reply
        # A duplicate made now always refers to this connection; one made from the number later might not.
        self._connection = socket.fromfd(reply.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        self._reading: asyncio.Future[Any] | None = None

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the body line by line, without line ends."""
        lines = self._reply.lines()
        while (line := await self._in_thread(lambda: next(lines, None))) is not None:
            yield line

    async def read(self) -> bytes:
        """Return the whole body."""
        return await self._in_thread(self._reply.read)

    async def close(self) -> None:
        """Close the connection. A thread that reads from it is woken first."""
        with contextlib.suppress(OSError):
            # Closing alone would not wake the thread.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        if self._reading is not None:
            await asyncio.wait([self._reading])
            # Retrieves the error of the broken connection, so that asyncio does not report it.
            self._reading.exception()
        self._reply.close()

    async def _in_thread(self, work: Callable[[], R]) -> R:
        """Run `work` in a thread. If the caller is cancelled, the thread goes on until `close` ends it."""
        reading = asyncio.ensure_future(asyncio.to_thread(work))
        self._reading = reading
        return await asyncio.shield(reading)


async def open_answer(daemon: DaemonConnection | ClusterConnection, call: ApiCall) -> AsyncReply | ThreadReply:
    """Send a request, starting the daemon if it is not running."""
    if isinstance(daemon, ClusterConnection):
        ask = functools.partial(daemon.request, call.method, call.path, call.query, call.body, kind=call.kind)
        return ThreadReply(await asyncio.to_thread(ask, timeout=call.patience))
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
    answer = AsyncReply(reader, writer)
    try:
        return await answer.begin(request)
    except BaseException:
        await answer.close()
        raise
