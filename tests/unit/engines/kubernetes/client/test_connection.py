"""Requests against a small server in this process: which are retried, and which are not."""

import asyncio

import pytest
from aiohttp import web

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.cluster_target import ClusterTarget, ClusterUser
from fairway.engines.kubernetes.client.connection import ApiConnection, RetryRule, may_repeat, pause


@pytest.fixture
async def server():
    """A server with scripted answers: (status, body, headers), or None to close the connection. Records the requests."""
    script, seen = [], []

    async def answer(request):
        seen.append((request.method, request.path_qs, await request.read(), dict(request.headers)))
        given = script.pop(0)
        if given is None:
            request.transport.abort()
            return web.Response()
        status, body, headers = given
        return web.Response(status=status, text=body, headers=headers)

    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}", script, seen
    await runner.cleanup()


@pytest.fixture
async def connection(server, monkeypatch):
    pauses = []

    async def no_sleep(seconds):
        pauses.append(seconds)

    async with ApiConnection(ClusterTarget(server[0], ClusterUser(token="t")), SystemClock(), lambda: 0.5) as made:
        monkeypatch.setattr("fairway.engines.kubernetes.client.connection.asyncio.sleep", no_sleep)
        made.pauses = pauses
        yield made


async def test_a_call(connection, server):
    _, script, seen = server
    script.append((200, "{}", {}))
    assert await connection.call("ask", "PATCH", "/a%2Fb?c=d%3De", b"body", "application/x") == b"{}"
    ((method, path, body, headers),) = seen
    assert (method, path, body) == ("PATCH", "/a%2Fb?c=d%3De", b"body")
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/x", "Bearer t")


async def test_reads_are_repeated(connection, server):
    server[1].extend([(503, "later", {}), None, (429, "busy", {"Retry-After": "2"}), (200, "ok", {})])
    assert await connection.call("ask", "GET", "/") == b"ok"
    assert connection.pauses[-1] == pytest.approx(2.25)
    assert len(connection.pauses) in (2, 3)  # aiohttp itself retries when a connection was closed before the answer


async def test_it_gives_up_after_five(connection, server):
    server[1].extend([(503, "later", {})] * 9)
    with pytest.raises(errors.Unavailable, match="cannot ask: later"):
        await connection.call("ask", "GET", "/")
    assert len(server[2]) == 5


async def test_a_write_that_may_have_been_done_is_not_repeated(connection, server):
    server[1].append(None)
    with pytest.raises(errors.Unavailable, match="the request may have been executed") as caught:
        await connection.call("create", "POST", "/", b"{}", repeat=RetryRule.UNDONE)
    assert caught.value.unknown
    assert len(server[2]) == 1


async def test_a_write_that_the_server_put_off_is(connection, server):
    server[1].extend([(429, "busy", {"Retry-After": "1"}), (201, "made", {})])
    assert await connection.call("create", "POST", "/", b"{}", repeat=RetryRule.UNDONE) == b"made"


async def test_a_server_that_is_not_there(connection):
    connection.target = ClusterTarget("http://127.0.0.1:1")
    with pytest.raises(errors.Unavailable) as caught:
        await connection.call("create", "POST", "/", b"{}", repeat=RetryRule.UNDONE)
    assert not caught.value.unknown
    assert len(connection.pauses) == 4
    assert "http://127.0.0.1:1 does not answer" in caught.value.message


async def test_without_a_permit_nothing_is_sent_not_even_again(connection, server):
    answers = iter([True, False])
    server[1].append((503, "later", {}))
    with pytest.raises(errors.NotPermitted, match="not the leader"):
        await connection.call("apply", "PATCH", "/", b"{}", permit=lambda: next(answers))
    assert len(server[2]) == 1


async def test_a_silent_stream_is_given_up(server, monkeypatch):
    held = asyncio.Event()

    async def hold(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await held.wait()
        return response

    application = web.Application()
    application.router.add_get("/", hold)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ApiConnection(ClusterTarget(f"http://127.0.0.1:{runner.addresses[0][1]}"), SystemClock()) as connection:
        with pytest.raises(errors.Unavailable):
            async with connection.stream("watch", "/", silence=0.05) as body:
                assert await body.readany() == b"first\n"
                await body.readany()
    held.set()
    await runner.cleanup()


def test_what_may_be_repeated():
    unknown = errors.Unavailable("x")
    unknown.unknown = True
    budget = errors.TooManyRequests("x", causes=(errors.StatusCause(reason="DisruptionBudget"),))
    assert may_repeat(unknown, RetryRule.ALWAYS)
    assert not may_repeat(unknown, RetryRule.UNDONE)
    assert may_repeat(errors.Unavailable("x"), RetryRule.UNDONE)
    assert may_repeat(errors.TooManyRequests("x"), RetryRule.UNDONE)
    assert not may_repeat(budget, RetryRule.ALWAYS)
    assert not may_repeat(errors.Unavailable("x"), RetryRule.NEVER)
    assert not may_repeat(errors.Conflict("x"), RetryRule.ALWAYS)


def test_pauses_double_and_spread():
    assert [pause(tries, 0.0, 1.0) for tries in (1, 2, 3, 20)] == [0.1, 0.2, 0.4, 10.0]
    assert pause(1, 0.0, 0.0) == 0.05
    assert pause(9, 4.0, 0.0) == 4.0
