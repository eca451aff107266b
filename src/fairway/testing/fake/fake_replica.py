"""A replica with prepared answers over real sockets: for tests of routers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from fairway.state.serving.route import RouteBackend


@dataclass(slots=True)
class ReplicaRequestRecord:
    """A request as received by the replica."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass(slots=True)
class FakeReplica:
    """One server. By default it responds 200 with its name and the received request."""

    name: str
    revision: int
    status: int = 200
    extra: str = ""
    """Header lines for every answer, each with its line end."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers wait for this event; set at the start."""
    asked: list[ReplicaRequestRecord] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    connections: int = 0
    """Number of connections opened so far."""
    abandoned: int = 0
    """Requests whose client disconnected before the answer."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _port: int = 0

    async def start(self) -> RouteBackend:
        """Start listening; at the same port again after a stop."""
        self.gate.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self.backend

    @property
    def backend(self) -> RouteBackend:
        """The replica as a backend of a route plan."""
        return RouteBackend(self.name, self.revision, f"127.0.0.1:{self._port}")

    async def stop(self) -> None:
        """Abort all connections, as when the process is killed."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def wait_for(self, number: int) -> None:
        """Wait until this many requests have arrived."""
        async with self.arrived:
            async with asyncio.timeout(30.0):
                await self.arrived.wait_for(lambda: len(self.asked) >= number)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                request = await _read(reader)
                async with self.arrived:
                    self.asked.append(request)
                    self.arrived.notify_all()
                if not await self._may_answer(reader):
                    return
                writer.write(self._answer(request))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            # The router closed the connection between two requests.
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _may_answer(self, reader: asyncio.StreamReader) -> bool:
        """Wait for the gate; return False if the client disconnects before."""
        if self.gate.is_set():
            return True
        opened = asyncio.ensure_future(self.gate.wait())
        disconnected = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((opened, disconnected), return_when=asyncio.FIRST_COMPLETED)
        for future in (opened, disconnected):
            future.cancel()
        await asyncio.gather(opened, disconnected, return_exceptions=True)
        if not self.gate.is_set():
            self.abandoned += 1
        return self.gate.is_set()

    def _answer(self, asked: ReplicaRequestRecord) -> bytes:
        body = msgspec.json.encode(
            {"name": self.name, "path": asked.path, "method": asked.method, "headers": asked.headers, "length": len(asked.body)}
        )
        head = f"HTTP/1.1 {self.status} Said\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{self.extra}\r\n"
        return head.encode() + (b"" if asked.method == "HEAD" else body)


async def _read(reader: asyncio.StreamReader) -> ReplicaRequestRecord:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        return ReplicaRequestRecord(method, path, headers, await _read_chunks(reader))
    return ReplicaRequestRecord(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body
