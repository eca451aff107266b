"""Cost of API keys, a rate limit, CORS and TLS: CPU time per request of a router with and without them, in turns.

`python benchmarks/router_access.py [SECONDS]`. The figure is the CPU time of the router's process divided by the requests that it
served; connections stay open. Handshakes are measured separately, with connections that each send one request.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from bench import tell
from router import REQUEST, Sender, cpu_of

from fairway.app.system.clock import SystemClock
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.state.serving.access import AccessRules, ApiKey, CorsRule, KeyRule, TlsRule, digest_of, format_key
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

ROUNDS = 5
CONNECTIONS = 64
KEY = format_key("default/keys", "0000000a", "a" * 64)
RATED = KeyRule("bench", "0000000a", digest_of(KEY), rate=1e6)
KINDS = {
    "plain": None,
    "keys": AccessRules(keys_required=True),
    "cors": AccessRules(cors=CorsRule(("https://app.example.org",))),
    "tls": AccessRules(tls=TlsRule()),
}


class Asker(Sender):
    """A client that sends the key."""

    request = REQUEST

    def connection_made(self, transport):
        """Send the first request."""
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        """Count a complete response, and send the next request."""
        self.raw += data
        if len(self.raw) > 90 and self.raw.endswith(b"x" * 90):
            self.load["good" if self.raw.startswith(b"HTTP/1.1 200") else "bad"] += 1
            self.raw = b""
            self.transport.write(self.request)


def send(kind: str, port: int, seconds: float, authority: str) -> None:
    """Generate the load; print the number of responses."""
    lines = {"keys": f"Authorization: Bearer {KEY}\r\n", "cors": "Origin: https://app.example.org\r\n"}.get(kind, "")
    Asker.request = REQUEST.replace(b"User-Agent", lines.encode() + b"User-Agent")
    tls = ssl.create_default_context(cafile=authority) if kind in ("tls", "handshakes") else None

    async def main():
        load = {"good": 0, "bad": 0}
        loop = asyncio.get_running_loop()
        if kind == "handshakes":
            until = time.perf_counter() + seconds

            async def again():
                while time.perf_counter() < until:
                    done = {"good": 0, "bad": 0}
                    transport, _ = await loop.create_connection(
                        lambda done=done: Asker(done), "127.0.0.1", port, ssl=tls, server_hostname="localhost"
                    )
                    while not done["good"] + done["bad"]:
                        await asyncio.sleep(0.001)
                    transport.abort()
                    load["good"] += 1

            await asyncio.gather(*(again() for _ in range(8)))
        else:
            name = {"ssl": tls, "server_hostname": "localhost"} if tls else {}
            for _ in range(CONNECTIONS):
                await loop.create_connection(lambda: Asker(load), "127.0.0.1", port, **name)
            await asyncio.sleep(seconds)
        print(load["good"], load["bad"], flush=True)
        os._exit(0)

    uvloop.run(main())


def measure(kind: str, port: int, pid: int, seconds: float, authority: str) -> float:
    """Return microseconds of the router's CPU per request."""
    before = cpu_of(pid)
    command = [sys.executable, __file__, "send", kind, str(port), str(seconds), authority]
    ran = subprocess.run(command, capture_output=True, check=True)
    good, bad = map(int, ran.stdout.split())
    assert good > 0, ran
    assert bad == 0, ran
    return 1e6 * (cpu_of(pid) - before) / good


async def compare(folder: Path, backend: int, seconds: float) -> None:
    """Measure all variants in turn."""
    router = LocalRouter(folder / "routers", folder / "run", SystemClock())
    await router.change_keys("default/keys", lambda _keys: (ApiKey(RATED),))
    places = {}
    known: set[Path] = set()
    for kind, access in KINDS.items():
        plan = RoutePlan(f"default/{kind}", (RouteBackend("a", 1, f"127.0.0.1:{backend}"),), ((1, WHOLE),), access=access)
        port = await router.put(plan)
        sockets = set((folder / "run").glob("*/*.sock"))
        places[kind] = (port, int((sockets - known).pop().stem))
        known = sockets
    authority = router.access_state("default/tls").authority
    try:
        rounds = [{kind: measure(kind, *place, seconds, authority) for kind, place in places.items()} for _ in range(ROUNDS)]
        cpu = {kind: statistics.median(each[kind] for each in rounds) for kind in places}
        figures = {f"{kind}_us": round(value, 1) for kind, value in cpu.items()}
        for kind in ("keys", "cors", "tls"):
            ratio = cpu[kind] / cpu["plain"]
            tell(f"router CPU a request with {kind} / without", ratio, "<= 2", met=ratio <= 2, **figures)
        shake = statistics.median(measure("handshakes", *places["tls"], seconds, authority) for _ in range(3))
        tell("router CPU a TLS connection with one request, ms", shake / 1000, "<= 5", met=shake <= 5000)
    finally:
        for kind in KINDS:
            await router.drop(f"default/{kind}")


def main() -> None:
    """Start the backend, then compare the variants."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    with tempfile.TemporaryDirectory(prefix="fw-bench-") as name:
        folder = Path(name)
        said = folder / "backend"
        program = Path(__file__).with_name("router.py")
        backend = subprocess.Popen([sys.executable, str(program), "serve", str(said)])
        try:
            while not said.exists() or not said.read_text():
                time.sleep(0.02)
            asyncio.run(compare(folder, int(said.read_text()), seconds))
        finally:
            backend.kill()
            backend.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
    else:
        main()
