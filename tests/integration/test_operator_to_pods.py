"""Requests of the operator to pods, over real ports: certificates, TLS, and what crosses the network.

The operator's port, the certificates, routers' control ports, agents and the container beside a replica are the real ones. Only
the API server's review of tokens is replaced: `pod-a` presents the token `of pod-a`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509

from fairway.api.pods.download import make_given
from fairway.app.system.clock import SystemClock
from fairway.bootstrap.pod_certificate import PodCertificateRoutes
from fairway.bootstrap.pod_server import PodServer
from fairway.engines.kubernetes import certificate_authority as authorities
from fairway.engines.kubernetes.agent import gpu_usage
from fairway.engines.kubernetes.certificate_authority import DAY, CertificateAuthority
from fairway.engines.kubernetes.identity.pod_authenticator import agent_name, pod_name
from fairway.errors import DeniedError
from fairway.runtime.pod import operator_tls
from fairway.runtime.secured import pod_certificate as leaves
from fairway.runtime.secured import tls_listener as listeners
from fairway.runtime.secured.load import LoadReporter
from fairway.runtime.secured.pod_certificate import PodCertificate
from fairway.runtime.secured.pod_peer import PodPeer, dial
from fairway.runtime.secured.tls_listener import TlsListener
from fairway.serving.replica_prober import PodLoadClient
from fairway.serving.router.control_socket import RouterControlSocket
from fairway.serving.router.daemon.remote_router import RemoteRouters
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

PLAN = RoutePlan("team/adds", (RouteBackend("r1-1", 1, "127.0.0.1:9"),), ((1, WHOLE),))
TOKEN = "the token of the router"
A, B = pod_name("pod-a"), pod_name("pod-b")


class Judged:
    """Names the caller by its token."""

    def __init__(self) -> None:
        self.asked = 0

    async def name_of(self, token: str) -> str:
        self.asked += 1
        if not token.startswith("of "):
            raise DeniedError("this is no token of a pod", fix="show another")
        return pod_name(token.removeprefix("of "))


@dataclass
class Operator:
    """The operator's port."""

    authority: CertificateAuthority
    judged: Judged
    port: int
    routers: RemoteRouters
    clock: list[float] = field(default_factory=list)
    """Seconds by which its clock is wrong."""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def leaf(self, pod: str = "pod-a", authority: CertificateAuthority | None = None) -> PodCertificate:
        """Return the certificate of a pod that trusts the operator, or another authority."""
        trusted = (authority or self.authority).certificates
        return PodCertificate(self.url, lambda: f"of {pod}", lambda: trusted)


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    wrong = [0.0]
    authority = CertificateAuthority(tmp_path / "tls", ("localhost",), lambda: time.time() + wrong[0])
    judged = Judged()
    server = PodServer(make_given(PodCertificateRoutes(judged, authority).routes()), 0, authority)  # type: ignore[arg-type]
    await server.open()
    routers = RemoteRouters(SystemClock(), authority.trusted())
    yield Operator(authority, judged, server.port, routers, wrong)
    routers.close()
    await server.close()


@contextlib.asynccontextmanager
async def router(tls: ssl.SSLContext | None) -> AsyncIterator[tuple[RouterState, str]]:
    """Yield a router's control port."""
    with socket.create_server(("127.0.0.1", 0)) as requests:
        desk = RouterState("epoch", RouterLimits(), lambda: None)
        control = RouterControlSocket(desk, requests)
        port = await control.start_at_port(0, TOKEN, tls)
        try:
            yield desk, f"127.0.0.1:{port}"
        finally:
            desk.put(RoutePlan("team/adds"))
            control.close()


class Relay:
    """An attacker on the network: forwards everything, and records it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.heard = bytearray()
        self.open: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, _, port = self._target.rpartition(":")
            self.open.append(writer)
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))

        server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.heard += data
                writer.write(data)
        writer.close()


async def until(what: str, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not holds():
            await asyncio.sleep(0.01)
    assert holds(), what


async def test_a_router_is_told_its_plan_and_its_token_does_not_cross_in_clear(operator: Operator) -> None:
    leaf = operator.leaf()
    await leaf.renew()
    async with router(leaf.context) as (desk, address), (relay := Relay(address)).listening() as between:
        await operator.routers.put(PodPeer(between, A), TOKEN, PLAN)
        desk.arrived = 7
        assert (await operator.routers.look(PodPeer(between, A), TOKEN)).arrived == 7
        assert desk.routes.plan == PLAN
        assert bytes(relay.heard[:2]) == b"\x16\x03"
        for secret in (TOKEN.encode(), b"put ", b"r1-1", b"arrived"):
            assert secret not in relay.heard
    # The same relay reads all of it without TLS: this shows that the check above can fail.
    async with router(None) as (_, address), (relay := Relay(address)).listening() as between:
        await operator.routers.put(PodPeer(between), TOKEN, PLAN)
        assert TOKEN.encode() in relay.heard


async def test_a_router_that_sees_something_wakes_the_operator_over_tls(operator: Operator) -> None:
    leaf = operator.leaf()
    await leaf.renew()
    with socket.create_server(("127.0.0.1", 0)) as requests:
        control = RouterControlSocket(RouterState("epoch", RouterLimits(), lambda: None), requests)
        address = f"127.0.0.1:{await control.start_at_port(0, TOKEN, leaf.context)}"
        woken = asyncio.Event()
        following = asyncio.create_task(operator.routers.follow(PodPeer(address, A), TOKEN, woken.set))
        await until("the operator listens", lambda: bool(control._watchers))
        control.wake()
        async with asyncio.timeout(10.0):
            await woken.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        control.close()


async def test_a_connection_that_a_router_closed_is_opened_again(operator: Operator) -> None:
    leaf = operator.leaf()
    await leaf.renew()
    async with router(leaf.context) as (desk, address), (relay := Relay(address)).listening() as between:
        peer = PodPeer(between, A)
        await operator.routers.put(peer, TOKEN, PLAN)
        await operator.routers.look(peer, TOKEN)
        assert len(relay.open) == 1, "questions go over one connection"
        for one in relay.open:
            one.transport.abort()
        desk.arrived = 3
        assert (await operator.routers.look(peer, TOKEN)).arrived == 3
        assert len(relay.open) == 2


@contextlib.asynccontextmanager
async def impostor(context: ssl.SSLContext | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Accept connections in the place of a pod, and record what arrives after the handshake."""
    heard: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                heard.append(data)
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


async def test_the_token_is_sent_to_the_pod_of_that_name_alone(operator: Operator, tmp_path: Path) -> None:
    """Another pod's certificate, one of another authority, an expired one, the operator's own, and none at all."""
    stolen, over = operator.leaf("pod-b"), operator.leaf()
    await stolen.renew()
    operator.clock[0] = -2 * DAY
    await over.renew()
    operator.clock[0] = 0.0
    other = CertificateAuthority(tmp_path / "other", ("localhost",), time.time)
    foreign = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = other.issue(A)
    (tmp_path / "foreign.pem").write_bytes(made.key + made.certificate)
    foreign.load_cert_chain(tmp_path / "foreign.pem")
    refused = {
        "another pod": (stolen.context, "Hostname mismatch"),
        "over": (over.context, "certificate has expired"),
        "another authority": (foreign, "unable to get local issuer|self-signed|signature failure"),
        "the operator": (operator.authority.context, "Hostname mismatch"),
    }
    for what, (context, words) in refused.items():
        async with impostor(context) as (address, heard):
            for ask in (
                operator.routers.put(PodPeer(address, A), TOKEN, PLAN),
                operator.routers.look(PodPeer(address, A), TOKEN),
            ):
                with pytest.raises(ssl.SSLCertVerificationError, match=words):
                    await ask
            assert await gpu_usage.ask(f"https://{address}", TOKEN, A, operator.authority.trusted()) == {}
            assert heard == [], what
    async with impostor(None) as (address, heard):
        with pytest.raises(TimeoutError):
            await operator.routers.put(PodPeer(address, A), TOKEN, PLAN)
        assert TOKEN.encode() not in b"".join(heard)
        assert b"".join(heard)[:1] == b"\x16", "all that it hears is the beginning of a handshake"


async def test_without_an_authority_a_pod_with_a_name_is_not_asked_at_all() -> None:
    async with impostor(None) as (address, heard):
        with pytest.raises(OSError, match="no authority to verify it with"):
            await RemoteRouters(SystemClock()).put(PodPeer(address, A), TOKEN, PLAN)
        assert await PodLoadClient(None).ask(PodPeer(address, A), SystemClock()) is None
        assert await gpu_usage.ask(f"https://{address}", TOKEN, A) == {}
        assert heard == []


async def test_a_port_with_tls_takes_nothing_without(operator: Operator) -> None:
    leaf = operator.leaf()
    await leaf.renew()
    async with router(leaf.context) as (desk, address):
        with pytest.raises(OSError, match="closed the connection"):
            await RemoteRouters(SystemClock()).put(PodPeer(address), TOKEN, PLAN)
        assert desk.routes.plan.backends == ()
        await operator.routers.put(PodPeer(address, A), TOKEN, PLAN)
        with pytest.raises(OSError, match="closed the connection"):
            await operator.routers.put(PodPeer(address, A), "a guess", PLAN)


async def test_a_certificate_is_renewed_under_an_open_connection_and_before_it_ends(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorities, "POD_LIFE", 4.0)
    monkeypatch.setattr("fairway.bootstrap.pod_certificate.POD_RENEW", 1.0)
    leaf = operator.leaf()
    keeping = asyncio.create_task(leaf.keep())
    await until("the first came", lambda: operator.judged.asked >= 1)
    async with router(leaf.context) as (desk, address):
        peer, trusted = PodPeer(address, A), operator.authority.trusted()
        reader, writer = await opened(peer, trusted)
        first = serial(writer)
        end = time.monotonic() + 8.0
        while time.monotonic() < end:  # Twice the lifetime of a certificate.
            await operator.routers.put(peer, TOKEN, PLAN)
            operator.routers.close()  # The next one is another connection.
            await asyncio.sleep(0.05)
        writer.write(TOKEN.encode() + b"\nlook\n")
        assert json.loads(await reader.readline())["epoch"] == "epoch", "the connection of before goes on"
        assert desk.routes.plan == PLAN
        writer.close()
        _, writer = await opened(peer, trusted)
        assert serial(writer) != first
        writer.close()
    keeping.cancel()


async def opened(peer: PodPeer, trusted: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection, as soon as the pod has its certificate."""
    async with asyncio.timeout(20.0):
        while True:
            try:
                return await dial(peer, trusted)
            except OSError:
                await asyncio.sleep(0.01)


def serial(writer: asyncio.StreamWriter) -> int:
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(shown).serial_number


async def test_one_that_is_over_is_refused_until_the_next_one_comes(operator: Operator) -> None:
    leaf = operator.leaf()
    operator.clock[0] = -2 * DAY
    await leaf.renew()
    operator.clock[0] = 0.0
    async with router(leaf.context) as (desk, address):
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            await operator.routers.put(PodPeer(address, A), TOKEN, PLAN)
        await leaf.renew()
        await operator.routers.put(PodPeer(address, A), TOKEN, PLAN)
        assert desk.routes.plan == PLAN


async def test_a_pod_asks_anew_when_the_operator_has_another_authority(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of a record: an agent reads the authority from a file that is kept current."""
    monkeypatch.setattr(leaves, "LOOK", 0.01)
    known = [operator.authority.certificates]
    keeping = asyncio.create_task(PodCertificate(operator.url, lambda: "of pod-a", lambda: known[0]).keep())
    await until("the first came", lambda: operator.judged.asked == 1)
    known[0] += operator.authority.certificates
    await until("the next came", lambda: operator.judged.asked == 2)
    keeping.cancel()


async def test_a_pod_sends_its_token_to_its_own_operator_alone(operator: Operator, tmp_path: Path) -> None:
    other = CertificateAuthority(tmp_path / "other", ("localhost",), time.time)
    with pytest.raises(OSError, match="certificate verify failed"):
        await operator.leaf(authority=other).renew()
    with pytest.raises(OSError, match="no authority"):
        await PodCertificate(operator.url, lambda: "of pod-a", lambda: "").renew()
    with pytest.raises(ValueError, match="not an https address"):
        await PodCertificate(
            operator.url.replace("https", "http"), lambda: "of pod-a", lambda: operator.authority.certificates
        ).renew()
    assert operator.judged.asked == 0
    with pytest.raises(OSError, match="403"):
        await PodCertificate(operator.url, lambda: "a guess", lambda: operator.authority.certificates).renew()


async def test_a_key_is_not_given_over_plain_http(operator: Operator) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", operator.port)
    writer.write(
        b"POST /v1/leaf HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer of pod-a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"PRIVATE" not in answer
    assert operator.judged.asked == 0


async def test_an_agent_is_asked_over_tls_and_one_of_before_is_not(operator: Operator) -> None:
    async def use() -> dict[str, float]:
        return {"GPU-1": 0.5}

    async def known(token: str) -> bool:
        return token == TOKEN

    leaf, trusted, name = operator.leaf(), operator.authority.trusted(), agent_name("node-1")
    made = operator.authority.issue(name)
    leaves._show(leaf.context, made.key + made.certificate)
    secured, plain = gpu_usage.GpuUsageServer(use, known, leaf.context), gpu_usage.GpuUsageServer(use, known)
    try:
        port, of_before = await secured.open(0), await plain.open(0)
        async with (relay := Relay(f"127.0.0.1:{port}")).listening() as between:
            assert await gpu_usage.ask(f"https://{between}", TOKEN, name, trusted) == {"GPU-1": 0.5}
            assert TOKEN.encode() not in relay.heard
        assert await gpu_usage.ask(f"https://127.0.0.1:{port}", "bad", name, trusted) == {}
        assert await gpu_usage.ask(f"https://127.0.0.1:{port}", TOKEN, agent_name("node-2"), trusted) == {}
        assert await gpu_usage.ask(f"https://127.0.0.1:{port}", TOKEN, "", trusted) == {}
        assert await gpu_usage.ask(f"http://127.0.0.1:{port}", TOKEN, name, trusted) == {}, (
            "a port with TLS takes nothing without"
        )
        assert await gpu_usage.ask(f"http://127.0.0.1:{of_before}", TOKEN, name, trusted) == {"GPU-1": 0.5}
    finally:
        await secured.close()
        await plain.close()


async def test_silent_connections_do_not_shut_the_operator_out(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "MOST_GREETING", 4)
    leaf = operator.leaf()
    await leaf.renew()
    async with router(leaf.context) as (desk, address):
        host, port = address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(20)]
        try:
            await operator.routers.put(PodPeer(address, A), TOKEN, PLAN)
            assert desk.routes.plan == PLAN
            silent[0].settimeout(10.0)
            assert silent[0].recv(1) == b"", "the oldest is closed"
        finally:
            for one in silent:
                one.close()


@contextlib.asynccontextmanager
async def replica(body: bytes, status: bytes = b"200 OK") -> AsyncIterator[int]:
    """A minimal replica that reports its load."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"GET /fairway/load ")
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_the_load_of_a_replica_comes_over_tls_and_nothing_else_of_it_does(operator: Operator) -> None:
    leaf, trusted = operator.leaf(), operator.authority.trusted()
    await leaf.renew()
    async with replica(b'{"served": 3, "busy_seconds": 1.5}') as port:
        listener, loads = TlsListener(leaf.context, LoadReporter(port).met, 8192), PodLoadClient(trusted)
        address = f"127.0.0.1:{await listener.open(0)}"
        assert await loads.ask(PodPeer(address, B), SystemClock()) is None, "it is another pod"
        assert await loads.ask(PodPeer(address), SystemClock()) is None, "it does not answer without TLS"
        for _ in range(2):
            load = await loads.ask(PodPeer(address, A), SystemClock())
            assert load is not None
            assert (load.served, load.busy_seconds) == (3, 1.5)
        reader, writer = await dial(PodPeer(address, A), trusted)
        for asked, status in ((b"POST /fairway/load", b"404"), (b"GET /v2/models", b"404"), (b"GET /fairway/load", b"200")):
            writer.write(asked + b" HTTP/1.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split(b" ")[1] == status
            if status == b"200":
                assert json.loads(await reader.read(100)) == {"served": 3, "busy_seconds": 1.5}
        writer.close()
        loads.close()
        listener.close()


@pytest.mark.parametrize(("body", "status"), [(b"x" * 100_000, b"200 OK"), (b"{}", b"500 No")])
async def test_what_a_replica_says_is_bounded(body: bytes, status: bytes) -> None:
    async with replica(body, status) as port:
        assert await LoadReporter(port)._ask() == (b"503 Service Unavailable", b"")
    assert await LoadReporter(port)._ask() == (b"503 Service Unavailable", b""), "it is not there"


async def test_the_container_beside_a_replica_is_a_process_that_gets_its_certificate_and_ends_when_told(
    operator: Operator, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("of pod-a")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = (
        "from fairway.runtime.secured import pod_certificate, load\n"
        f"pod_certificate.token_of.__defaults__ = ({str(tmp_path / 'token')!r},)\n"
        "load.main()"
    )
    async with replica(b'{"served": 4}') as served:
        arguments = ["--operator", operator.url, "--port", str(port), "--replica", str(served)]
        environment = {**os.environ, operator_tls.AUTHORITY: operator.authority.certificates}
        process = subprocess.Popen([sys.executable, "-c", program, *arguments], env=environment)
        try:
            reader, writer = await opened(PodPeer(f"127.0.0.1:{port}", A), operator.authority.trusted())
            del reader
            writer.close()
            loads = PodLoadClient(operator.authority.trusted())
            load = await loads.ask(PodPeer(f"127.0.0.1:{port}", A), SystemClock())
            loads.close()
            assert load is not None
            assert load.served == 4
        finally:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 30) == 0
