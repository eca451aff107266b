"""One replica against a bare ASGI handler that calls onnxruntime inline: latency alone, CPU under load, cold start.

`python serving.py [ROUNDS] [SECONDS]`. Both servers run at once and get requests in turn; an idle one costs nothing. CPU is that
of the server's process, from /proc, per request.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import serving_models
from bench import interleaved, median_ratio, tell

HERE = Path(__file__).parent
Server = tuple[int, int]
"""Process and port."""


def cpu_seconds(pid: int) -> float:
    """Return user and system time of all threads of a process, to the nanosecond."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # A thread may have ended meanwhile.
            total += int(path.read_text().split()[0])
    return total / 1e9


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the port accepts connections."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            assert process.poll() is None, "the server ended"
            time.sleep(0.002)
        else:
            return


def replica_command(folder: Path, port: int) -> list[str]:
    """Return the command of a replica."""
    return [
        sys.executable,
        "-m",
        "fairway.serving.replica",
        "--folder",
        str(folder),
        "--name",
        "m",
        "--version",
        "1",
        "--port",
        str(port),
    ]


def bare_command(port: int) -> list[str]:
    """Return the command of the bare handler."""
    return [
        sys.executable, "-m", "uvicorn", "serving_bare:app", "--app-dir", str(HERE), "--port", str(port), "--http", "httptools",
        "--loop", "uvloop", "--lifespan", "off",
        "--no-access-log", "--no-date-header", "--no-server-header", "--log-level", "warning",
    ]  # fmt: skip


@contextmanager
def running(command: list[str], port: int, **variables: str) -> Iterator[Server]:
    """Run a server until the end of the block."""
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_port(port, process)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


def request(name: str, *, binary: bool) -> bytes:
    """Return one row for a model, as a complete HTTP request."""
    row = np.random.default_rng(1).random((1, *serving_models.SHAPES[name]), np.float32)
    tensor: dict[str, object] = {"name": "x", "shape": row.shape, "datatype": "FP32"}
    asked: dict[str, object] = {"inputs": [tensor]}
    extra = b""
    if binary:
        tensor["parameters"] = {"binary_data_size": row.nbytes}
        asked["parameters"] = {"binary_data_output": True}
        head = json.dumps(asked).encode()
        body = head + row.tobytes()
        extra = b"Inference-Header-Content-Length: %d\r\n" % len(head)
    else:
        # As clients usually send pixels: a few digits.
        tensor["data"] = [round(float(value), 6) for value in row.ravel()]
        body = json.dumps(asked).encode()
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


def ask(server: Server, connections: int, seconds: float, wire: bytes) -> tuple[float, float]:
    """Return the median latency in ms, and CPU per request in us."""
    pid, port = server
    before = cpu_seconds(pid)
    command = [sys.executable, str(HERE / "serving_client.py"), str(port), str(connections), str(seconds)]
    done = subprocess.run(command, input=wire, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    found = json.loads(done.stdout)
    return found["p50_ms"], 1e6 * (cpu_seconds(pid) - before) / found["requests"]


def compare(ours: Server, bare: Server, name: str, rounds: int, seconds: float) -> None:
    """Compare with one connection, then with 64."""
    for binary in (False, True):
        wire, form = request(name, binary=binary), "binary" if binary else "JSON"
        for server in (ours, bare):
            ask(server, 8, 0.3, wire)  # both warm
        if name == "lenet":
            found = in_turn(ours, bare, 1, rounds, seconds, wire, 0)
            _tell(f"LeNet-5, {form}, 1 connection: p50 / bare handler", found, 1.15, "ms")
        found = in_turn(ours, bare, 64, rounds, seconds, wire, 1)
        must = 1.0 if name == "lenet" else 0.30 if binary else 0.40
        _tell(f"{name}, {form}, 64 connections: CPU a request / bare handler", found, must, "us")


def in_turn(
    ours: Server, bare: Server, connections: int, rounds: int, seconds: float, wire: bytes, which: int
) -> dict[str, list[float]]:
    """Return latency (`which` 0) or CPU (1) of both servers, measured in turn."""
    return interleaved(
        rounds,
        ours=lambda: ask(ours, connections, seconds, wire)[which],
        bare=lambda: ask(bare, connections, seconds, wire)[which],
    )


def _tell(what: str, found: dict[str, list[float]], must: float, unit: str) -> None:
    ratio = median_ratio(found["ours"], found["bare"])
    more = {f"{key}_{unit}": round(statistics.median(values), 3) for key, values in found.items()}
    tell(what, ratio, f"<= {must}", met=ratio <= must, **more)


def cold_start(folder: Path, rounds: int) -> None:
    """Measure the start until the first accepted connection, against importing onnxruntime and loading the model."""
    program = (
        f"import onnxruntime; onnxruntime.InferenceSession({str(folder / 'model.onnx')!r}, providers=['CPUExecutionProvider'])"
    )

    def bare() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        return time.perf_counter() - began

    def ours() -> float:
        port = free_port()
        began = time.perf_counter()
        with running(replica_command(folder, port), port):
            return time.perf_counter() - began

    _tell("cold start to ready / importing onnxruntime and loading", interleaved(rounds, ours=ours, bare=bare), 1.5, "s")


def main() -> None:
    """Print all rows."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    with tempfile.TemporaryDirectory() as place:
        for name in ("lenet", "mlp"):
            folder = serving_models.write(name, Path(place))
            first, second = free_port(), free_port()
            with (
                running(replica_command(folder, first), first) as ours,
                running(bare_command(second), second, BARE_MODEL=str(folder / "model.onnx")) as bare,
            ):
                compare(ours, bare, name, rounds, seconds)
        cold_start(Path(place) / "lenet", 2 * rounds)


if __name__ == "__main__":
    main()
