"""Logs and programs in a pod, against a small server that implements the protocol."""

import json

import pytest
from aiohttp import web

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.cluster_target import ClusterTarget
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.client.pod_session import PROTOCOL, STDERR, STDOUT, LogOptions, execute, exit_code, logs

FAILED = {
    "status": "Failure",
    "reason": "NonZeroExitCode",
    "message": "command terminated with exit code 3",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}


@pytest.fixture
async def pod():
    """(connection, asked): a pod whose programs echo their input."""
    asked = []

    async def log(request):
        asked.append(request.query_string)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in (b"one\n", b"two\n"):
            await response.write(line)
        return response

    async def run(request):
        asked.append(request.query_string)
        if "refused" in request.query_string:
            return web.json_response({"kind": "Status", "reason": "Forbidden", "message": "cannot exec"}, status=403)
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        await socket.send_bytes(b"\x01")  # the API server opens each stream with an empty message
        async for message in socket:
            asked.append(message.data)
            if message.data[:1] == b"\x00":
                await socket.send_bytes(b"\x01" + message.data[1:])
            if message.data == b"\xff\x00":
                await socket.send_bytes(b"\x02bad")
                if "lost" not in request.query_string:
                    await socket.send_bytes(b"\x03" + json.dumps(FAILED).encode())
                break
        await socket.close()
        return socket

    application = web.Application()
    application.router.add_get("/api/v1/namespaces/t/pods/p/log", log)
    application.router.add_get("/api/v1/namespaces/t/pods/p/exec", run)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ApiConnection(ClusterTarget(f"http://127.0.0.1:{runner.addresses[0][1]}"), SystemClock()) as connection:
        yield connection, asked
    await runner.cleanup()


async def test_a_log(pod):
    connection, asked = pod
    wish = LogOptions(container="main", follow=True, tail=0, since_seconds=5)
    found = b"".join([chunk async for chunk in logs(connection, "p", "t", wish)])
    assert found == b"one\ntwo\n"
    assert asked == ["container=main&follow=true&tailLines=0&sinceSeconds=5"]


async def test_a_program(pod):
    connection, asked = pod
    async with execute(connection, "p", "t", ["sh", "-c", "a b"], container="main", stdin=True) as session:
        await session.write(b"hello")
        await session.resize(80, 24)
        await session.close_input()
        said = [one async for one in session.output()]
    assert said == [(STDOUT, b"hello"), (STDERR, b"bad")]
    assert session.exit_code == 3
    assert asked[0] == "command=sh&command=-c&command=a b&container=main&stdin=true&stdout=true&stderr=true"
    assert asked[2] == b'\x04{"Width":80,"Height":24}'


async def test_a_program_that_may_not_run(pod):
    with pytest.raises(errors.Forbidden, match="cannot exec"):
        async with execute(pod[0], "p", "t", ["refused"]):
            pass


async def test_a_connection_that_is_lost_is_no_success(pod):
    async with execute(pod[0], "p", "t", ["lost"], stdin=True) as session:
        await session.close_input()
        assert [one async for one in session.output()] == [(STDERR, b"bad")]
    with pytest.raises(errors.Unavailable, match="lost before the program ended"):
        _ = session.exit_code


def test_exit_codes():
    assert exit_code("run", errors.ApiStatus(status="Success")) == 0
    with pytest.raises(errors.ApiError, match="no such container"):
        exit_code("run", errors.ApiStatus(status="Failure", reason="InternalError", message="no such container"))
