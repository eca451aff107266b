"""The answer of a cluster, read in threads and abandoned in the middle."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest

from fairway.sdk.async_reply import ThreadReply
from fairway.sdk.transport import http

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class SlowReply(http.SocketReply):
    """A reply whose reading thread, once woken, stays inside the call until `go_on` is set."""

    def __init__(self, connection: socket.socket) -> None:
        self.reads = threading.Event()
        self.woken = threading.Event()
        self.go_on = threading.Event()
        self.closed_while_reading = False
        self._inside = False
        super().__init__(connection)

    def _receive(self) -> bytes:
        if not self.status:
            return super()._receive()
        self._inside = True
        self.reads.set()
        try:
            return super()._receive()
        finally:
            self.woken.set()
            assert self.go_on.wait(30)
            self._inside = False

    def close(self) -> None:
        self.closed_while_reading |= self._inside
        super().close()


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.sendall(HEAD)
    return ours, theirs


async def started(reply: SlowReply, answer: ThreadReply) -> asyncio.Task[bytes]:
    reading = asyncio.create_task(answer.read())
    assert await asyncio.to_thread(reply.reads.wait, 30)
    return reading


async def test_the_connection_is_closed_after_the_thread_has_left_it(pair: tuple[socket.socket, socket.socket]) -> None:
    reply = SlowReply(pair[0])
    answer = ThreadReply(reply)
    reading = await started(reply, answer)
    reading.cancel()
    closing = asyncio.create_task(answer.close())
    try:
        assert await asyncio.to_thread(reply.woken.wait, 30)
        assert not closing.done()
        assert pair[0].fileno() >= 0
    finally:
        reply.go_on.set()
    await closing
    assert not reply.closed_while_reading
    assert pair[0].fileno() == -1
    assert pair[1].recv(1) == b""
    with pytest.raises(asyncio.CancelledError):
        await reading
    pair[1].close()


async def test_an_error_of_the_thread_reaches_the_reader(pair: tuple[socket.socket, socket.socket]) -> None:
    reply = SlowReply(pair[0])
    reply.go_on.set()
    answer = ThreadReply(reply)
    reading = await started(reply, answer)
    pair[1].close()
    with pytest.raises(http.LostReplyError):
        await reading
    await answer.close()


async def test_closing_late_leaves_a_new_connection_with_the_same_number_alone(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    reply = http.SocketReply(pair[0])
    number = reply.fileno()
    answer = ThreadReply(reply)
    pair[1].sendall(b"0\r\n\r\n")
    assert await answer.read() == b""
    other, peer = socket.socketpair()
    if other.fileno() != number:
        os.dup2(other.fileno(), number)
    await answer.close()
    peer.sendall(b"x")
    assert os.read(number, 1) == b"x"
    if other.fileno() != number:
        os.close(number)
    for each in (other, peer, pair[1]):
        each.close()


async def test_lines_come_one_by_one(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(b"4\r\na\nb\n\r\n0\r\n\r\n")
    answer = ThreadReply(http.SocketReply(pair[0]))
    assert [line async for line in answer.lines()] == [b"a", b"b"]
    await answer.close()
    pair[1].close()
