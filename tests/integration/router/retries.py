"""Uploads through a proxy whose backends reset, close or respond early at chosen bytes of a request; every mix-up is recorded.

A backend reads strictly. Whatever on a connection is not the exact next byte of a request that a client sent is recorded: a
head that no client sent is foreign, a body that is not the one of its head is corrupted. A client records a response that is
not the response to its request. The same faults, from the same seed, can be played behind any proxy.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

HEAD = re.compile(rb"(GET|PUT|POST) /t/(\d+) HTTP/1\.1\r\n((?:[!-9;-~]+:[^\r\n]*\r\n)*)\r\n")
CLASSES = (
    "accept", "request line", "head", "end of head", "first byte", "body", "limit", "last byte", "end of body",
    "answer head", "answer body", "after answer",
)  # fmt: skip
ACTIONS = ("reset", "close", "reset and refuse", "early 503", "early 200", "extra bytes")
REPLAY = 4096
"""The most that the proxy keeps of a body."""
SIZES = (0, 1, 100, REPLAY - 1, REPLAY, REPLAY + 1, 3 * REPLAY, 20 * REPLAY)
EVIL = b"GET /t/999999999 HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /evil HTTP/1.1\r\nContent-Length: 5\r\n\r\n"


@dataclass
class Record:
    """What all tries recorded."""

    bodies: dict[int, bytes] = field(default_factory=dict)
    """The body of every request that a client sent, by number."""
    methods: dict[int, bytes] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    by_class: Counter[str] = field(default_factory=Counter)
    foreign: list[bytes] = field(default_factory=list)
    corrupted: list[str] = field(default_factory=list)
    begun: Counter[int] = field(default_factory=Counter)
    """How often the head of a request reached a backend."""
    taken: Counter[int] = field(default_factory=Counter)
    """How often a backend received a request completely and then closed the connection properly without a response."""
    struck: dict[int, asyncio.Event] = field(default_factory=dict)
    strangers: int = 0

    def twice(self) -> list[int]:
        """Return the requests that may not be repeated, but were received completely more than once."""
        return [number for number, times in self.taken.items() if times > 1 and self.methods[number] == b"POST"]


class Backend:
    """A server that injects a fault into each connection."""

    def __init__(self, record: Record, random: Random, faults: float) -> None:
        self.record, self.random, self.faults = record, random, faults
        self.port = 0
        self._server: asyncio.Server | None = None
        self._blinks: set[asyncio.Task[None]] = set()
        self.connections: set[Connection] = set()

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Accept no connection for a moment."""
        if self._server is not None:
            self._server.close()
            self._server = None
            task = asyncio.get_running_loop().create_task(self._blink(self.random.choice((0.01, 0.1, 0.4))))
            self._blinks.add(task)
            task.add_done_callback(self._blinks.discard)

    async def _blink(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.start()

    async def stop(self) -> None:
        await asyncio.gather(*self._blinks)
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()


class Connection(asyncio.Protocol):
    """One connection to a backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.record = backend, backend.record
        self.raw = b""
        self.over = False
        self.early = False
        """The request that is being read has already got its response."""
        self.draw()

    def draw(self) -> None:
        """Draw the fate of the next request."""
        random = self.backend.random
        self.fate, self.action = "", ""
        if random.random() < self.backend.faults:
            self.fate, self.action = random.choice(CLASSES), random.choice(ACTIONS)
        self.where = random.random()
        self.number = -1
        self.head_seen = False

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.backend.connections.add(self)
        if self.fate == "accept":
            self.strike()

    def connection_lost(self, exc) -> None:
        self.backend.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        self.raw += data
        while self.raw and not self.over and self.step():
            pass

    def step(self) -> bool:
        """Process what has arrived of one request; return whether another may follow in the buffer."""
        if self.fate == "request line" and len(self.raw) > int(self.where * 12):
            self.strike()
            return False
        end = self.raw.find(b"\r\n\r\n")
        if self.fate == "head" and (end >= 0 or len(self.raw) > 30):
            self.strike()
            return False
        if end < 0:
            if not self.raw.startswith((b"GET /t/"[: len(self.raw)], b"PUT /t/"[: len(self.raw)], b"POST /t/"[: len(self.raw)])):
                self.alien()
            return False
        match = HEAD.fullmatch(self.raw[: end + 4])
        number = int(match[2]) if match else -1
        if match is None or number not in self.record.bodies or self.record.methods[number] != match[1]:
            self.alien()
            return False
        if not self.head_seen:
            self.head_seen = True
            self.number = number
            self.record.begun[number] += 1
        return self.body(self.raw[end + 4 :], b"transfer-encoding: chunked" in match[3].lower())

    def body(self, rest: bytes, chunked: bool) -> bool:
        expected = self.record.bodies[self.number]
        got, used, whole = dechunk(rest) if chunked else (rest[: len(expected)], len(expected), len(rest) >= len(expected))
        if got != expected[: len(got)] or (whole and got != expected):
            self.record.corrupted.append(f"backend: body of {self.number}: {len(got)} of {len(expected)} bytes")
            self.kill()
            return False
        at = {
            "end of head": 0, "first byte": 1, "body": int(self.where * len(expected)), "limit": REPLAY + int(self.where * 3) - 1,
            "last byte": len(expected) - 1, "end of body": len(expected),
        }.get(self.fate, -1)  # fmt: skip
        if at >= 0 and len(got) >= at and (whole or self.fate != "end of body"):
            if whole and self.action == "close":
                self.record.taken[self.number] += 1
            self.strike()
            return self.early
        if not whole:
            return False
        self.raw = rest[used:]
        return self.answer()

    def answer(self) -> bool:
        if self.early:
            self.early = False
            self.draw()
            return True
        wire = answer(self.number, self.record.bodies[self.number])
        if self.fate in ("answer head", "answer body"):
            middle = wire.find(b"\r\n\r\n") + 4
            cut = int(self.where * middle) if self.fate == "answer head" else middle + int(self.where * (len(wire) - middle))
            self.transport.write(wire[:cut])
            self.strike(answered=True)
            return False
        self.transport.write(wire)
        if self.fate == "after answer":
            self.strike(answered=True)
        self.draw()
        return not self.over

    def strike(self, *, answered: bool = False) -> None:
        """Inject the fault."""
        self.record.by_class[f"{self.fate}, {self.action}"] += 1
        action = self.action
        if action in ("early 503", "early 200", "extra bytes") and self.head_seen and not answered:
            # It keeps reading: if a proxy reuses this connection, the next request comes where the rest of the body should.
            busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
            self.transport.write(busy if action == "early 503" else answer(self.number, self.record.bodies[self.number]))
            if action == "extra bytes":
                self.transport.write(answer(-1, b"foreign"))
            self.fate, self.early = "", True
            asyncio.get_running_loop().call_later(0.1, self.kill)
        elif action == "close":
            self.over = True
            self.transport.close()
        else:
            self.kill()
        if action == "reset and refuse":
            self.backend.refuse()
        if self.number in self.record.struck:
            self.record.struck[self.number].set()

    def alien(self) -> None:
        self.record.foreign.append(self.raw[:200])
        self.kill()

    def kill(self) -> None:
        """Reset the connection."""
        self.over = True
        if not self.transport.is_closing():
            pipe = self.transport.get_extra_info("socket")
            pipe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


def answer(number: int, body: bytes) -> bytes:
    text = json.dumps({"number": number, "digest": blake2b(body, digest_size=8).hexdigest()}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


def dechunk(raw: bytes) -> tuple[bytes, int, bool]:
    """Return the content, the number of bytes used, and whether the body has ended."""
    found, place = b"", 0
    while True:
        end = raw.find(b"\r\n", place)
        if end < 0:
            return found, place, False
        size = int(raw[place:end], 16)
        if not size:
            return (found, end + 4, True) if raw[end + 2 : end + 4] == b"\r\n" else (found, place, False)
        found += raw[end + 2 : end + 2 + size]
        if len(raw) < end + 4 + size:
            return found, place, False
        place = end + 4 + size


class Play:
    """Clients that upload through a proxy at `port`."""

    def __init__(self, port: int, record: Record, random: Random) -> None:
        self.port, self.record, self.random = port, record, random
        self._next = 0

    def number(self, method: bytes, body: bytes) -> int:
        self._next += 1
        self.record.bodies[self._next], self.record.methods[self._next] = body, method
        self.record.struck[self._next] = asyncio.Event()
        return self._next

    async def run(self, tries: int, width: int = 8) -> None:
        """Run this many uploads, some at a time; meanwhile other clients send small requests on kept connections."""
        left = iter(range(tries))
        busy = True

        async def upload() -> None:
            for _ in left:
                await self.upload()

        async def stranger() -> None:
            pipe = None
            while busy:
                pipe = await self.ask_small(pipe)
            if pipe is not None:
                pipe[1].close()

        strangers = [asyncio.create_task(stranger()) for _ in range(2)]
        await asyncio.gather(*(upload() for _ in range(width)))
        busy = False
        await asyncio.gather(*strangers)

    async def upload(self) -> None:
        random = self.random
        size = random.choice(SIZES)
        body = (EVIL * (size // len(EVIL) + 1))[:size] if random.random() < 0.5 else random.randbytes(size)
        method = random.choice((b"PUT", b"POST"))
        number = self.number(method, body)
        chunked = random.random() < 0.4
        frame = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
        cuts = sorted(random.randrange(size + 1) for _ in range(random.choice((0, 1, 2, 5)))) if size else []
        pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"%b /t/%d HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % (method, number, frame))
            for piece in pieces:
                if piece:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await self.pause(number, random.random())
            writer.write(b"0\r\n\r\n" if chunked else b"")
            status = await self.check(reader, number)
            self.record.statuses[status] += 1
            if status == "200":
                # The connection is still usable: the next response on it belongs to the next request.
                await self.ask_small((reader, writer))
        except ConnectionError:
            self.record.statuses["ended"] += 1
        finally:
            writer.close()

    async def pause(self, number: int, choice: float) -> None:
        """Pause between two pieces: not at all, a moment, or until a backend has injected a fault into this request."""
        if choice < 0.3:
            return
        if choice < 0.6:
            await asyncio.sleep(0.001)
            return
        try:
            await asyncio.wait_for(self.record.struck[number].wait(), 0.03)
        except TimeoutError:
            return
        await asyncio.sleep(choice * 0.02)

    async def ask_small(self, pipe):
        """Send one small request of another client; return the connection if it can be reused."""
        method = self.random.choice((b"GET", b"POST"))
        body = b"" if method == b"GET" else self.random.randbytes(10)
        number = self.number(method, body)
        reader, writer = pipe or await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(
                b"%b /t/%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (method, number, len(body), body)
            )
            status = await self.check(reader, number)
        except ConnectionError:
            status = "ended"
        self.record.strangers += 1
        await asyncio.sleep(0.01)
        if status == "200":
            return reader, writer
        writer.close()
        return None

    async def check(self, reader: asyncio.StreamReader, number: int) -> str:
        """Return the status of the response; its content must belong to the request."""
        try:
            async with asyncio.timeout(20.0):
                head = await reader.readuntil(b"\r\n\r\n")
                status = head[9:12].decode()
                length = re.search(rb"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            return "ended"
        except TimeoutError:
            return "hung"
        if status == "200" and body != answer(number, self.record.bodies[number]).partition(b"\r\n\r\n")[2]:
            self.record.corrupted.append(f"client: answer to {number}: {body[:100]!r}")
        return status
