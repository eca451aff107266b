"""The load of the serving benchmark: connections that send the next request on each response. Not a benchmark by itself.

`python serving_client.py PORT CONNECTIONS SECONDS < request` prints `{"requests", "p50_ms"}`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import time

import uvloop


class Asker(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, ends: float, took: list[float], done: asyncio.Future) -> None:
        self._request, self._ends, self._took, self._done = request, ends, took, done
        self._began = 0.0
        self._answer = b""

    def connection_made(self, transport):
        """Send the first request."""
        self._transport = transport
        self._ask()

    def _ask(self):
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data):
        """Send the next request when the response is complete."""
        self._answer += data
        size = complete(self._answer)
        if not size or len(self._answer) < size:
            return
        if not self._answer.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(RuntimeError(self._answer.decode("latin-1")))
            self._transport.close()
            return
        self._answer = b""
        now = time.perf_counter()
        self._took.append(now - self._began)
        if now < self._ends:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error):
        """End the measurement of this connection."""
        if not self._done.done():
            self._done.set_result(None)


def complete(answer: bytes) -> int:
    """Return the size of the response with its headers; 0 while the headers are incomplete."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return 0
    at = answer.lower().find(b"content-length: ", 0, end + 2) + 16
    if at < 16:  # in chunks
        return len(answer) if answer.endswith(b"0\r\n\r\n") else 0
    return end + 4 + int(answer[at : answer.index(b"\r\n", at)])


async def many(port: int, connections: int, seconds: float, request: bytes) -> list[float]:
    """Send requests over several connections at once."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    ends = time.perf_counter() + seconds
    waits = [loop.create_future() for _ in range(connections)]
    for done in waits:
        await loop.create_connection(lambda done=done: Asker(request, ends, took, done), "127.0.0.1", port)
    await asyncio.gather(*waits)
    return took


def one(port: int, seconds: float, request: bytes) -> list[float]:
    """Send requests over one connection, without the overhead of an event loop."""
    took = []
    ends = time.perf_counter() + seconds
    with socket.create_connection(("127.0.0.1", port)) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.perf_counter() < ends:
            began = time.perf_counter()
            wire.sendall(request)
            answer = wire.recv(1 << 16)
            while not (size := complete(answer)) or len(answer) < size:
                answer += wire.recv(1 << 16)
            took.append(time.perf_counter() - began)
            assert answer.startswith(b"HTTP/1.1 200"), answer
    return took


if __name__ == "__main__":
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    asked = sys.stdin.buffer.read()
    found = one(port, seconds, asked) if connections == 1 else uvloop.run(many(port, connections, seconds, asked))
    print(json.dumps({"requests": len(found), "p50_ms": 1000 * statistics.median(found)}))
