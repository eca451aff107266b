"""Pods and the operator over a real port: TLS for all, plain HTTP for pods of earlier versions, and no man in the middle."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from fairway.api.mlflow.token import token_of
from fairway.api.pods.download import make_given
from fairway.api.pods.metric import make_told
from fairway.api.pods.plain_http import PlainHttpGate
from fairway.api.pods.upload import UploadRoutes
from fairway.app.port.port import Observation
from fairway.app.tracking.run import TokenCaller
from fairway.bootstrap import pod_server
from fairway.bootstrap.pod_route import plain_of_older
from fairway.bootstrap.pod_server import PodServer
from fairway.engines.kubernetes.certificate_authority import CertificateAuthority
from fairway.registry.upload.run_upload import RunUploads
from fairway.runtime import task_contract
from fairway.runtime.pod import fetch, operator_tls, upload
from fairway.runtime.pod.metric_reporter import MetricReporter
from fairway.runtime.pod.upload import OperatorUploads, restore
from fairway.spec.job import JobSpec
from fairway.spec.service import ServiceSpec
from fairway.state.job import JobKey, JobState
from fairway.state.service import ServiceKey, ServiceState

SECRET = b"of this operator"
OLD, NEW = JobKey("team", "old-1"), JobKey("team", "new-1")


class Place:
    """An operator's port, in a thread with its own event loop."""

    def __init__(self, folder: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.seen: list[Observation] = []
        self.authority = CertificateAuthority(folder / "tls", ("localhost",), time.time)
        spec = JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}})
        jobs = {key: JobState(key, key.name, 1, spec) for key in (OLD, NEW)}
        brought = UploadRoutes(RunUploads(folder / "carried"), jobs.get, lambda _job, _task: 0, self._take, SECRET)
        app = make_told(self._take, SECRET, make_given(brought.routes()))
        older = PlainHttpGate(app, SECRET, lambda speaker: speaker.run == OLD.name)
        self._server = PodServer(older, 0, self.authority)
        self._loop = loop_factory()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._do(self._server.open())
        self.port = self._server.port

    async def _take(self, seen: Observation) -> None:
        self.seen.append(seen)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def address(self, scheme: str = "https") -> str:
        return f"{scheme}://localhost:{self.port}"

    def close(self) -> None:
        self._do(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    found = Place(tmp_path / "operator", factory)
    monkeypatch.setenv(operator_tls.AUTHORITY, found.authority.certificates)
    yield found
    found.close()


def token(run: JobKey) -> str:
    return token_of(SECRET, TokenCaller(run.namespace, run.name))


def test_older_is_who_was_made_before_the_authority(tmp_path: Path) -> None:
    """Runs are dated by their submission, services by their first apply; an unknown one is not older."""
    authority = CertificateAuthority(tmp_path / "tls", ("localhost",), lambda: 1000.0)
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}})
    served = ServiceSpec.model_validate({"model": "adds@1"})
    jobs = {key: JobState(key, key.name, 1, spec, created=at) for key, at in ((OLD, 999.0), (NEW, 1001.0))}
    services = [ServiceState(ServiceKey("team", name), served, created=at) for name, at in (("old", 999.0), ("new", 1001.0))]
    store = SimpleNamespace(get_job=jobs.get, services=lambda: [SimpleNamespace(service=one) for one in services])
    app: Any = object()
    plain = plain_of_older(app, SimpleNamespace(store=store), authority, SECRET)  # type: ignore[arg-type]
    assert isinstance(plain, PlainHttpGate)
    names = ("old-1", "new-1", "gone-1", "service:old", "service:new", "service:gone")
    assert [name for name in names if plain._older(TokenCaller("team", name))] == ["old-1", "service:old"]
    assert not plain._older(TokenCaller("other", "old-1"))
    assert plain_of_older(app, SimpleNamespace(store=store), None, SECRET) is app  # type: ignore[arg-type]


class Points:
    """Returns its points once."""

    def __init__(self) -> None:
        self._points: list[dict[str, Any]] = [{"time": 1.0, "step": 1, "metrics": {"loss": 0.5}, "rank": 0, "source": "report"}]

    def new_points(self) -> list[dict[str, Any]]:
        found, self._points = self._points, []
        return found


def telling(place: Place, run: JobKey, scheme: str = "https") -> MetricReporter:
    return MetricReporter("worker-0", 0, Points(), "", place.address(scheme), token(run))  # type: ignore[arg-type]


def save(root: Path, step: int) -> Path:
    folder = root / task_contract.STEP_FOLDER.format(step=step)
    script = f"import fairway\nwith fairway.checkpoint.save({step}) as f: (f / 'weights').write_bytes(b'x' * 3_000_000)"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, task_contract.CHECKPOINT_DIR: str(root)}, check=True)
    return folder


def test_what_pods_tell_bring_and_get_goes_over_tls(place: Place, tmp_path: Path) -> None:
    assert telling(place, NEW).tell()
    assert [(seen.key, [point.step for point in seen.points]) for seen in place.seen] == [(NEW, [1])]
    folder = save(tmp_path / "one", 10)
    OperatorUploads(place.address(), token(NEW)).send(upload.CHECKPOINTS + folder.name, str(folder))
    assert place.seen[-1].checkpoint_step == 10
    assert restore(place.address(), token(NEW), str(tmp_path / "two")) == folder.name
    assert (tmp_path / "two" / folder.name / "weights").stat().st_size == 3_000_000


def test_pods_of_before_go_on_without_tls_and_others_are_refused(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert telling(place, OLD, "http").tell()
    assert [seen.key for seen in place.seen] == [OLD]
    folder = save(tmp_path / "one", 10)
    OperatorUploads(place.address("http"), token(OLD)).send(upload.CHECKPOINTS + folder.name, str(folder))
    assert restore(place.address("http"), token(OLD), str(tmp_path / "two")) == folder.name
    # New pods of the same runs use TLS.
    assert telling(place, OLD).tell()

    before = len(place.seen)
    assert telling(place, NEW, "http").tell(), "told once more it would be refused once more"
    assert "use https" in capsys.readouterr().err
    with pytest.raises(fetch.RequestRejectedError, match="use https"):
        restore(place.address("http"), token(NEW), str(tmp_path / "three"), patience=0)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(place.address("http") + "/v1/told", b"{}", timeout=10)
    assert len(place.seen) == before


def test_somebody_in_the_operators_place_gets_no_token(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod authenticates the operator before it sends its own token."""
    forged = CertificateAuthority(tmp_path / "forged", ("localhost",), time.time)
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1 << 16))
        writer.close()

    async def attempt() -> bool:
        server = await asyncio.start_server(hear, "localhost", 0, ssl=forged.context)
        port = server.sockets[0].getsockname()[1]
        told = MetricReporter("worker-0", 0, Points(), "", f"https://localhost:{port}", token(NEW))  # type: ignore[arg-type]
        async with server:
            return await asyncio.to_thread(told.tell)

    assert not asyncio.run(attempt()), "it is kept, and told later"
    assert heard == []
    monkeypatch.setenv(operator_tls.AUTHORITY, forged.certificates)
    assert not telling(place, NEW).tell()
    assert place.seen == []


def test_no_proxy_gets_the_token(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert telling(place, NEW).tell()
        assert telling(place, OLD, "http").tell()
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_the_certificate_is_renewed_under_open_connections(place: Place) -> None:
    def ask(connection: http.client.HTTPSConnection) -> int:
        headers = {"Authorization": f"Bearer {token(NEW)}"}
        connection.request("POST", "/v1/told", json.dumps({"task": "worker-0", "attempt": 0}), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def shown(connection: http.client.HTTPSConnection) -> bytes | None:
        assert isinstance(connection.sock, ssl.SSLSocket)
        return connection.sock.getpeercert(binary_form=True)

    first, second = (
        http.client.HTTPSConnection("localhost", place.port, timeout=10, context=operator_tls.context()) for _ in range(2)
    )
    assert ask(first) == 204
    place.authority._leaf_span = (0.0, 0.0)
    assert place.authority.renew()
    assert ask(first) == ask(second) == 204
    assert shown(first) != shown(second)
    first.close()
    second.close()


def test_who_says_nothing_or_nonsense_holds_nobody_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_server, "GREETING", 0.3)
    silent = [socket.create_connection(("localhost", place.port)) for _ in range(200)]
    for number, one in enumerate(silent):
        # Nothing, half a handshake, a handshake of garbage, and a connection that is closed.
        if number % 4 == 1:
            one.sendall(b"\x16\x03\x01")
        elif number % 4 == 2:
            one.sendall(b"\x16" + os.urandom(200))
        elif number % 4 == 3:
            one.close()
    assert telling(place, NEW).tell()
    assert telling(place, OLD, "http").tell()
    for number, one in enumerate(silent):
        if number % 4 != 3:
            one.settimeout(30)
            try:
                while one.recv(1000):
                    continue
            except ConnectionResetError:
                pass
            one.close()
    assert len(place.seen) == 2
