"""Fetches the pages of replicas: all at once, with limits on time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fairway.serving.exposition.metric_family import MetricFamily
from fairway.serving.exposition.text_parser import MOST_BYTES, read
from fairway.serving.router.message_head import CHUNKED, HEAD_LIMIT, BadHeadError, read_answer
from fairway.state.serving.route import RouteBackend

SECONDS = 1.0
"""Timeout for one replica, in seconds. The other replicas do not wait longer for it."""
_PIECE = 64 * 1024


async def fetch(address: str, path: str, accept: str = "text/plain;version=0.0.4", within: float = SECONDS) -> bytes:
    """Return the body of a page with status 200; raise `OSError` on a timeout, `ValueError` for any other response."""
    host, _, port = address.rpartition(":")
    request = f"GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=HEAD_LIMIT)
        try:
            writer.write(request.encode())
            return await _body(reader)
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError, BadHeadError) as problem:
            message = f"the answer to GET {path} cannot be read: {problem}"
            raise ValueError(message) from None
        finally:
            writer.transport.abort()


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = read_answer(await reader.readuntil(b"\r\n\r\n"))
    if head.status != 200 or head.length == CHUNKED:
        message = f"the status is {head.status}" if head.status != 200 else "the answer is chunked, which HTTP/1.0 does not allow"
        raise ValueError(message)
    if head.length >= 0:
        if head.length > MOST_BYTES:
            message = f"the page has {head.length} bytes, at most {MOST_BYTES} are read"
            raise ValueError(message)
        return await reader.readexactly(head.length)
    body = bytearray()
    while piece := await reader.read(_PIECE):
        body += piece
        if len(body) > MOST_BYTES:
            message = f"the page has more than {MOST_BYTES} bytes"
            raise ValueError(message)
    return bytes(body)


async def pages(backends: Iterable[RouteBackend], path: str) -> dict[RouteBackend, list[MetricFamily] | None]:
    """Return the metric families of each replica; None for one that timed out or answered something else."""
    targets = list(backends)
    return dict(zip(targets, await asyncio.gather(*(_page(backend, path) for backend in targets)), strict=True))


async def _page(backend: RouteBackend, path: str) -> list[MetricFamily] | None:
    try:
        return read(await fetch(backend.address, path))
    except (OSError, ValueError):
        return None
