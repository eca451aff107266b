"""The control socket of a router process, which takes plans and returns loads: a Unix socket, or a port in a pod.

A port uses TLS, unless the router was created without it; the first line there is the token. A request is one line: a word and,
after a blank, its argument. The answer is one line too.

    put PLAN    follow this plan; answered `serving VERSION` or `draining VERSION` when it is in force
    look        the counters
    watch       `now`, and a line `wake` for every urgent event, until the caller closes the connection
    listener    one byte, with the listening socket as a descriptor: for a keeper that replaces one that died
"""

from __future__ import annotations

import array
import asyncio
import hmac
import os
import socket
import ssl
from pathlib import Path

from fairway.errors import BugError
from fairway.runtime.secured.tls_listener import TlsListener
from fairway.serving.router.routing.router_state import RouterState
from fairway.serving.router.wire_format import decode_plan, encode_load
from fairway.version import __version__

LINE_LIMIT = 16 * 1024 * 1024
"""Limit on the bytes of a line from a caller that has presented the token."""
_BUFFER = 64 * 1024
"""Bytes that are read ahead."""
_GREETING_LIMIT = 1024
"""Limit on the bytes of the line with the token."""
_GREETERS = 64
"""Limit on connections that have not presented the token; one more closes the oldest."""
_WAKE_SECONDS = 0.05
"""Minimum interval between two wake-ups, in seconds."""
_GREETING_SECONDS = 10.0
"""How long a caller may take to present the token."""


async def read_line(reader: asyncio.StreamReader, limit: int) -> bytes:
    """Return the next line, even one above the reader's own limit; raise `ValueError` if it is longer than `limit`.

    A reader buffers up to twice its own limit before any of it is parsed, so that limit is small.
    """
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            pieces.append(await reader.readuntil(b"\n"))
            return b"".join(pieces)
        except asyncio.IncompleteReadError as problem:
            return b"".join((*pieces, problem.partial))
        except asyncio.LimitOverrunError as problem:
            size += problem.consumed
            if size > limit:
                message = f"a line of more than {limit} bytes"
                raise ValueError(message) from None
            pieces.append(await reader.readexactly(problem.consumed))


class RouterControlSocket:
    """Serves the control socket."""

    def __init__(self, desk: RouterState, listener: socket.socket) -> None:
        self._desk = desk
        self._listener = os.dup(listener.fileno())
        self._watchers: set[asyncio.StreamWriter] = set()
        self._greeters: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | TlsListener | None = None
        self._wake_due = False
        self._told = 0.0

    async def start(self, path: Path) -> None:
        """Listen at a Unix socket that only the owner can reach. Its path appears once it can be used."""
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, temporary, limit=_BUFFER)
        temporary.chmod(0o600)
        temporary.rename(path)

    async def start_at_port(self, port: int, token: str, tls: ssl.SSLContext | None = None) -> int:
        """Listen at a TCP port for callers with the token and return the port. With `tls`, only TLS is accepted."""

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._greeters[writer] = None
            if len(self._greeters) > _GREETERS:
                next(iter(self._greeters)).transport.abort()
            try:
                async with asyncio.timeout(_GREETING_SECONDS):
                    presented = await read_line(reader, _GREETING_LIMIT)
            except (OSError, ValueError):
                presented = b""
            finally:
                self._greeters.pop(writer, None)
            if hmac.compare_digest(presented.strip(), token.encode()):
                await self._serve(reader, writer)
            else:
                writer.transport.abort()

        listener = self._server = TlsListener(tls, greet, _GREETING_LIMIT)
        return await listener.open(port)

    def wake(self) -> None:
        """Wake the watching callers."""
        if not self._wake_due and self._watchers:
            self._wake_due = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._told + _WAKE_SECONDS), self._tell)

    def close(self) -> None:
        """Stop listening for callers."""
        if self._server is not None:
            self._server.close()
        self.stop_listening()

    def stop_listening(self) -> None:
        """Close the listening socket of the service."""
        if self._listener >= 0:
            os.close(self._listener)
        self._listener = -1

    def _tell(self) -> None:
        self._wake_due = False
        self._told = asyncio.get_running_loop().time()
        for writer in self._watchers:
            writer.write(b"wake\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await read_line(reader, LINE_LIMIT):
                command, _, rest = line.strip().partition(b" ")
                if command == b"watch":
                    self._watchers.add(writer)
                    if self._desk.waiting:
                        # These requests came before the caller began to watch.
                        self.wake()
                if command == b"listener":
                    self._hand_over(writer)
                    continue
                writer.write(self._answer(command, rest) + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            # The caller is gone, or sent no valid line.
            return
        finally:
            self._watchers.discard(writer)
            writer.close()

    def _answer(self, word: bytes, rest: bytes) -> bytes:
        if word == b"put":
            try:
                self._desk.put(decode_plan(rest))
            except BugError as problem:
                return b"error " + str(problem).replace("\n", " ").encode()
            return b"%b %b" % (b"draining" if self._desk.draining else b"serving", __version__.encode())
        if word == b"look":
            # Times are relative to now: the caller's clock is the one that counts.
            return encode_load(self._desk.load(0.0))
        if word == b"watch":
            return b"now"
        return b"error a word that is not known: " + word[:40]

    def _hand_over(self, writer: asyncio.StreamWriter) -> None:
        if self._listener < 0 or writer.get_extra_info("socket").family != socket.AF_UNIX:
            writer.write(b"-")
            return
        pipe = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
        with pipe:
            pipe.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._listener]))])
