"""Generates load on an HTTP server.

In a closed loop every connection sends its next request as soon as it has its answer; in an open loop requests arrive at a rate.
"""

from __future__ import annotations

import asyncio
import math
import random  # noqa: TID251  seeded: the same times each run
import ssl
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any
from urllib.parse import urlsplit

from fairway.errors import UsageError
from fairway.serving.bench.load_point import LoadPoint, point

WARM_UP = 0.3
"""Fraction of a point's duration that is not counted, while connections open and batches form."""
LIMIT = 1 << 24
TICK = 0.001
"""Poll interval for due requests, in seconds."""
GRACE = 5.0
"""Seconds after the end in which overdue requests are still sent."""
PATIENCE = 60.0
"""Seconds after the end in which answers are still accepted; requests without an answer by then have failed."""


def request_bytes(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return one request as bytes on the wire."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    method = "POST" if body else "GET"
    fields = {"Host": parts.netloc, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def drive(
    url: str,
    request: bytes,
    connections: int,
    seconds: float,
    tls: tuple[ssl.SSLContext, str] | None = None,
    rate: float = 0.0,
) -> LoadPoint:
    """Drive a server with this many connections for this long. Only requests that begin after the warm-up count.

    `tls`: for https, the context with the trusted certificates, and the server name in the certificate. With a `rate`, that many
    requests per second are due at random times, regardless of unanswered ones, and latency is measured from the time at which a
    request was due.
    """
    parts = urlsplit(url)
    if parts.scheme != ("http" if tls is None else "https") or not parts.hostname:
        message = f"{url} cannot be benchmarked: only http is supported, and https with known trusted certificates"
        raise UsageError(message, fix="give an address such as http://127.0.0.1:8000/v2/models/mnist/infer")
    counted = time.perf_counter() + seconds * WARM_UP
    tally = _RequestTally(counted, counted + seconds)
    address = (parts.hostname, parts.port or (80 if tls is None else 443))
    source = _OpenLoopSchedule(rate, tally) if rate else None
    workers = [_LoadConnection(address, request, tally, source, tls).run() for _ in range(connections)]
    await _until(tally.until + PATIENCE, _measure_client(tally), *workers, *([source.run()] if source else []))
    elapsed = time.perf_counter() - counted
    return point(connections, elapsed, tally.taken, tally.statuses, offered=rate, client_cpu=tally.client_cpu)


async def _until(end: float, *work: Coroutine[Any, Any, None]) -> None:
    """Run all coroutines; cancel those not finished at the time `end` of `time.perf_counter`."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        await asyncio.wait(tasks, timeout=max(0.0, end - time.perf_counter()))
    finally:
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _measure_client(tally: _RequestTally) -> None:
    await asyncio.sleep(max(0.0, tally.counted - time.perf_counter()))
    cpu, started = time.process_time(), time.perf_counter()
    await asyncio.sleep(max(0.0, tally.until - started))
    tally.client_cpu = (time.process_time() - cpu) / (time.perf_counter() - started)


class _RequestTally:
    """The outcome of requests that began between two readings of `time.perf_counter`."""

    def __init__(self, counted: float, until: float) -> None:
        self.counted = counted
        self.until = until
        self.taken: list[float] = []
        self.statuses: dict[int, int] = {}
        self.client_cpu = 0.0

    def note(self, status: int, began: float) -> None:
        if began < self.counted:
            return
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if 200 <= status < 300:
            self.taken.append(time.perf_counter() - began)

    def lose(self) -> None:
        """Count a request that never got an answer, whenever it began."""
        self.statuses[0] = self.statuses.get(0, 0) + 1


class _OpenLoopSchedule:
    """The due times of the requests of an open loop."""

    def __init__(self, rate: float, tally: _RequestTally) -> None:
        self._rate = rate
        self._tally = tally
        self._due: deque[float] = deque()
        self._chance = random.Random(1)  # the same times for every service that is compared

    async def run(self) -> None:
        due = time.perf_counter()
        while (now := time.perf_counter()) < self._tally.until:
            while due <= now:
                self._due.append(due)
                due += self._chance.expovariate(self._rate)
            await asyncio.sleep(TICK)

    async def next(self) -> float:
        """Wait until the next request is due and return its due time; infinity at the end.

        Requests that could not be sent in time are counted as failed.
        """
        while True:
            now = time.perf_counter()
            if self._due:
                due = self._due.popleft()
                if now < self._tally.until + GRACE:
                    return due
                self._tally.note(0, due)
            elif now >= self._tally.until:
                return math.inf
            else:
                await asyncio.sleep(TICK)


class _LoadConnection:
    """Successive connections to one server; a broken one counts as a failure and is replaced."""

    def __init__(
        self,
        place: tuple[str, int],
        request: bytes,
        tally: _RequestTally,
        source: _OpenLoopSchedule | None,
        tls: tuple[ssl.SSLContext, str] | None,
    ) -> None:
        self._place = place
        self._request = request
        self._tally = tally
        self._source = source
        self._tls: dict[str, Any] = {"ssl": tls[0], "server_hostname": tls[1]} if tls is not None else {}

    async def run(self) -> None:
        try:
            await self._ask()
        except asyncio.CancelledError:
            self._tally.lose()
            raise

    async def _ask(self) -> None:
        began = await self._next()
        while began < math.inf:
            try:
                reader, writer = await asyncio.open_connection(*self._place, limit=LIMIT, **self._tls)
            except OSError:
                self._tally.note(0, began)
                # Back off briefly instead of flooding a server that is down with connection attempts.
                await asyncio.sleep(0.01)
                began = await self._next()
                continue
            try:
                began = await self._exchange(reader, writer, began)
            finally:
                writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, began: float) -> float:
        """Send requests while the connection stays open; return when the next request begins."""
        keep_alive = True
        while keep_alive and began < math.inf:
            try:
                writer.write(self._request)
                status, keep_alive = await _answer(reader)
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                status, keep_alive = 0, False
            self._tally.note(status, began)
            began = await self._next()
        return began

    async def _next(self) -> float:
        """Return when the next request begins; infinity after the last."""
        if self._source is not None:
            return await self._source.next()
        now = time.perf_counter()
        return now if now < self._tally.until else math.inf


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """Read an answer; return its status and whether the connection stays open."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    length = _header(head, b"content-length")
    if length is not None:
        await reader.readexactly(int(length))
    elif _header(head, b"transfer-encoding") == b"chunked":
        while (size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)) > 0:
            await reader.readexactly(size + 2)
        await reader.readuntil(b"\r\n")
    return status, _header(head, b"connection") != b"close"


def _header(head: bytes, name: bytes) -> bytes | None:
    begin = head.find(b"\r\n" + name + b":")
    if begin < 0:
        return None
    begin += len(name) + 3
    return head[begin : head.index(b"\r\n", begin)].strip()
