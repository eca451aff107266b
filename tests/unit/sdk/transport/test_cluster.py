"""Requests to a cluster: over real TLS to a small server of our own, as a kubeconfig specifies."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairway.engines.kubernetes.client.cluster_target import ClusterTarget
from fairway.engines.kubernetes.record import self_signed_certificate
from fairway.errors import DeniedError, FairwayError, NotFoundError, UnavailableError, UsageError
from fairway.sdk.transport import cluster
from fairway.sdk.transport.cluster import ClusterConnection, read_error, translate

NOW = 1_790_000_000.0
HERE = ClusterTarget("https://10.0.0.1:6443", context="lab")


class ApiServer:
    """Answers one connection after the other, as the test sets."""

    def __init__(self, folder: Path) -> None:
        self.own = self_signed_certificate.make(["localhost"], NOW)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pem = folder / "server.pem"
        pem.write_bytes(self.own.key + self.own.certificate)
        context.load_cert_chain(pem)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.heard: list[bytes] = []
        self.answer: Callable[[ssl.SSLSocket], None] = lambda _connection: None
        self._context = context
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self.listening.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(plain, server_side=True) as connection:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += connection.recv(65536)
                    self.heard.append(data)
                    self.answer(connection)
            except OSError:
                plain.close()

    def says(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self.answer = lambda connection: connection.sendall(head + body)

    def close(self) -> None:
        # `close` alone does not wake up a thread that waits in `accept`.
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self._thread.join(5)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    found = ApiServer(tmp_path)
    yield found
    found.close()


def kubeconfig(server: ApiServer, folder: Path, user: dict[str, Any] | None = None, **more: Any) -> str:
    authority = base64.b64encode(server.own.certificate).decode()
    where = {"server": f"https://localhost:{server.port}", "certificate-authority-data": authority, **more}
    content = {
        "clusters": [{"name": "c", "cluster": where}],
        "users": [{"name": "u", "user": user or {"token": "of-ann"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "lab",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("path", "query", "target", "more"),
    [
        ("/v1/jobs", {"namespace": "team", "limit": 3}, "/namespaces/team/jobs", {"limit": 3}),
        ("/v1/jobs", {"namespace": "*"}, "/jobs", {}),
        ("/v1/jobs/mnist/logs", {"namespace": "team"}, "/namespaces/team/jobs/mnist/log", {}),
        ("/v1/jobs/mnist/watch", {"namespace": "team"}, "/namespaces/team/jobs/mnist/log", {"watch": True}),
        ("/v1/services/web/logs", {"namespace": "team"}, "/namespaces/team/services/web/log", {}),
        ("/v1/top/jobs/mnist", {"namespace": "team"}, "/namespaces/team/jobs/mnist/top", {}),
        ("/v1/top/jobs", {"namespace": "team"}, "/namespaces/team/top/jobs", {}),
        ("/v1/models/mnist/verify", {"namespace": "team"}, "/namespaces/team/models/mnist/log", {"watch": True}),
        ("/v1/datasets/%2A/verify", {"namespace": "team"}, "/namespaces/team/datasets/%2A/log", {"watch": True}),
        ("/v1/models/mnist%403", {"namespace": "a/b"}, "/namespaces/a%2Fb/models/mnist%403", {}),
    ],
)
def test_every_path_of_the_daemon_has_its_place(path: str, query: Any, target: str, more: Any) -> None:
    assert translate(path, query) == (f"/apis/record.fairway.dev/v1alpha1{target}", more)


def test_a_request_goes_out_as_the_user_of_the_kubeconfig(server: ApiServer, tmp_path: Path) -> None:
    server.says(200, b'{"jobs": []}')
    cluster = ClusterConnection("lab", kubeconfig(server, tmp_path))
    assert cluster.target.namespace == "team"
    assert json.loads(cluster.request("POST", "/v1/jobs", {"namespace": "team"}, b"{}").read()) == {"jobs": []}
    head = server.heard[0].decode()
    assert head.startswith("POST /apis/record.fairway.dev/v1alpha1/namespaces/team/jobs HTTP/1.1\r\n")
    assert "Authorization: Bearer of-ann\r\n" in head
    assert "Content-Length: 2\r\n" in head


def test_a_server_behind_a_path_is_asked_there(server: ApiServer, tmp_path: Path) -> None:
    server.says(200, b"{}")
    path = kubeconfig(server, tmp_path)
    content = json.loads(Path(path).read_text())
    content["clusters"][0]["cluster"]["server"] += "/k8s/clusters/c-1"
    Path(path).write_text(json.dumps(content))
    ClusterConnection("lab", path).request("GET", "/v1/health", {"namespace": "team"}).read()
    assert server.heard[0].startswith(b"GET /k8s/clusters/c-1/apis/record.fairway.dev/")


def test_what_comes_is_there_at_once_and_may_take_its_time(server: ApiServer, tmp_path: Path) -> None:
    go = threading.Event()

    def answer(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
        go.wait(10)
        connection.sendall(b"7\r\nsecond\n\r\n0\r\n\r\n")

    server.answer = answer
    reply = ClusterConnection("lab", kubeconfig(server, tmp_path)).request("GET", "/v1/jobs/mnist/logs", {"namespace": "team"})
    lines = reply.lines()
    assert next(lines) == b"first"
    go.set()
    assert list(lines) == [b"second"]


def test_who_waits_too_long_is_told(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    server.answer = lambda _connection: go.wait(10) and None
    monkeypatch.setattr(cluster, "CALL_LIMIT", 0.05)
    found = ClusterConnection("lab", kubeconfig(server, tmp_path))
    with pytest.raises(UnavailableError, match="no answer within"):
        found.request("GET", "/v1/jobs", {"namespace": "team"})
    go.set()


def test_a_limit_of_the_callers_own_is_the_callers_own_error(server: ApiServer, tmp_path: Path) -> None:
    go = threading.Event()
    server.answer = lambda _connection: go.wait(10) and None
    with pytest.raises(TimeoutError):
        ClusterConnection("lab", kubeconfig(server, tmp_path)).request(
            "GET", "/v1/jobs/x/watch", {"namespace": "team"}, timeout=0.05
        )
    go.set()


def test_an_answer_that_breaks_off_is_no_answer(server: ApiServer, tmp_path: Path) -> None:
    server.answer = lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    with pytest.raises(UnavailableError, match=r"context lab\) does not answer: the connection broke off"):
        ClusterConnection("lab", kubeconfig(server, tmp_path)).request("GET", "/v1/jobs", {"namespace": "team"}).read()


def test_nobody_there_and_a_certificate_of_somebody_else_are_told_in_words(server: ApiServer, tmp_path: Path) -> None:
    path = kubeconfig(server, tmp_path)
    content = json.loads(Path(path).read_text())
    content["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(
        self_signed_certificate.make(["localhost"], NOW).certificate
    ).decode()
    Path(path).write_text(json.dumps(content))
    with pytest.raises(UnavailableError, match="its certificate is not accepted"):
        ClusterConnection("lab", path).request("GET", "/v1/jobs", {"namespace": "team"})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{probe.getsockname()[1]}"
        Path(path).write_text(json.dumps(content))
        with pytest.raises(UnavailableError, match="Connection refused"):
            ClusterConnection("lab", path).request("GET", "/v1/jobs", {"namespace": "team"})


def test_a_plug_in_is_asked_again_when_its_token_is_refused(server: ApiServer, tmp_path: Path) -> None:
    program = tmp_path / "login"
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "NUMBER"}}
    counter = tmp_path / "asked"
    program.write_text(
        f"#!/bin/sh\necho x >> {counter}\nn=$(wc -l < {counter})\necho '{json.dumps(said)}' | sed s/NUMBER/token-$n/\n"
    )
    program.chmod(0o755)
    user = {"exec": {"apiVersion": said["apiVersion"], "command": str(program), "interactiveMode": "Never"}}

    def answer(connection: ssl.SSLSocket) -> None:
        known = b"token-2" in server.heard[-1].replace(b" ", b"")
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" if known else b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"
        )

    server.answer = answer
    assert (
        ClusterConnection("lab", kubeconfig(server, tmp_path, user)).request("GET", "/v1/jobs", {"namespace": "team"}).read()
        == b"{}"
    )
    assert len(server.heard) == 2


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (404, {"error": {"code": "not_found", "message": "there is no job x", "fix": ""}}, NotFoundError, "there is no job x"),
        (403, {"kind": "Status", "message": 'User "ann" cannot list'}, DeniedError, 'User "ann" cannot list'),
        (401, {"kind": "Status", "message": "Unauthorized"}, DeniedError, "rejects your credentials: Unauthorized"),
        (404, b"404 page not found", UnavailableError, "Fairway is not installed on lab: 404 page not found"),
        (503, b"service unavailable", UnavailableError, "Fairway on lab does not answer: service unavailable"),
        (504, {"kind": "Status", "message": "timed out"}, UnavailableError, "does not answer: timed out"),
        (418, b"teapot", FairwayError, "answered with status 418: teapot"),
    ],
)
def test_errors_keep_the_words_of_whoever_said_no(status: int, body: Any, kind: type[FairwayError], words: str) -> None:
    error = read_error(status, body if isinstance(body, bytes) else json.dumps(body).encode(), HERE)
    assert isinstance(error, kind)
    assert words in error.message


def test_a_proxy_is_refused_in_words(server: ApiServer, tmp_path: Path) -> None:
    path = kubeconfig(server, tmp_path, **{"proxy-url": "http://proxy:3128"})
    with pytest.raises(UsageError, match="goes through a proxy"):
        ClusterConnection("lab", path).request("GET", "/v1/jobs", {"namespace": "team"})
