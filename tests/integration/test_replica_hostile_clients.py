"""Clients that close one side, send too much, read nothing or never end: each is bounded, and others get responses."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from hostile_clients import HEAD, post, question
from onnx import TensorProto, helper, numpy_helper
from replica_process import ReplicaProcess, replica

HELD = 32 << 20
WIDE = 1 << 14
"""Numbers in a row of the output `wide`: 64 KiB."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`y = 2 x`, and a row of 64 KiB for each row."""
    folder = tmp_path_factory.mktemp("wide")
    tensors = [
        numpy_helper.from_array(np.array(2, np.float32), "two"),
        numpy_helper.from_array(np.ones((1, WIDE), np.float32), "ones"),
    ]
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["y"]),
        helper.make_node("MatMul", ["x", "ones"], ["wide"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1]),
        helper.make_tensor_value_info("wide", TensorProto.FLOAT, ["n", WIDE]),
    ]
    made = helper.make_model(helper.make_graph(nodes, "m", inputs, outputs, tensors), opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    onnx.save(made, folder / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[ReplicaProcess]:
    with replica(model, "--name", "m", "--max-held", str(HELD), "--max-body", str(16 << 20), "--body-timeout", "5") as made:
        yield made


def connect(served: ReplicaProcess, seconds: float = 20.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), seconds)


def rest(wire: socket.socket) -> bytes:
    found = b""
    while more := wire.recv(1 << 16):
        found += more
    return found


def still_works(served: ReplicaProcess) -> None:
    status, answer, _ = served.ask("POST", "/v2/models/m/infer", question())
    assert (status, answer["outputs"][0]["data"]) == (200, [2.0])


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n", b"Expect: 100-continue\r\n"])
def test_a_client_that_closes_its_side_gets_its_answer(served: ReplicaProcess, more: bytes) -> None:
    for request, count in (
        (post(question(), more), 1),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(question()), question()), 1),
        (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
        (post(question()) + b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" + post(question("wide", binary_data=True)), 3),
    ):
        with connect(served) as wire:
            wire.sendall(request)
            wire.shutdown(socket.SHUT_WR)
            assert rest(wire).count(b"HTTP/1.1 200") == count
    still_works(served)


def test_a_client_that_closes_its_side_too_early_is_let_go(served: ReplicaProcess) -> None:
    for request in (b"", b"POST /v2", HEAD, post(question())[:-5], HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"):
        with connect(served) as wire:
            wire.sendall(request)
            wire.shutdown(socket.SHUT_WR)
            assert b"HTTP/1.1 200" not in rest(wire)
    still_works(served)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(served: ReplicaProcess) -> None:
    with connect(served) as wire:
        wire.sendall(HEAD + b"Content-Length: 999999999999\r\n\r\n")
        assert wire.recv(1 << 16).startswith(b"HTTP/1.1 413")
    with connect(served) as wire:
        wire.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % ((16 << 20) + 1) + b" " * 500_000)
        assert rest(wire).startswith(b"HTTP/1.1 413")
    still_works(served)


@pytest.mark.parametrize(
    "start",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nx-",
        b"GET / HTTP/1.1\r\nx: ",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ",
    ],
)
def test_a_head_without_end(served: ReplicaProcess, start: bytes) -> None:
    with connect(served) as wire:
        wire.sendall(start)
        sent = 0
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            while sent < 64 << 20:
                sent += wire.send(b"a" * 65536)
                wire.setblocking(True)
        assert sent < 32 << 20
    still_works(served)


def test_a_head_that_does_not_come(served: ReplicaProcess) -> None:
    with connect(served) as wire:
        wire.sendall(HEAD)
        assert rest(wire) == b""
    still_works(served)


def test_a_flood_of_early_requests_ends_the_connection(served: ReplicaProcess) -> None:
    with connect(served) as wire:
        wire.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000)
        try:
            found = rest(wire)
        except ConnectionResetError:
            found = b""
        assert found.count(b"HTTP/1.1 200") < 5000
    still_works(served)


@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:PORT"])
def test_a_page_that_reaches_the_port_by_its_own_name(served: ReplicaProcess, host: str) -> None:
    lines = {"Host": host.replace("PORT", str(served.port))}
    for method, path, body in (("POST", "/v2/models/m/infer", question()), ("GET", "/v2/models/m", None)):
        assert served.ask(method, path, body, lines)[0] == 403
    assert served.ask("POST", "/v2/models/m/infer", question(), {"Origin": "http://evil.example.com"})[0] == 403
    passed_on = {"Host": "mnist.example.com", "X-Forwarded-For": "10.0.0.1"}
    assert served.ask("POST", "/v2/models/m/infer", question(), passed_on)[0] == 200


def memory(process: int, name: str = "VmRSS") -> int:
    """Return the memory of a process in bytes, or its peak (`VmHWM`)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


async def latency(port: int, count: int) -> list[float]:
    """Return the seconds of requests of one ordinary client over one connection, from the first byte sent to the last read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(post(question()))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length"))
        await reader.readexactly(length)
        found.append(time.perf_counter() - began)
        await asyncio.sleep(0.01)
    writer.close()
    return found


@contextmanager
def attack(served: ReplicaProcess, clients: int, pause: float = 1.0, *kind: str) -> Iterator[None]:
    """Run hostile clients in a separate process."""
    program = [sys.executable, Path(__file__).with_name("hostile_clients.py"), str(served.port), str(clients), str(pause), *kind]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as hostile:
        assert hostile.stdout is not None
        try:
            assert hostile.stdout.readline() == b"all have begun\n"
            yield
            assert hostile.poll() is None, "the hostile clients ended: one got an answer that it should not get"
        finally:
            hostile.kill()


def asked_for(served: ReplicaProcess, seconds: float) -> list[float]:
    """Return the latencies of ordinary requests for a time."""
    ends, found = time.monotonic() + seconds, []
    while time.monotonic() < ends:
        found += asyncio.run(latency(served.port, 10))
    return found


def more_memory(served: ReplicaProcess, path: str, body: bytes) -> tuple[int, int]:
    """Return the status of a request, and the replica's peak of memory since it started to serve."""
    start = memory(served.process.pid)
    return served.ask("POST", path, body)[0], memory(served.process.pid, "VmHWM") - start


@pytest.mark.parametrize(
    ("path", "element", "most"),
    [
        ("/v2/models/m/infer", b"0", 5.0),
        ("/v2/models/m/infer", b"[0]", 4.0),
        ("/v1/models/m:predict", b"[0]", 4.0),
        ("/v1/models/m:predict", b'{"x":[0]}', 4.0),
    ],
)
def test_the_memory_of_one_large_json_body(model: Path, path: str, element: bytes, most: float) -> None:
    """Twice its bytes while its parts are joined; then the body and four bytes per number. It was up to 32 times."""
    count = (12 << 20) // (len(element) + 1)
    data = b",".join([element] * count)
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,1],"data":[%b]}]}' % (count, data)
    if "predict" in path:
        body = b'{"instances":[%b]}' % data
    with replica(model, "--name", "m") as served:
        status, grown = more_memory(served, path, body)
        assert status == 413  # all of it was decoded; the outputs would be too large
        assert grown < most * len(body), f"{grown / len(body):.1f} times"
        still_works(served)


def test_large_json_bodies_together_stay_within_the_bound(model: Path) -> None:
    """Bodies that do not fit beside the others get 429; the overshoot is at most what each may use once."""
    with replica(model, "--name", "m", "--max-held", str(HELD)) as served:
        start = memory(served.process.pid)
        with attack(served, 24, 0.2, "large_json"):
            assert len(asked_for(served, 6.0)) >= 20
        grown = memory(served.process.pid, "VmHWM") - start
        assert grown < 4 * HELD, f"{grown >> 20} MB"
        still_works(served)
    assert "Traceback" not in "".join(served.words)


def test_large_json_by_chunks_gets_the_same_answer(served: ReplicaProcess) -> None:
    """A body without a length takes another path through the server."""
    rows = 30_000
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,1],"data":[%b]}]}' % (rows, b",".join([b"0.25"] * rows))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:70_000], body[70_000:]))
    for request in (post(body), HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"):
        with connect(served) as wire:
            wire.sendall(request)
            wire.shutdown(socket.SHUT_WR)
            found = rest(wire)
            assert found.startswith(b"HTTP/1.1 413"), found[:200]
            assert b"outputs for 30000 rows" in found
    with connect(served) as wire:
        wire.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        for _ in range(16):
            wire.sendall(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        wire.sendall(b"0\r\n\r\n")
        wire.shutdown(socket.SHUT_WR)
        assert rest(wire).startswith(b"HTTP/1.1 413")
    still_works(served)


def test_some_hostile_clients(model: Path) -> None:
    with replica(model, "--name", "m", "--max-held", str(HELD), "--max-body", str(16 << 20), "--body-timeout", "5") as served:
        start = memory(served.process.pid)
        with attack(served, 80):
            assert len(asked_for(served, 6.0)) >= 20
        grown = memory(served.process.pid, "VmHWM") - start
        assert grown < 4 * HELD, f"{grown >> 20} MB"
        still_works(served)
    assert "Traceback" not in "".join(served.words)


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Pin processes that start within to this core alone; on a machine with one core, do nothing."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def compared(model: Path, clients: int, rounds: int, *kind: str) -> float:
    """Return the ratio of an ordinary client's latency at an attacked replica to that at a replica beside it: medians, in turns.

    Both replicas have one core, and all clients another one: both ordinary clients compete with the hostile ones, and both
    replicas with each other. So the difference is the delay that the attacked replica itself causes its other clients. Each
    second of the one is compared with the adjacent second of the other, because other programs may start and stop.
    """
    attacked, undisturbed = [], []
    with pinned(0), replica(model, "--name", "m") as served, replica(model, "--name", "m") as alone, pinned(1):
        with attack(served, clients, 1.0, *kind):
            for _ in range(rounds):
                undisturbed.append(statistics.median(asked_for(alone, 1.0)))
                attacked.append(statistics.median(asked_for(served, 1.0)))
        still_works(served)
    ratio = statistics.median(loud / usual for loud, usual in zip(attacked, undisturbed, strict=True))
    usual, loud = statistics.median(undisturbed), statistics.median(attacked)
    print(f"latency: median {1e3 * usual:.2f} ms beside, {1e3 * loud:.2f} ms attacked: {ratio:.2f} times")
    return ratio


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_memory_of_a_replica_under_a_thousand_hostile_clients(model: Path) -> None:
    with replica(model, "--name", "m") as served:
        start = memory(served.process.pid)
        with attack(served, 1000):
            asked_for(served, 40.0)
        grown = memory(served.process.pid, "VmHWM") - start
        print(f"memory: {grown >> 20} MB more under a flood of 1,000 clients")
        assert grown < 2 * (256 << 20), f"{grown >> 20} MB"
        still_works(served)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("clients", "kind"), [(1000, ()), (1000, ("huge",)), (24, ("large_json",))])
def test_others_wait_at_most_twice_as_long_under_a_flood(model: Path, clients: int, kind: tuple[str, ...]) -> None:
    assert compared(model, clients, 20, *kind) < 2.0
