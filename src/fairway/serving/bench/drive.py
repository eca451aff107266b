"""Drives an HTTP server: every connection sends its next request as soon as it has its answer."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fairway.errors import UsageError
from fairway.serving.bench.result import Point, point

WARM_UP = 0.3
"""The part of a point's time that is not counted: connections open, batches form."""
LIMIT = 1 << 24


def request_bytes(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """One request as it goes over the wire."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    method = "POST" if body else "GET"
    given = {"Host": parts.netloc, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def drive(
    url: str, request: bytes, connections: int, seconds: float, tls: tuple[ssl.SSLContext, str] | None = None
) -> Point:
    """So many connections for so long. Only what was asked and answered after the warm-up counts.

    `tls`: for https, what to trust, and the name in the certificate.
    """
    parts = urlsplit(url)
    if parts.scheme != ("http" if tls is None else "https") or not parts.hostname:
        message = f"{url} cannot be driven: only http is, and https where it is known what to trust"
        raise UsageError(message, fix="give an address such as http://127.0.0.1:8000/v2/models/mnist/infer")
    tally = _Tally()
    counted = time.perf_counter() + seconds * WARM_UP
    until = counted + seconds
    place = (parts.hostname, parts.port or (80 if tls is None else 443))
    await asyncio.gather(*(_Connection(place, request, tally, counted, until, tls).run() for _ in range(connections)))
    return point(connections, time.perf_counter() - counted, tally.taken, tally.statuses)


class _Tally:
    def __init__(self) -> None:
        self.taken: list[float] = []
        self.statuses: dict[int, int] = {}

    def note(self, status: int, took: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if 200 <= status < 300:
            self.taken.append(took)


class _Connection:
    """One connection after the other to the same place; a broken one is a failure, and a new one takes its part."""

    def __init__(
        self,
        place: tuple[str, int],
        request: bytes,
        tally: _Tally,
        counted: float,
        until: float,
        tls: tuple[ssl.SSLContext, str] | None,
    ) -> None:
        self._place = place
        self._request = request
        self._tally = tally
        self._counted = counted
        self._until = until
        self._tls: dict[str, Any] = {"ssl": tls[0], "server_hostname": tls[1]} if tls is not None else {}

    async def run(self) -> None:
        while time.perf_counter() < self._until:
            began = time.perf_counter()
            try:
                reader, writer = await asyncio.open_connection(*self._place, limit=LIMIT, **self._tls)
            except OSError:
                self._note(0, began)
                # A server that is not there is asked again soon, not in a storm.
                await asyncio.sleep(0.01)
                continue
            try:
                await self._exchange(reader, writer)
            finally:
                writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (began := time.perf_counter()) < self._until:
            try:
                writer.write(self._request)
                status, goes_on = await _answer(reader)
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                self._note(0, began)
                return
            self._note(status, began)
            if not goes_on:
                return

    def _note(self, status: int, began: float) -> None:
        if began >= self._counted:
            self._tally.note(status, time.perf_counter() - began)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """The status, and whether the connection goes on."""
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
