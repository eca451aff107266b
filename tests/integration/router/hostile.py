"""Clients that cost a router as much as they can: `python hostile.py PORT COUNT KINDS`. Prints `ready`; ends on end of input.

And the backend behind the router: `python hostile.py backend` prints its port.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import ClassVar

import uvloop

HEAD = b"POST /%b HTTP/1.1\r\nHost: localhost\r\n"
QUICK = HEAD % b"quick"
PIECE = b"x" * 65536


class Backend(asyncio.Protocol):
    """Answers `/quick` at once, `/large` with a megabyte, `/stuck` never: it does not even read the request."""

    alive: ClassVar[set[Backend]] = set()
    """Keeps a reference to each connection: the event loop holds none to a connection that is not read."""

    def connection_lost(self, exc) -> None:
        self.alive.discard(self)

    def connection_made(self, transport) -> None:
        self.alive.add(self)
        self.transport, self.raw, self.path, self.left = transport, b"", b"", 0

    def data_received(self, data: bytes) -> None:
        self.raw += data
        while self.raw:
            if not self.path:
                head, end, rest = self.raw.partition(b"\r\n\r\n")
                if not end:
                    return
                self.path = head.split(b" ")[1]
                self.left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                self.raw = rest
            if self.path == b"/stuck":
                self.transport.pause_reading()
                return
            taken = self.raw[: self.left]
            self.raw, self.left = self.raw[len(taken) :], self.left - len(taken)
            if self.left:
                return
            size = 1_000_000 if self.path == b"/large" else 20
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"y" * size)
            self.path = b""
        if self.path and not self.left and self.path != b"/stuck":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b"y" * 20)
            self.path = b""


async def slow_head(reader, writer) -> None:
    """Send a request head that never ends."""
    writer.write(QUICK + b"X-Long: " + b"a" * 30_000)
    for _ in range(1_500):
        writer.write(b"a")
        await asyncio.sleep(2.0)


async def slow_body(reader, writer) -> None:
    """Send a body slowly, one byte at a time."""
    writer.write(QUICK + b"Content-Length: 900000\r\n\r\n" + b"x" * 800_000)
    for _ in range(1_500):
        writer.write(b"x")
        await asyncio.sleep(2.0)


async def huge(reader, writer) -> None:
    """Send an endless body to a replica that does not read."""
    writer.write(HEAD % b"stuck" + b"Content-Length: 100000000000\r\n\r\n")
    while True:
        writer.write(PIECE)
        await writer.drain()


async def deaf(reader, writer) -> None:
    """Request many large responses, and read none of them."""
    writer.transport.pause_reading()
    writer.write((HEAD % b"large" + b"Content-Length: 0\r\n\r\n") * 20)
    await asyncio.Event().wait()


async def ahead(reader, writer) -> None:
    """Send requests endlessly, each before the response to the first."""
    writer.write(HEAD % b"stuck" + b"Content-Length: 0\r\n\r\n")
    while True:
        writer.write((QUICK + b"Content-Length: 0\r\n\r\n") * 500)
        await writer.drain()


async def half(reader, writer) -> None:
    """Close the sending side, and wait for a response that does not come."""
    writer.write(HEAD % b"stuck" + b"Content-Length: 500000\r\n\r\n" + b"x" * 500_000)
    writer.write_eof()
    await reader.read()


async def held(reader, writer) -> None:
    """Send a whole request of a megabyte, for which there is no replica."""
    writer.write(QUICK + b"Content-Length: 1000000\r\n\r\n")
    for _ in range(16):
        writer.write(b"x" * 62_500)
        await writer.drain()
    await reader.read()


KINDS = {each.__name__: each for each in (slow_head, slow_body, huge, deaf, ahead, half, held)}


async def attack(port: int, count: int, kinds: list[str]) -> None:
    async def one(kind: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        try:
            await KINDS[kind](reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    opened: list[asyncio.StreamWriter] = []
    tasks = [asyncio.create_task(one(kinds[number % len(kinds)])) for number in range(count)]
    while len(opened) < count:
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()


async def stand() -> None:
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sys.argv[1] == "backend":
        uvloop.run(stand())
    else:
        uvloop.run(attack(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")))
