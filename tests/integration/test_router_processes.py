"""The router's processes die, are replaced and are stopped: no request fails but those in flight on a killed router."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fairway.app.system.clock import SystemClock
from fairway.errors import BugError, ConflictError
from fairway.serving.router.daemon import port_probe
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.serving.router.keeper import LOCK, bind, take_lock
from fairway.serving.router.router_folder import is_kept, write
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan, RouterFault
from fairway.testing.fake.fake_replica import FakeReplica

SERVICE = "default/mnist"
POST = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"


class World:
    """A local router, and replicas."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder, self.runtime = folder, runtime
        self.home = folder / "default.mnist"
        self.router = LocalRouter(folder, runtime, SystemClock())
        self.woken = asyncio.Event()
        self.replicas: list[FakeReplica] = []

    async def replica(self, name: str = "a", revision: int = 1) -> FakeReplica:
        replica = FakeReplica(name, revision)
        self.replicas.append(replica)
        await replica.start()
        return replica

    async def put(self, *backends: RouteBackend, **more: object) -> int:
        weights = tuple((backend.revision, WHOLE) for backend in backends)
        return await self.router.put(RoutePlan(SERVICE, backends, weights, **more))

    @property
    def keeper(self) -> int:
        return int((self.home / LOCK).read_text())

    @property
    def routers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.runtime.glob("*/*.sock"))

    async def end(self) -> None:
        for service in await self.router.kept():
            await self.router.drop(service)
        await self.router.close()
        for replica in self.replicas:
            replica.gate.set()
            await replica.stop()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    world = World(tmp_path / "routers", runtime)
    await world.router.start(world.woken.set)
    yield world
    await world.end()
    shutil.rmtree(runtime)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(30.0):
        while not is_so():
            await asyncio.sleep(0.01)


async def ask(port: int, request: bytes = POST) -> int:
    """Return the status of one request on its own connection; 0 when the connection ends without a response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), 30.0)
        return int(line.split()[1]) if line else 0
    except ConnectionResetError:
        return 0
    finally:
        writer.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Load:
    """Clients that send requests continuously, each on its own connection."""

    def __init__(self, port: int, clients: int = 8) -> None:
        self.statuses: Counter[int] = Counter()
        self._over = False
        self._tasks = [asyncio.create_task(self._run(port)) for _ in range(clients)]

    async def _run(self, port: int) -> None:
        while not self._over:
            self.statuses[await ask(port)] += 1

    async def more(self, number: int) -> None:
        """Wait until this many more got a response."""
        goal = self.statuses[200] + number
        await until(lambda: self.statuses[200] >= goal)

    async def end(self) -> Counter[int]:
        self._over = True
        await asyncio.gather(*self._tasks)
        return self.statuses


async def test_kill_9_of_the_router_under_load(world: World) -> None:
    port = await world.put((await world.replica()).backend)
    clients = 8
    load = Load(port, clients)
    await load.more(100)
    before = (await world.router.look())[SERVICE].epoch
    kills = 3
    for _ in range(kills):
        (router,) = world.routers
        os.kill(router, signal.SIGKILL)
        await until(lambda router=router: world.routers and world.routers != [router])
        await load.more(50)
    statuses = await load.end()
    # Each client has at most one request in flight when a router dies.
    assert statuses.keys() <= {0, 200}
    assert statuses[0] <= kills * clients
    assert (await world.router.look())[SERVICE].epoch != before


async def test_connections_wait_for_the_next_router(world: World) -> None:
    """Stopped before it can accept, then killed: the next router serves the clients that connected meanwhile."""
    port = await world.put((await world.replica()).backend)
    (router,) = world.routers
    os.kill(router, signal.SIGSTOP)
    waiting = [asyncio.create_task(ask(port)) for _ in range(20)]
    connected = Path("/proc/net/tcp")
    await until(lambda: connected.read_text().count(f":{port:04X} 0100007F") >= 20)
    os.kill(router, signal.SIGKILL)
    assert await asyncio.gather(*waiting) == [200] * 20


async def test_a_new_router_takes_over_without_a_failed_request(world: World) -> None:
    replica = await world.replica()
    port = await world.put(replica.backend)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    replica.gate.clear()
    writer.write(POST)
    await replica.wait_for(1)
    (old,) = world.routers
    os.kill(world.keeper, signal.SIGHUP)
    await until(lambda: len(world.routers) == 2)
    # Both get the new plan, and both report their load.
    other = await world.replica("b", 2)
    await world.put(other.backend)
    load = (await world.router.look())[SERVICE]
    assert load.backends["a"].in_flight == 1
    assert "+" in load.epoch
    assert [await ask(port) for _ in range(5)] == [200] * 5
    assert len(other.asked) == 5
    assert is_alive(old)
    replica.gate.set()
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in answer
    assert b"connection: close" in answer
    writer.close()
    await until(lambda: old not in world.routers)
    assert [await ask(port) for _ in range(5)] == [200] * 5


async def test_a_router_of_another_version_is_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = await world.replica()
    port = await world.put(replica.backend)
    before = world.routers
    assert await world.put(replica.backend) == port
    assert world.routers == before
    monkeypatch.setattr("fairway.serving.router.daemon.local_router.__version__", "a newer one")
    load = Load(port)
    await load.more(20)
    await world.put(replica.backend)
    await until(lambda: world.routers and not set(before) & set(world.routers))
    await load.more(20)
    assert set(await load.end()) == {200}


async def test_a_plan_that_cannot_be_followed_changes_nothing(world: World) -> None:
    port = await world.put((await world.replica()).backend)
    with pytest.raises(BugError):
        await world.put(RouteBackend("bad", 1, "nowhere"))
    os.kill(world.routers[0], signal.SIGKILL)
    assert await ask(port) == 200


async def test_upgrades_under_load(world: World) -> None:
    port = await world.put((await world.replica()).backend)
    load = Load(port)
    for _ in range(3):
        await load.more(30)
        before = world.routers
        os.kill(world.keeper, signal.SIGHUP)
        await until(lambda before=before: world.routers and not set(before) & set(world.routers))
    assert set(await load.end()) == {200}


async def test_an_open_connection_is_served_by_the_old_router_to_its_end(world: World) -> None:
    port = await world.put((await world.replica()).backend)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    (old,) = world.routers
    os.kill(world.keeper, signal.SIGHUP)
    closes = False
    async with asyncio.timeout(30.0):
        while not closes:  # once the new router serves, the old one closes the connection with its next response
            writer.write(POST)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert " 200 " in head
            await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
            closes = "connection: close" in head
    assert await asyncio.wait_for(reader.read(), 30.0) == b""
    writer.close()
    await until(lambda: old not in world.routers)
    assert await ask(port) == 200


async def test_kill_9_of_the_keeper(world: World) -> None:
    """Its router continues; the next plan finds another keeper, which gets the same socket."""
    replica = await world.replica()
    port = await world.put(replica.backend)
    load = Load(port)
    await load.more(20)
    keeper, routers = world.keeper, world.routers
    os.kill(keeper, signal.SIGKILL)
    await load.more(50)
    assert await world.router.kept() == [SERVICE]
    assert await world.put(replica.backend) == port
    assert world.keeper != keeper
    await until(lambda: world.routers and not set(routers) & set(world.routers))
    await load.more(50)
    assert set(await load.end()) == {200}
    os.kill(world.routers[0], signal.SIGKILL)
    assert await ask(port) == 200


async def test_kill_9_of_both(world: World) -> None:
    """Then the socket is closed; the next plan listens at the same port again."""
    replica = await world.replica()
    port = await world.put(replica.backend)
    (router,) = world.routers
    os.kill(world.keeper, signal.SIGKILL)
    os.kill(router, signal.SIGKILL)
    await until(lambda: not is_alive(router))
    assert await world.put(replica.backend) == port
    assert await ask(port) == 200


async def test_a_killed_keeper_is_named_until_the_plan_is_put_again(world: World) -> None:
    replica = await world.replica()
    await world.put(replica.backend)
    assert await world.router.troubles() == {}
    (router,) = world.routers
    os.kill(world.keeper, signal.SIGKILL)
    await until(lambda: not is_kept(world.home))
    ended = "the process that holds its port has ended"
    assert await world.router.troubles() == {SERVICE: RouterFault(ended, answers=True)}
    world.woken.clear()
    os.kill(router, signal.SIGKILL)
    await asyncio.wait_for(world.woken.wait(), 30.0)
    assert await world.router.troubles() == {SERVICE: RouterFault(ended, answers=False)}
    await world.put(replica.backend)
    async with asyncio.timeout(30.0):
        while await world.router.troubles():
            await asyncio.sleep(0.01)


async def test_a_look_at_a_port_counts_as_no_request(world: World) -> None:
    replica = await world.replica()
    port = await world.put(replica.backend)
    for _ in range(5):
        assert await port_probe.ask("127.0.0.1", port)
    assert replica.asked == []
    assert (await world.router.look())[SERVICE].arrived == 0
    await world.router.drop(SERVICE)
    assert not await port_probe.ask("127.0.0.1", port)


async def test_a_drop_of_a_service_without_a_keeper(world: World) -> None:
    port = await world.put((await world.replica()).backend)
    (router,) = world.routers
    os.kill(world.keeper, signal.SIGKILL)
    await world.router.drop(SERVICE)
    assert await world.router.kept() == []
    await until(lambda: not is_alive(router))
    with pytest.raises(ConnectionRefusedError):
        await ask(port)


async def test_nothing_is_left_when_the_folder_goes(world: World) -> None:
    await world.put((await world.replica()).backend)
    keeper, (router,) = world.keeper, world.routers
    shutil.rmtree(world.home)
    await until(lambda: not is_alive(router) and not is_alive(keeper))


async def test_requests_under_way_are_answered_before_a_drop_ends(world: World) -> None:
    replica = await world.replica()
    port = await world.put(replica.backend)
    replica.gate.clear()
    asked = asyncio.create_task(ask(port))
    await replica.wait_for(1)
    dropping = asyncio.create_task(world.router.drop(SERVICE))
    await until(lambda: not _listens(port))
    replica.gate.set()
    assert await asked == 200
    await dropping


def _listens(port: int) -> bool:
    return any(f":{port:04X} 00000000:0000 0A" in line for line in Path("/proc/net/tcp").read_text().splitlines())


async def test_a_restarted_router_has_the_plan_at_once(world: World) -> None:
    """It reads the plan from the file: no process needs to send it."""
    port = await world.put((await world.replica()).backend)
    await world.router.close()  # the daemon is not connected
    (router,) = world.routers
    os.kill(router, signal.SIGKILL)
    assert await ask(port) == 200


async def test_wakes_come_from_every_router(world: World) -> None:
    port = await world.put()
    (router,) = world.routers
    os.kill(router, signal.SIGKILL)
    await until(lambda: world.routers and world.routers != [router])
    await asyncio.wait_for(world.woken.wait(), 30.0)  # the death of a router wakes the daemon by itself
    world.woken.clear()
    asked = asyncio.create_task(ask(port))
    await asyncio.wait_for(world.woken.wait(), 30.0)
    await world.put((await world.replica()).backend)
    assert await asked == 200


async def test_there_is_one_keeper_a_folder(world: World) -> None:
    await world.put()
    with pytest.raises(BlockingIOError):
        take_lock(str(world.home))
    command = [sys.executable, "-m", "fairway.serving.router.keeper", str(world.home), str(world.runtime), "127.0.0.1", "0"]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert second.stdout.startswith("error ")


async def test_the_keeper_and_its_router_are_in_a_session_of_their_own(world: World) -> None:
    await world.put()
    assert os.getsid(world.keeper) == world.keeper
    assert os.getsid(world.routers[0]) == world.keeper


async def test_only_the_owner_reaches_the_control_socket(world: World) -> None:
    await world.put()
    (path,) = world.runtime.glob("*/*.sock")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_port_that_is_taken(world: World) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConflictError) as caught:
        await world.put(port=port)
    assert str(port) in caught.value.message
    assert caught.value.fix
    server.close()
    await server.wait_closed()
    assert await world.put(port=port) == port


async def test_a_service_that_moves(world: World) -> None:
    replica = await world.replica()
    first = await world.put(replica.backend)
    probe = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    other = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    assert await world.put(replica.backend, port=other) == other
    assert await ask(other) == 200
    with pytest.raises(ConnectionRefusedError):
        await ask(first)


async def test_kill_9_of_replicas_under_load(world: World) -> None:
    """Replicas that close without a response and come back: only the requests that they had received fail."""
    replicas = [await world.replica("a"), await world.replica("b")]
    port = await world.put(*(replica.backend for replica in replicas))
    clients = 8
    load = Load(port, clients)
    kills = 4
    for turn in range(kills):
        await load.more(40)
        replica = replicas[turn % 2]
        await replica.stop()
        await load.more(40)
        await replica.start()
    statuses = await load.end()
    assert statuses.keys() <= {200, 502}
    assert statuses[502] <= kills * clients


async def test_kill_9_of_a_real_server_under_load(world: World) -> None:
    """One of two third-party servers is killed: only the requests that it had received fail, and the other serves the rest."""
    app = Path(__file__).parent / "router" / "app.py"
    servers = [await asyncio.create_subprocess_exec(sys.executable, app, stdout=asyncio.subprocess.PIPE) for _ in range(2)]
    ports = [int(await server.stdout.readline()) for server in servers]
    port = await world.put(*(RouteBackend(f"r{number}", 1, f"127.0.0.1:{each}") for number, each in enumerate(ports)))
    clients = 8
    load = Load(port, clients)
    await load.more(100)
    servers[0].kill()
    await load.more(200)
    statuses = await load.end()
    servers[1].kill()
    for server in servers:
        await server.communicate()
    assert statuses.keys() <= {200, 502}
    assert statuses[502] <= clients


class KeepAlive:
    """Clients that keep their connections for as long as the router does."""

    def __init__(self, port: int, clients: int = 6) -> None:
        self.statuses: Counter[int] = Counter()
        self.opened = 0
        self._over = False
        self._tasks = [asyncio.create_task(self._run(port)) for _ in range(clients)]

    async def _run(self, port: int) -> None:
        while not self._over:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            self.opened += 1
            open_still = True
            while open_still and not self._over:
                writer.write(POST)
                head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30.0)).decode()
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
                await reader.readexactly(length)
                self.statuses[int(head.split()[1])] += 1
                open_still = "connection: close" not in head
            writer.close()

    async def more(self, number: int) -> None:
        goal = self.statuses.total() + number
        await until(lambda: self.statuses.total() >= goal or any(task.done() for task in self._tasks))

    async def end(self) -> Counter[int]:
        self._over = True
        await asyncio.gather(*self._tasks)
        return self.statuses


async def test_everything_at_once_fails_nobody_who_keeps_a_connection(world: World) -> None:
    """Weights flip, replicas come and go, the router is replaced, the daemon restarts: every request gets its response."""
    replicas = [await world.replica("a"), await world.replica("b"), await world.replica("c", 2)]
    backends = [replica.backend for replica in replicas]
    port = await world.put(*backends[:2])
    load = KeepAlive(port)
    for turn in range(4):
        await load.more(40)
        await world.router.put(RoutePlan(SERVICE, tuple(backends), ((1, 5_000), (2, 5_000))))
        await load.more(40)
        await world.put(backends[2])
        await load.more(40)
        await world.put(backends[turn % 2])
        before = set(world.routers)
        os.kill(world.keeper, signal.SIGHUP)
        await until(lambda before=before: set(world.routers) - before)
        await world.router.close()
        world.router = LocalRouter(world.folder, world.runtime, SystemClock())
        await world.router.start(world.woken.set)
        await world.put(*backends[:2])
    statuses = await load.end()
    assert set(statuses) == {200}
    assert load.opened > 6  # connections were moved from router to router


async def test_the_port_is_known_although_nobody_wrote_it_down(world: World) -> None:
    """The daemon died after the keeper had started and before it noted the port; or the note was deleted."""
    replica = await world.replica()
    port = await world.put(replica.backend)
    noted = world.home / "port"
    noted.unlink()
    load = Load(port)
    await load.more(1)
    assert await world.put(replica.backend) == port
    assert await world.put(replica.backend, port=port) == port
    await load.more(20)
    assert set(await load.end()) == {200}, "its socket was not closed"
    assert noted.read_text() == str(port)


async def test_a_note_of_a_port_that_others_have_now_is_not_believed_after_a_crash(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await world.replica()
    port = await world.put(replica.backend)
    os.kill(world.keeper, signal.SIGTERM)
    await until(lambda: not is_kept(world.home))
    with bind("127.0.0.1", port):

        def die(path: Path, data: bytes) -> None:
            if path.name == "port":
                raise RuntimeError("the daemon dies")
            write(path, data)

        monkeypatch.setattr("fairway.serving.router.daemon.local_router.write", die)
        with pytest.raises(RuntimeError, match="the daemon dies"):
            await world.put(replica.backend)
        monkeypatch.undo()
        other = await world.put(replica.backend)
    assert other not in (0, port)
    assert await ask(other) == 200


async def test_outcomes_need_the_token_that_lies_in_the_folder(world: World) -> None:
    port = await world.put((await world.replica()).backend)
    token = world.home / "outcome-token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert world.router.outcome_token(SERVICE) == token.read_text()
    report = (
        "POST /fairway/outcome HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
        "fairway-revision: 1\r\nfairway-outcome: clicked=1\r\nAuthorization: Bearer {}\r\n\r\n"
    )
    assert await ask(port, report.format("guess").encode()) == 401
    assert await ask(port, report.format(token.read_text()).encode()) == 200
    await world.put((await world.replica("b")).backend)
    assert await ask(port, report.format(world.router.outcome_token(SERVICE)).encode()) == 200, "it stays the same"
    assert (await world.router.look())[SERVICE].revisions[1].outcomes == {"clicked": (2, 2.0, 2.0)}
