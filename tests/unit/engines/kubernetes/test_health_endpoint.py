"""What a process reports to kubelets and to Prometheus."""

from __future__ import annotations

import asyncio
import logging
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairway.engines.kubernetes.health_endpoint import HealthEndpoint, answer


class Followed:
    def __init__(self, plural: str, complete: bool, count: int = 0) -> None:
        self.resource = SimpleNamespace(plural=plural)
        self.complete = complete
        self._count = count

    def __len__(self) -> int:
        return self._count


def health(*mirrors: Followed, leading: bool = False) -> HealthEndpoint:
    return HealthEndpoint(cast(Any, mirrors), cast(Any, SimpleNamespace(leading=leading)))


def test_it_is_ready_when_everything_is_read_whether_it_leads_or_not() -> None:
    assert health(Followed("pods", False), Followed("nodes", True)).answer("/readyz") == (503, "not ready: pods not read yet\n")
    assert health(Followed("pods", True)).answer("/readyz") == (200, "standing by\n")
    assert health(Followed("pods", True), leading=True).answer("/readyz") == (200, "leading\n")
    assert health(Followed("pods", False)).answer("/healthz") == (200, "ok\n")
    assert health().answer("/secrets")[0] == 404


def test_metrics_are_what_prometheus_reads() -> None:
    text = health(Followed("pods", True, 7), leading=True).answer("/metrics")[1]
    assert 'fairway_mirrored_objects{kind="pods"} 7' in text
    assert "fairway_leading 1" in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{\w+=\"\w+\"\})? [0-9.e+]+", line), line


async def test_it_is_asked_over_a_socket_and_strangers_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answering = asyncio.create_task(answer("0", health(Followed("pods", True))))
    while not (told := re.search(r"on port (\d+)", caplog.text)):
        await asyncio.sleep(0)
    port = int(told[1])
    assert b"HTTP/1.1 200 OK" in await asked(port, b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await asked(port, b"DELETE / HTTP/1.1\r\n\r\n") == b""
    assert await asked(port, b"x" * 20000) == b""
    assert (await asked(port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"ok\n")
    answering.cancel()
    await asyncio.wait([answering])


async def asked(port: int, question: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question)
    writer.write_eof()
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_without_a_port_nobody_listens() -> None:
    assert await answer("", health()) is None
