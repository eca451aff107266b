"""Clients that cost a replica as much as possible, until they are killed: PORT COUNT PAUSE [KIND]. PAUSE scales all pauses."""

from __future__ import annotations

import asyncio
import json
import random
import sys

JSON_BYTES = 12 << 20
HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"


def question(output: str = "y", **parameters: bool) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
    return json.dumps({"inputs": [tensor], "outputs": [{"name": output, "parameters": parameters}]}).encode()


def post(body: bytes, more: bytes = b"") -> bytes:
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def large_json(size: int) -> list[tuple[bytes, bytes]]:
    """Paths and bodies of about this many bytes: numbers, strings, objects, flat and nested."""
    infer, predict, classify = b"/v2/models/m/infer", b"/v1/models/m:predict", b"/v1/models/m:classify"

    def many(element: bytes) -> bytes:
        return b",".join([element] * (size // (len(element) + 1)))

    def tensor(shape: int, data: bytes) -> bytes:
        return b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,1],"data":[%b]}]}' % (shape, data)

    numbers, rows = many(b"0"), many(b"[0]")
    return [
        (infer, tensor((len(numbers) + 1) // 2, numbers)),
        (infer, tensor((len(rows) + 1) // 4, rows)),
        (infer, tensor(1, b"[" + many(b"0.5") + b"]")),
        (infer, tensor(1, many(b'"ab"'))),
        (infer, tensor(1, b"[" * size)),
        (infer, tensor(1, b"[0]")[:-1] + b',"parameters":{"a":[%b]}}' % many(b'{"":0}')),
        (predict, b'{"instances":[%b]}' % rows),
        (predict, b'{"instances":[%b]}' % many(b'{"":0}')),
        (predict, b'{"instances":[[%b]]}' % many(b'"ab"')),
        (predict, b'{"instances":[%b]}' % many(b'{"x":[0]}')),
        (predict, b'{"inputs":{"x":[%b]}}' % many(b"[]")),
        (classify, b'{"examples":[%b]}' % many(b'{"x":[0]}')),
        (infer, tensor(1, many(b"1e9"))[:-2]),
    ]


class Hostile:
    """Clients of several kinds, each until it is killed or stopped."""

    def __init__(self, port: int, pause: float, chance: random.Random) -> None:
        self.port, self.chance = port, chance
        self.pause_seconds = pause
        self.json = large_json(JSON_BYTES)
        self.kinds = [
            self.slow_head,
            self.slow_body,
            self.huge,
            self.chunks,
            self.outputs,
            self.half_closed,
            self.unread,
            self.large_json,
        ]

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.pause_seconds)

    async def run(self, kind: int) -> None:
        """Run one client, again and again."""
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
        head = await reader.readuntil(b"\r\n")
        assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.1 429")), head
        await self.pause(self.chance.random() * 5)

    async def large_json(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send JSON that takes many times its size in memory when decoded, whole and at once; most of it is valid."""
        path, body = self.chance.choice(self.json)
        head = HEAD.replace(b"/v2/models/m/infer", path) + b"Content-Length: %d\r\n\r\n" % len(body)
        writer.write(head)
        for at in range(0, len(body), 65536):
            writer.write(body[at : at + 65536])
            await writer.drain()
            if self.chance.random() < 0.05:
                await self.pause(0.2)
        head = await reader.readuntil(b"\r\n")
        assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 429")), head
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


async def main(port: int, count: int, pause: float, kind: str = "") -> None:
    """Run all kinds at once, each as often as the others, or one kind alone."""
    hostile = Hostile(port, pause, random.Random(11))
    if kind:
        hostile.kinds = [getattr(hostile, kind)]
    tasks = [asyncio.create_task(hostile.run(number)) for number in range(count)]
    await asyncio.sleep(1.0)
    print("all have begun", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]))
