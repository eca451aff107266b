"""GPU utilization over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from fairway.engines.kubernetes.agent import gpu_usage


async def test_who_is_known_gets_an_answer_and_nobody_else() -> None:
    async def use() -> dict[str, float]:
        return {"a": 0.5}

    async def known(token: str) -> bool:
        return token == "good"

    server = gpu_usage.GpuUsageServer(use, known)
    port = await server.open(0)
    try:
        assert await gpu_usage.ask(f"http://127.0.0.1:{port}", "good") == {"a": 0.5}
        assert await gpu_usage.ask(f"http://127.0.0.1:{port}", "bad") == {}
        assert await gpu_usage.ask(f"http://127.0.0.1:{port}", "") == {}
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /other HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        writer.close()
    finally:
        await server.close()


@pytest.mark.parametrize("endpoint", ["", "nonsense", "http://127.0.0.1:1"])
async def test_where_nobody_answers_nothing_is_known(endpoint: str) -> None:
    assert await gpu_usage.ask(endpoint, "x") == {}


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n\r\nno json", b"HTTP/1.1 200 OK\r\n\r\n[1]", b"HTTP/1.1 500 No\r\n\r\n{}"]
)
async def test_answers_without_sense_are_no_answers(answer: bytes) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    async with server:
        assert await gpu_usage.ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "x") == {}
