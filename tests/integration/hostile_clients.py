"""Clients that cost a replica what they can, until they are ended: PORT COUNT PAUSE. All pauses are times PAUSE."""

from __future__ import annotations

import asyncio
import json
import random
import sys

HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"


def question(output: str = "y", **parameters: bool) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
    return json.dumps({"inputs": [tensor], "outputs": [{"name": output, "parameters": parameters}]}).encode()


def post(body: bytes, more: bytes = b"") -> bytes:
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Hostile:
    """Clients of several kinds, each until it is ended or told to stop."""

    def __init__(self, port: int, pause: float, chance: random.Random) -> None:
        self.port, self.chance = port, chance
        self.pause_seconds = pause
        self.kinds = [self.slow_head, self.slow_body, self.huge, self.chunks, self.outputs, self.half_closed, self.unread]

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.pause_seconds)

    async def run(self, kind: int) -> None:
        """One client, again and again."""
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await self.pause(0.1)
                continue
            try:
                await self.kinds[kind % len(self.kinds)](reader, writer)
            except (OSError, EOFError):
                await self.pause(0.2)
            finally:
                writer.transport.abort()

    async def slow_head(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in HEAD:
            writer.write(bytes([byte]))
            await writer.drain()
            await self.pause(1.0)

    async def slow_body(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 9000000\r\n\r\n" + b" " * 65536)
        while not reader.at_eof():
            writer.write(b" " * 1024)
            await writer.drain()
            await self.pause(0.5)

    async def huge(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (15 << 20))
        for _ in range(15 * 16):
            writer.write(b" " * 65536)
            await writer.drain()
            await self.pause(0.2)
        await reader.read(4096)

    async def chunks(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            await writer.drain()
            await self.pause(0.2)

    async def outputs(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        many = ",".join('{"name": "y"}' for _ in range(20_000))
        writer.write(post(question().replace(b'"outputs": [', b'"outputs": [' + many.encode() + b",")))
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400")
        await self.pause(self.chance.random() * 5)

    async def half_closed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = self.chance.random() < 0.5
        writer.write(post(question()) if whole else post(question())[:-3])
        writer.write_eof()
        await reader.read()
        await self.pause(self.chance.random() * 5)

    async def unread(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not writer.transport.is_closing():
            writer.write(32 * post(question("wide", binary_data=True)))
            await writer.drain()
            await self.pause(2.0)


async def main(port: int, count: int, pause: float) -> None:
    """All at once, each kind as often as the others."""
    hostile = Hostile(port, pause, random.Random(11))
    tasks = [asyncio.create_task(hostile.run(number)) for number in range(count)]
    await asyncio.sleep(1.0)
    print("all have begun", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
