"""CPU of a request at 16 connections: one replica against BentoML, Ray Serve and FastAPI with PyTorch, LeNet-5, JSON.

`python serving_peers.py [ROUNDS] [SECONDS]`. The peers have their own environments (`.venvs/peers`, or `$FAIRWAY_PEERS`),
created when they are missing; FastAPI uses PyTorch from `.venvs/torch`. BentoML and Ray Serve run onnxruntime, which is in their
favour. CPU is that of all processes that a server started.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import serving
import serving_models
from bench import tell

HERE = Path(__file__).parent
ROOT = HERE.parent
PEERS = Path(os.environ.get("FAIRWAY_PEERS", ROOT / ".venvs" / "peers"))
NEEDS = {"bento": ["bentoml", "onnxruntime"], "ray": ["ray[serve]", "onnxruntime"]}
MUST = {"ray": 40, "fastapi": 4, "bentoml": 10}
MARK = "FAIRWAY_PEER_MARK"


def install() -> None:
    """Create the missing environments."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    for name, packages in NEEDS.items():
        if not (PEERS / name).exists():
            subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(PEERS / name)], check=True)
            subprocess.run([uv, "pip", "install", "-q", "--python", str(PEERS / name / "bin" / "python"), *packages], check=True)
    if not (PEERS / "fastapi").exists():
        packages = ["fastapi", "uvicorn", "httptools", "uvloop"]
        subprocess.run([uv, "pip", "install", "-q", "--target", str(PEERS / "fastapi"), *packages], check=True)


def commands(port: int) -> dict[str, list[str]]:
    """Return the command that starts each peer."""
    torch = ROOT / ".venvs" / "torch" / "bin" / "python"
    quiet = ["--http", "httptools", "--loop", "uvloop", "--no-access-log", "--log-level", "warning"]
    bento = str(PEERS / "bento" / "bin" / "bentoml")
    return {
        "bentoml": [bento, "serve", "with_bentoml:Lenet", "--port", str(port), "--working-dir", str(HERE / "peers"), "-q"],
        "ray": [str(PEERS / "ray" / "bin" / "python"), str(HERE / "peers" / "with_ray.py"), str(port)],
        "fastapi": [
            str(torch),
            "-m",
            "uvicorn",
            "with_fastapi:app",
            "--app-dir",
            str(HERE / "peers"),
            "--port",
            str(port),
            *quiet,
        ],
    }


def family(mark: str) -> list[int]:
    """Return a server's process and all processes that it started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def cpu_of(mark: str) -> float:
    """Return the CPU seconds of all of them."""
    return sum(serving.cpu_seconds(pid) for pid in family(mark))


@contextmanager
def peer(name: str, model: Path) -> Iterator[tuple[str, int]]:
    """Run a peer until it responds; all of its processes are ended afterwards."""
    port, mark = serving.free_port(), f"{name}-{os.getpid()}"
    paths = [str(HERE), str(PEERS / "fastapi")] if name == "fastapi" else []
    more = {"PEER_MODEL": str(model), MARK: mark, "PYTHONPATH": os.pathsep.join(paths)}
    more |= {"BENTOML_DO_NOT_TRACK": "True", "RAY_USAGE_STATS_ENABLED": "0"}
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(commands(port)[name], env={**os.environ, **more}, stdout=nothing, stderr=nothing)
    try:
        ends = time.monotonic() + 120
        while measure(mark, port, 1, 0.05, wire_of_peers())[0] == 0:
            assert process.poll() is None, f"{name} ended"
            assert time.monotonic() < ends, f"{name} does not answer"
            time.sleep(0.5)
        yield mark, port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        for pid in family(mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def wire_of_peers() -> bytes:
    """Return the same picture as a request for the peers."""
    body = serving.request("lenet", binary=False).partition(b"\r\n\r\n")[2]
    sent = json.dumps({"data": json.loads(body)["inputs"][0]["data"]}).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(sent) + sent


def measure(mark: str, port: int, connections: int, seconds: float, wire: bytes) -> tuple[int, float]:
    """Return the number of responses, and CPU of each in us; 0 responses when the peer does not work."""
    before = cpu_of(mark)
    command = [sys.executable, str(HERE / "serving_client.py"), str(port), str(connections), str(seconds)]
    done = subprocess.run(command, input=wire, capture_output=True, check=False)
    if done.returncode:
        return 0, 0.0
    answers = json.loads(done.stdout)["requests"]
    return answers, 1e6 * (cpu_of(mark) - before) / answers


def main() -> None:
    """Measure each peer in turn, with our replica between its rounds."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    install()
    with tempfile.TemporaryDirectory() as place:
        folder = serving_models.write("lenet", Path(place))
        port, wire = serving.free_port(), serving.request("lenet", binary=False)
        with serving.running(serving.replica_command(folder, port), port) as ours:
            for name, times in MUST.items():
                with peer(name, folder / "model.onnx") as (mark, theirs):
                    measure(mark, theirs, 16, 0.5, wire_of_peers())
                    found: list[tuple[float, float]] = []
                    for _ in range(rounds):
                        own = serving.ask(ours, 16, seconds, wire)[1]
                        found.append((own, measure(mark, theirs, 16, seconds, wire_of_peers())[1]))
                own, other = (statistics.median(column) for column in zip(*found, strict=True))
                what = f"CPU a request at 16 connections: {name} / one replica"
                tell(what, other / own, f">= {times}", met=other / own >= times, ours_us=round(own, 1), peer_us=round(other, 1))


if __name__ == "__main__":
    main()
