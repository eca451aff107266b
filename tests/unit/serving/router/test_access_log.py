"""The access log: the content of a line, which requests are logged, and the limits of its size."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from router_stage import Stage, until

from fairway.serving.router.observation_port import RequestRecord
from fairway.serving.router.observe import access_log
from fairway.serving.router.observe.access_log import RequestLog, RotatedFile, files
from fairway.serving.router.observe.service_observer import ServiceObserver
from fairway.state.serving.route import WHOLE, RouteObservation

NOW = 1_795_000_000.0
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Sink:
    def __init__(self) -> None:
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.data.splitlines()]


async def logged(stage: Stage, share: int = WHOLE) -> tuple[Sink, RequestLog]:
    sink = Sink()
    log = RequestLog(1.0, sink, lambda: NOW)
    stage.desk.observer = ServiceObserver(stage.desk, log)
    replica = await stage.replica()
    stage.plan(replica.backend, observed=RouteObservation(access=share))
    return sink, log


async def test_a_line_says_what_happened_and_holds_no_secret(stage: Stage) -> None:
    sink, log = await logged(stage)
    head = (
        "POST /infer?api_key=hidden HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hidden\r\nCookie: hidden\r\n"
        f"X-Request-Id: mine-1\r\ntraceparent: 00-{TRACE}-b7ad6b7169203331-01\r\nUser-Agent: me\r\nX-Forwarded-For: 10.0.0.9\r\n"
        "Connection: close\r\nContent-Length: 5\r\n\r\nabcde"
    )
    answer = await stage.talk(head.encode())
    await log.close()
    assert b"hidden" not in sink.data
    (line,) = sink.lines
    times = [line.pop(name) for name in ("upstream_ms", "total_ms")]
    assert 0 < times[0] <= times[1]
    line.pop("held_ms", None)
    assert line == {
        "time": line["time"], "request_id": "mine-1", "method": "POST", "path": "/infer", "status": 200, "revision": 1,
        "replica": "a", "bytes_in": 5, "bytes_out": len(answer), "client": "127.0.0.1", "forwarded_for": "10.0.0.9",
        "trace_id": TRACE, "agent": "me",
    }  # fmt: skip
    assert line["time"].startswith("2026-11-1")
    assert line["time"].endswith("Z")


async def test_failures_have_a_line_whatever_the_share(stage: Stage) -> None:
    sink, log = await logged(stage, 1)
    log.share = 0.0
    assert (await stage.ask()).status == 200
    await stage.talk(b"GET /fairway/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await stage.talk(b"nonsense\r\n\r\n")
    await log.close()
    assert [(line["status"], "error" in line) for line in sink.lines] == [(404, True), (400, True)]


async def test_a_client_that_leaves_is_499(stage: Stage) -> None:
    sink, log = await logged(stage)
    replica = stage._replicas[0]
    replica.gate.clear()
    _, writer = await stage.open()
    writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
    await replica.wait_for(1)
    # The kernel then sends a reset, like a client that has disconnected for good.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await until(lambda: log._lines)
    await log.close()
    assert sink.lines[0]["status"] == 499


async def test_nothing_is_done_without_a_share(stage: Stage) -> None:
    await logged(stage, 0)
    assert stage.desk.access is None
    assert (await stage.ask()).status == 200


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_the_share_is_kept(share: float) -> None:
    log = RequestLog(share, lambda _: None, lambda: NOW, start=0.3)
    assert sum(log.wants(200) for _ in range(10_000)) == pytest.approx(10_000 * share, abs=5)


async def test_failures_are_bounded_by_their_rate() -> None:
    log = RequestLog(0.0, lambda _: None, lambda: NOW)
    assert sum(log.wants(500) for _ in range(1000)) == 100
    log.sweep()
    assert sum(log.wants(404) for _ in range(1000)) == 10
    assert log.dropped == 900 + 990


async def test_a_slow_disk_costs_lines_and_no_time() -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    log = RequestLog(1.0, lambda _data: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(), lambda: NOW)
    record = RequestRecord("t", "i", path="x" * 1000)
    for _ in range(5000):
        log.note(record)
        await asyncio.sleep(0)
    assert log._size <= access_log.BUFFER_BYTES
    assert log.dropped > 2000
    gate.set()
    await log.close()
    assert log.written + log.dropped == 5000


async def test_a_full_disk_costs_lines() -> None:
    def full(_data: bytes) -> None:
        raise OSError(28, "No space left on device")

    log = RequestLog(1.0, full, lambda: NOW)
    log.note(RequestRecord("t", "i"))
    await log.close()
    assert (log.written, log.dropped) == (0, 1)


def test_files_are_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "FILE_BYTES", 1000)
    one, two = RotatedFile(tmp_path / "access"), RotatedFile(tmp_path / "access")  # an old router beside a new one
    for number in range(400):
        (one if number % 2 else two).write(b"%04d %b\n" % (number, b"x" * 50))
    found = files(tmp_path / "access")
    assert [path.name for path in found] == [f"access.jsonl.{number}" for number in (4, 3, 2, 1)] + ["access.jsonl"][
        : len(found) - 4
    ]
    lines = b"".join(path.read_bytes() for path in found).splitlines()
    numbers = [int(line[:4]) for line in lines]
    assert numbers == list(range(numbers[0], 400))
    assert sum(path.stat().st_size for path in found) < 6 * 1000
    assert found[0].stat().st_mode & 0o777 == 0o600


async def test_the_log_survives_a_folder_that_went(tmp_path: Path) -> None:
    log = RequestLog(1.0, RotatedFile(tmp_path / "gone" / "access").write, lambda: NOW)
    log.note(RequestRecord("t", "i"))
    await log.close()
    assert log.dropped == 1
