"""Third-party clients and servers, with the router between them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairway.app.system.clock import SystemClock
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent / "router"


@pytest.fixture(scope="module")
def others() -> str:
    """The interpreter that has the clients."""
    made = subprocess.run([ROOT / "scripts" / "framework-venv", "proxies"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip("the environment of proxies cannot be installed here")
    return made.stdout.strip()


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a service with two replicas under uvicorn."""
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    servers = [
        await asyncio.create_subprocess_exec(sys.executable, HERE / "app.py", stdout=asyncio.subprocess.PIPE) for _ in range(2)
    ]
    ports = [int(await server.stdout.readline()) for server in servers]
    router = LocalRouter(tmp_path, runtime, SystemClock())
    await router.start(lambda: None)
    backends = tuple(RouteBackend(f"r{number}", 1, f"127.0.0.1:{port}") for number, port in enumerate(ports))
    port = await router.put(RoutePlan("default/echo", backends, ((1, WHOLE),)))
    yield f"http://127.0.0.1:{port}"
    load = (await router.look())["default/echo"]
    assert sum(backend.in_flight for backend in load.backends.values()) == 0
    await router.drop("default/echo")
    await router.close()
    for server in servers:
        server.terminate()
        await server.communicate()
    shutil.rmtree(runtime)


async def run(*command: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    said, problem = await asyncio.wait_for(process.communicate(), 60.0)
    assert process.returncode == 0, problem.decode()
    return said.decode()


@pytest.mark.framework("proxies")
@pytest.mark.parametrize("library", ["requests", "httpx", "aiohttp"])
async def test_a_library(url: str, others: str, library: str) -> None:
    assert await run(others, HERE / "clients.py", library, url) == "good\n"


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not here")
class TestCurl:
    async def test_plain(self, url: str) -> None:
        assert json.loads(await run("curl", "-sSf", "-d", "hello", f"{url}/a"))["size"] == 5

    async def test_a_large_body_is_announced_first(self, url: str, tmp_path: Path) -> None:
        large = tmp_path / "large"
        large.write_bytes(b"x" * 2_000_000)
        said = await run("curl", "-sSf", "-H", "Expect: 100-continue", "--data-binary", f"@{large}", f"{url}/a")
        assert json.loads(said)["size"] == 2_000_000
        said = await run("curl", "-sSf", "-H", "Transfer-Encoding: chunked", "--data-binary", f"@{large}", f"{url}/a")
        assert json.loads(said)["size"] == 2_000_000

    @pytest.mark.parametrize("flag", ["--http1.0", "--http2", "-I", "--compressed"])
    async def test_other_ways_to_ask(self, url: str, flag: str) -> None:
        said = await run("curl", "-sSf", flag, "-o", "/dev/null", "-w", "%{http_code} %{http_version}", f"{url}/a")
        assert said.split()[0] == "200"

    async def test_events(self, url: str) -> None:
        assert (await run("curl", "-sSfN", f"{url}/events")).endswith("data: [DONE]\n\n")


async def test_requests_spread_over_several_connections_and_replicas(url: str) -> None:
    answers = await asyncio.gather(*(run("curl", "-sSf", *[f"{url}/{number}" for number in range(20)]) for _ in range(4)))
    assert all(answer.count('"GET"') == 20 for answer in answers)
