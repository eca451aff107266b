"""Routers that are controlled over the network, only by clients with the token."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairway.app.system.clock import SystemClock
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.serving.router.control_socket import RouterControlSocket
from fairway.serving.router.daemon.remote_router import RemoteRouters
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

PLAN = RoutePlan("team/adds", (RouteBackend("r1-1", 1, "127.0.0.1:9"),), ((1, WHOLE),))


@pytest.fixture
async def routers() -> AsyncIterator[RemoteRouters]:
    """A client of the control ports."""
    found = RemoteRouters(SystemClock())
    yield found
    found.close()


@asynccontextmanager
async def control() -> AsyncIterator[tuple[RouterState, RouterControlSocket, str]]:
    """A router with its control port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        desk = RouterState("epoch", RouterLimits(), lambda: None)
        found = RouterControlSocket(desk, listener)
        port = await found.start_at_port(0, "secret")
        try:
            yield desk, found, f"127.0.0.1:{port}"
        finally:
            desk.put(RoutePlan("team/adds"))
            found.close()


async def test_a_plan_is_in_force_when_it_was_put_and_what_was_counted_is_told(routers: RemoteRouters) -> None:
    async with control() as (desk, _, address):
        await routers.put(PodPeer(address), "secret", PLAN)
        assert desk.routes.plan == PLAN
        desk.arrived = 7
        load = await routers.look(PodPeer(address), "secret")
        assert (load.arrived, load.epoch) == (7, "epoch")
        assert routers.together([load, load]).arrived == 14


async def test_who_does_not_know_the_token_is_not_heard(routers: RemoteRouters) -> None:
    async with control() as (desk, _, address):
        with pytest.raises(OSError, match="did not accept the plan: it closed the connection"):
            await routers.put(PodPeer(address), "guess", PLAN)
        with pytest.raises(OSError, match="did not answer"):
            await routers.look(PodPeer(address), "")
        assert desk.routes.plan.backends == ()


async def test_a_line_before_the_token_is_bounded(routers: RemoteRouters) -> None:
    async def flood(address: str) -> int:
        host, port = address.split(":")
        loop, sent = asyncio.get_running_loop(), 0
        with socket.create_connection((host, int(port))) as pipe:
            pipe.setblocking(False)
            try:
                while sent < 64_000_000:
                    await loop.sock_sendall(pipe, b"x" * 64_000)
                    sent += 64_000
            except ConnectionError:
                pass
        return sent

    async with control() as (desk, told, address):
        async with asyncio.timeout(20.0):
            sent = await asyncio.gather(*(flood(address) for _ in range(10)))
        assert max(sent) < 8_000_000, "refused once more than the sockets' buffers hold has come"
        assert not told._greeters
        await routers.put(PodPeer(address), "secret", PLAN)
        assert desk.routes.plan == PLAN


async def test_many_who_show_no_token_do_not_shut_out_who_does(routers: RemoteRouters) -> None:
    async with control() as (desk, told, address):
        host, port = address.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
        async with asyncio.timeout(20.0):
            while len(told._greeters) != 64:
                await asyncio.sleep(0.01)
        await routers.put(PodPeer(address), "secret", PLAN)
        assert desk.routes.plan == PLAN
        for _, writer in silent:
            writer.close()


async def test_a_plan_may_be_longer_than_what_is_read_at_once(routers: RemoteRouters) -> None:
    backends = tuple(RouteBackend(f"r1-{number}", 1, "127.0.0.1:9") for number in range(2_000))
    async with control() as (desk, _, address):
        await routers.put(PodPeer(address), "secret", RoutePlan("team/adds", backends, ((1, WHOLE),)))
        assert len(desk.routes.plan.backends) == 2_000


async def test_whoever_follows_hears_what_is_urgent_and_when_it_is_over(routers: RemoteRouters) -> None:
    async with control() as (_, told, address):
        woken = asyncio.Event()
        following = asyncio.create_task(routers.follow(PodPeer(address), "secret", woken.set))
        while not woken.is_set():
            told.wake()
            await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_the_listening_socket_is_given_to_nobody_over_the_network() -> None:
    async with control() as (_, _, address):
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"secret\nlistener\n")
        assert await reader.readexactly(1) == b"-"
        writer.close()


async def test_one_that_is_not_there_is_an_error_of_the_network(routers: RemoteRouters) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError, match=r"refused|Connect"):
        await routers.put(PodPeer(f"127.0.0.1:{port}"), "secret", PLAN)


@pytest.mark.parametrize("said", [b'{"epoch": "e1", "arri', b"HTTP/1.1 400 Bad Request\r\n"])
async def test_half_an_answer_and_a_stranger_at_the_address_are_told_as_such(said: bytes, routers: RemoteRouters) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(OSError, match=f"the router at {address} sent an invalid answer, b'"):
            await routers.look(PodPeer(address), "secret")
