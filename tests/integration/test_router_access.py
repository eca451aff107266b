"""The port of a service from an attacker's view: keys, TLS, other origins; and its state when processes are killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairway.app.system.clock import SystemClock
from fairway.serving.router.access.connection_acceptor import MOST_HANDSHAKES
from fairway.serving.router.access.self_signed import AUTHORITY, CERTIFICATE, KEY, renew
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.serving.router.keeper import LOCK
from fairway.state.serving.access import AccessRules, ApiKey, CorsRule, KeyRule, TlsRule, digest_of, format_key
from fairway.state.serving.route import WHOLE, RoutePlan
from fairway.testing.fake.fake_replica import FakeReplica

SERVICE = "default/mnist"
GOOD = format_key(SERVICE, "0000000a", "a" * 64)
OTHER = format_key("default/cifar", "0000000a", "a" * 64)
GUARDED = AccessRules(keys_required=True)
SECURED = AccessRules(keys_required=True, tls=TlsRule())

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")


class World:
    """A local router with one replica."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder, self.runtime = folder, runtime
        self.home = folder / "default.mnist"
        self.router = LocalRouter(folder, runtime, SystemClock())
        self.replica = FakeReplica("a", 1)
        self.port = 0

    async def put(self, access: AccessRules | None = None, **more: object) -> int:
        await self.replica.start()
        return await self.follow(access, **more)

    async def follow(self, access: AccessRules | None, **more: object) -> int:
        plan = RoutePlan(SERVICE, (self.replica.backend,), ((1, WHOLE),), access=access, **more)  # type: ignore[arg-type]
        self.port = await self.router.put(plan)
        return self.port

    async def key(self, text: str = GOOD, **rule: object) -> None:
        made = ApiKey(KeyRule("ci", "0000000a", digest_of(text), **rule))  # type: ignore[arg-type]
        await self.router.change_keys(SERVICE, lambda _keys: (made,))

    async def revoke(self) -> None:
        await self.router.change_keys(SERVICE, lambda _keys: ())

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.home / "tls" / AUTHORITY))

    @property
    def routers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.runtime.glob("*/*.sock"))

    @property
    def keeper(self) -> int:
        return int((self.home / LOCK).read_text())

    async def end(self) -> None:
        for service in await self.router.kept():
            await self.router.drop(service)
        await self.router.close()
        await self.replica.stop()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    world = World(tmp_path / "routers", runtime)
    await world.router.start(lambda: None)
    yield world
    await world.end()
    shutil.rmtree(runtime)


class Line:
    """A connection with one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None, **more: object) -> Line:
        name = {"server_hostname": "localhost"} if tls else {}
        async with asyncio.timeout(20.0):
            return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, **{**name, **more}))  # type: ignore[arg-type]

    async def ask(
        self, *lines: str, method: str = "POST", target: str = "/v2/x", host: str = "localhost"
    ) -> tuple[int, str, bytes]:
        """Return status, head and body; 0 when the connection ends without a response."""
        length = ["Content-Length: 3"] if method == "POST" else []
        head = "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *length, *lines, "", ""])
        try:
            async with asyncio.timeout(20.0):
                self.writer.write(head.encode("latin-1") + (b"abc" if length else b""))
                answer = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
                found = [line for line in answer.split("\r\n") if line.startswith("content-length: ")]
                body = await self.reader.readexactly(int(found[0].partition(": ")[2])) if found else b""
        except (OSError, EOFError):
            return 0, "", b""
        return int(answer.split()[1]), answer, body

    def close(self) -> None:
        self.writer.close()


async def status(world: World, *lines: str, tls: ssl.SSLContext | None = None, **more: str) -> int:
    line = await Line.open(world.port, tls)
    try:
        return (await line.ask(*lines, **more))[0]
    finally:
        line.close()


async def until(is_so) -> None:
    async with asyncio.timeout(30.0):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_keys_over_plain_http(world: World) -> None:
    await world.put(GUARDED)
    assert await status(world, f"Authorization: Bearer {GOOD}") == 401  # no key exists yet: all requests are refused
    await world.key()
    for line, wanted in [
        (f"Authorization: Bearer {GOOD}", 200), (f"X-API-Key: {GOOD}", 200), (f"api-key: {GOOD}", 200), ("X-Any: 1", 401),
        ("Authorization: Bearer wrong", 401), (f"Authorization: Bearer {OTHER}", 403), (f"Authorization: Basic {GOOD}", 401),
        (f"Authorization: Bearer {GOOD}\r\nAuthorization: Bearer x", 400), (f"X-API-Key: {GOOD}\r\nX-API-KEY: {GOOD}", 400),
        (f"Authorization: Bearer {GOOD}\r\nContent-Length: 0", 400), (f"Authorization: Bearer\r\n {GOOD}", 400),
        (f"X-API-Key: {'k' * 40_000}", 431),
    ]:  # fmt: skip
        assert await status(world, line) == wanted, line[:80]


async def test_the_key_never_reaches_the_replica(world: World) -> None:
    await world.put(GUARDED)
    await world.key()
    line = await Line.open(world.port)
    for header in ("Authorization: Bearer", "X-API-Key:", "api-key:"):
        code, _, body = await line.ask(f"{header} {GOOD}", "X-Kept: yes")
        assert code == 200
        assert b"x-kept" in body.lower() or world.replica.asked
    line.close()
    assert not any(GOOD.encode() in repr(request).encode() for request in world.replica.asked)


async def test_what_is_revoked_is_refused_on_connections_that_are_open(world: World) -> None:
    await world.put(GUARDED)
    await world.key()
    line = await Line.open(world.port)
    assert (await line.ask(f"X-API-Key: {GOOD}"))[0] == 200
    await world.revoke()
    assert (await line.ask(f"X-API-Key: {GOOD}"))[0] == 401
    line.close()
    os.kill(world.routers[0], signal.SIGKILL)
    await until(lambda: world.routers)
    assert await status(world, f"X-API-Key: {GOOD}") == 401


async def test_an_expired_key_and_a_rate(world: World) -> None:
    await world.put(GUARDED)
    await world.key(expires=1.0)
    assert await status(world, f"X-API-Key: {GOOD}") == 401
    await world.key(rate=3.0)
    line = await Line.open(world.port)
    codes = [(await line.ask(f"X-API-Key: {GOOD}"))[0] for _ in range(30)]
    line.close()
    assert codes[:3] == [200] * 3
    assert 429 in codes


async def test_tls_with_a_certificate_that_strict_clients_trust(world: World) -> None:
    await world.put(SECURED)
    await world.key()
    tls = world.trust()
    tls.verify_flags |= ssl.VERIFY_X509_STRICT
    line = await Line.open(world.port, tls)
    assert (await line.ask(f"X-API-Key: {GOOD}"))[0] == 200
    assert (await line.ask("X-Any: 1"))[0] == 401
    assert line.writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
    line.close()
    assert await world.router.troubles() == {}
    assert oct((world.home / "tls" / KEY).stat().st_mode & 0o777) == "0o600"
    assert oct((world.home / "keys.json").stat().st_mode & 0o777) == "0o600"
    assert GOOD not in (world.home / "keys.json").read_text() + (world.home / "plan.json").read_text()


async def test_plain_http_at_a_port_with_tls(world: World) -> None:
    await world.put(SECURED)
    await world.key()
    line = await Line.open(world.port)
    code, answer, body = await line.ask(f"X-API-Key: {GOOD}")
    assert code == 426
    assert b"https://" in body
    assert "connection: close" in answer
    line.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
async def test_older_tls_is_refused(world: World, version: ssl.TLSVersion) -> None:
    await world.put(SECURED)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = version
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await Line.open(world.port, old)


async def test_clients_that_never_finish_a_handshake(world: World) -> None:
    """Their number is bounded at any time, and other clients get responses meanwhile."""
    await world.put(SECURED)
    await world.key()
    router = Path(f"/proc/{world.routers[0]}/fd")
    before = len(list(router.iterdir()))
    silent = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(MOST_HANDSHAKES)]
    halves = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(MOST_HANDSHAKES)]
    for _, writer in halves:
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00")
    assert await status(world, f"X-API-Key: {GOOD}", tls=world.trust()) == 200
    # Beyond the limit, the oldest are closed: all that are silent, in time.
    for reader, _ in silent[: MOST_HANDSHAKES - 8]:
        async with asyncio.timeout(20.0):
            assert await reader.read() == b""
    assert len(list(router.iterdir())) <= before + MOST_HANDSHAKES + 16
    for _, writer in silent + halves:
        writer.close()
    await until(lambda: len(list(router.iterdir())) <= before + 4)


async def test_garbage_instead_of_a_handshake(world: World) -> None:
    await world.put(SECURED)
    await world.key()
    for garbage in (
        b"\x16\x03\x01\xff\xff" + b"\0" * 70_000,
        b"\x16" * 64,
        b"\x80\x2e\x01\x03\x01",
        b"\0" * 100,
        b"SSH-2.0-x\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(garbage)
        writer.write_eof()
        async with asyncio.timeout(30.0):
            try:
                await reader.read()
            except ConnectionError:
                pass
        writer.close()
    assert await status(world, f"X-API-Key: {GOOD}", tls=world.trust()) == 200


async def test_a_replaced_certificate_is_used_without_dropping_a_connection(world: World, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    renew(pairs, "one", ["localhost"], SystemClock().now())
    rule = TlsRule(str(pairs / CERTIFICATE), str(pairs / KEY))
    await world.put(replace(SECURED, tls=rule))
    await world.key()
    first = ssl.create_default_context(cafile=str(pairs / AUTHORITY))
    line = await Line.open(world.port, first)
    assert (await line.ask(f"X-API-Key: {GOOD}"))[0] == 200
    (pairs / KEY).write_text("half a key")
    await asyncio.sleep(1.5)
    assert await status(world, f"X-API-Key: {GOOD}", tls=first) == 200  # the previous pair stays in use
    shutil.rmtree(pairs)
    renew(pairs, "two", ["localhost"], SystemClock().now())
    second = ssl.create_default_context(cafile=str(pairs / AUTHORITY))
    async with asyncio.timeout(20.0):
        while True:
            try:
                if await status(world, f"X-API-Key: {GOOD}", tls=second) == 200:
                    break
            except ssl.SSLCertVerificationError:
                await asyncio.sleep(0.05)
    assert (await line.ask(f"X-API-Key: {GOOD}"))[0] == 200
    line.close()


async def test_a_service_gets_tls_and_keys_while_clients_are_connected(world: World) -> None:
    """Connections from before follow the new rules: there is no moment in which the port is open."""
    await world.put(None)
    line = await Line.open(world.port)
    assert (await line.ask())[0] == 200
    await world.follow(GUARDED)
    assert (await line.ask())[0] == 401
    await world.follow(SECURED)
    assert (await line.ask())[0] == 426
    line.close()
    await world.key()
    assert await status(world, f"X-API-Key: {GOOD}", tls=world.trust()) == 200
    await world.follow(None)
    assert await status(world) == 200


@pytest.mark.parametrize("who", ["router", "keeper", "both"])
async def test_a_kill_is_repaired_within_two_seconds(world: World, who: str) -> None:
    await world.put(SECURED)
    await world.key()
    tls = world.trust()
    routers, keeper = world.routers, world.keeper
    for victim in (*(routers if who != "keeper" else ()), *([keeper] if who != "router" else ())):
        os.kill(victim, signal.SIGKILL)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(20.0):
        while True:
            if who != "router" and any(trouble.lacks_process for trouble in (await world.router.troubles()).values()):
                await world.follow(SECURED)
            try:
                if await status(world, f"X-API-Key: {GOOD}", tls=tls) == 200:
                    break
            except OSError:
                await asyncio.sleep(0.02)
    # The bound holds on an idle machine; a loaded one starts processes more slowly.
    assert loop.time() - begun < 10.0
    assert await status(world, tls=tls) == 401


async def test_a_certificate_that_is_gone_closes_the_port_and_opens_nothing(world: World, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    renew(pairs, "one", ["localhost"], SystemClock().now())
    await world.put(replace(SECURED, tls=TlsRule(str(pairs / CERTIFICATE), str(pairs / KEY))))
    await world.key()
    tls = ssl.create_default_context(cafile=str(pairs / AUTHORITY))
    (pairs / KEY).rename(pairs / "away")
    os.kill(world.routers[0], signal.SIGKILL)
    before = world.routers
    await until(lambda: world.routers and world.routers != before)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await status(world, tls=tls)
    assert await status(world, f"X-API-Key: {GOOD}") == 426
    assert "cannot be read" in world.router.access_state(SERVICE).problem
    (pairs / "away").rename(pairs / KEY)
    async with asyncio.timeout(20.0):
        while True:
            try:
                assert await status(world, f"X-API-Key: {GOOD}", tls=tls) == 200
                break
            except OSError:
                await asyncio.sleep(0.05)


async def test_a_router_that_knows_no_rules_is_ended(world: World) -> None:
    """A router of an older version refuses a plan with rules: another replaces it, and its open connections end."""
    await world.put(None)
    sockets = next(world.runtime.glob("router-*"))
    old = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)", stdout=subprocess.DEVNULL)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"error a route plan that cannot be read\n")
        writer.close()

    server = await asyncio.start_unix_server(refuse, sockets / f"{old.pid}.sock")
    await world.follow(GUARDED)
    async with asyncio.timeout(20.0):
        assert await old.wait() == -signal.SIGUSR1
    assert await status(world) == 401
    server.close()
    (sockets / f"{old.pid}.sock").unlink()


async def test_pages_of_other_origins(world: World) -> None:
    cors = CorsRule(("https://app.example.org",))
    await world.put(replace(GUARDED, cors=cors))
    await world.key()
    line = await Line.open(world.port)
    origin = "Origin: https://app.example.org"
    code, answer, _ = await line.ask(origin, "Access-Control-Request-Method: POST", method="OPTIONS")
    assert code == 204
    assert "access-control-allow-origin: https://app.example.org" in answer
    code, answer, _ = await line.ask(origin, f"X-API-Key: {GOOD}")
    assert code == 200
    assert answer.count("access-control-allow-origin") == 1
    code, answer, _ = await line.ask(origin)
    assert code == 401
    assert "access-control-allow-origin: https://app.example.org" in answer
    code, answer, _ = await line.ask("Origin: https://evil.example", f"X-API-Key: {GOOD}", "Content-Type: application/json")
    assert code == 200
    assert "access-control-allow-origin" not in answer
    code, _, _ = await line.ask("Origin: https://evil.example", "Access-Control-Request-Method: POST", method="OPTIONS")
    assert code == 403
    line.close()


async def test_beyond_loopback_only_names_that_are_given(world: World) -> None:
    await world.put(None, host="0.0.0.0", hosts=("gpu7",))
    assert await status(world, host="gpu7:8000") == 200
    assert await status(world, host="evil.example") == 403
    await world.follow(None, host="0.0.0.0")
    assert await status(world, host="evil.example") == 200


async def test_uses_of_keys_are_listed(world: World) -> None:
    await world.put(GUARDED)
    await world.key()
    assert [key.used for key in await world.router.keys(SERVICE)] == [0.0]
    assert await status(world, f"X-API-Key: {GOOD}") == 200
    (key,) = await world.router.keys(SERVICE)
    assert abs(key.used - SystemClock().now()) < 60.0
    assert not world.router.access_state(SERVICE).certificate


async def test_http2_meets_the_same_rules(world: World) -> None:
    """Over TLS with ALPN, and by prior knowledge at a port without TLS."""
    curl = shutil.which("curl")
    if curl is None or "HTTP2" not in subprocess.run([curl, "--version"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("needs curl with HTTP/2")

    async def ask(url: str, *options: str) -> str:
        shown = ("-s", "-o", str(world.folder / "body"), "-w", "%{http_version} %{http_code}")
        run = await asyncio.create_subprocess_exec(curl, *shown, *options, url, stdout=subprocess.PIPE)
        return (await run.communicate())[0].decode()

    await world.put(SECURED)
    await world.key()
    trusted = ("--http2", "--cacert", str(world.home / "tls" / AUTHORITY))
    url = f"https://localhost:{world.port}/v2/x"
    assert await ask(url, *trusted, "-H", f"X-API-Key: {GOOD}") == "2 200"
    assert await ask(url, *trusted, "-d", "abc", "-H", f"Authorization: Bearer {GOOD}") == "2 200"
    assert await ask(url, *trusted) == "2 401"
    assert await ask(url, *trusted, "-H", f"X-API-Key: {OTHER}") == "2 403"
    assert await ask(url, *trusted, "-H", f"X-API-Key: {GOOD}", "-H", f"api-key: {GOOD}") == "2 400"
    assert await ask(f"http://localhost:{world.port}/x", "--http2-prior-knowledge", "-H", f"X-API-Key: {GOOD}") == "2 426"
    assert not any(GOOD in repr(request) for request in world.replica.asked)
    await world.revoke()
    assert await ask(url, *trusted, "-H", f"X-API-Key: {GOOD}") == "2 401"
    await world.follow(replace(GUARDED, cors=CorsRule(("https://app.example.org",))))
    plain = f"http://localhost:{world.port}/x"
    preflight = ("-X", "OPTIONS", "-H", "Origin: https://app.example.org", "-H", "Access-Control-Request-Method: POST")
    assert await ask(plain, "--http2-prior-knowledge", *preflight) == "2 204"
    assert await ask(plain, "--http2-prior-knowledge", "-H", "Host: evil.example") == "2 403"


async def test_a_websocket_needs_a_key(world: World) -> None:
    await world.put(GUARDED)
    await world.key()
    offer = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + "A" * 22 + "==")
    assert await status(world, *offer, method="GET") == 401
    assert await status(world, *offer, "Authorization: Bearer x", method="GET") == 401
    assert world.replica.asked == []
    await status(world, *offer, f"Authorization: Bearer {GOOD}", method="GET")
    assert GOOD not in repr(world.replica.asked)
