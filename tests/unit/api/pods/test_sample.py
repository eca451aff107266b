"""The sidecar of a replica uploads samples to the operator: each file once, and only for its own service."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import uvicorn

from fairway.api.mlflow.token import token_of
from fairway.api.pods import sample, upload
from fairway.api.pods.download import make_given
from fairway.api.pods.sample import SampleUploadRoutes
from fairway.app.tracking.run import TokenCaller
from fairway.errors import NotFoundError, UnavailableError
from fairway.plan.service.replica import SAMPLES_LABEL, SERVICE_LABEL
from fairway.runtime.pod import samples
from fairway.runtime.pod.fetch import TOKEN
from fairway.runtime.pod.samples import SampleUploader
from fairway.serving import sample_folder as kept_samples
from fairway.serving.sample_folder import UploadedSampleFolder
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState

SECRET = b"secret"
ADDS, OTHER = TokenCaller("team", "service:adds"), TokenCaller("team", "service:other")
RUN = JobKey("team.services", "adds-r1-1")
POD = "adds-r1-6d4cf56db6-x2k4f"
FIRST, SECOND = "requests-1700000000001-1-1.jsonl", "requests-1700000000002-1-2.jsonl"


class Server:
    """The operator's side. Its port refuses connections until the test starts it."""

    def __init__(self, folder: Path) -> None:
        self.kept = UploadedSampleFolder(folder)
        self.came: list[tuple[str, bool]] = []
        self.ends = False
        self.heard = threading.Event()
        spec = JobSpec.model_validate({"roles": {"replica": {"command": ["true"]}}})
        self.job = JobState(RUN, "adds-r1", 1, spec, labels={SERVICE_LABEL: "adds", SAMPLES_LABEL: "asked"})
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def replica(self, speaker: TokenCaller, pod: str) -> tuple[JobState, bool]:
        if speaker != ADDS or pod not in (POD, "unborn"):
            raise NotFoundError(f"{speaker.run} has no pod {pod}", fix="")
        if pod == "unborn":
            raise UnavailableError("it is no replica yet", fix="")
        return self.job, self.ends

    def note(self, job: JobState, last: bool) -> None:
        self.came.append((str(job.key), last))
        self.heard.set()

    def start(self) -> None:
        routes = SampleUploadRoutes(self.kept, self.replica, self.note, SECRET).routes()
        self._server = uvicorn.Server(uvicorn.Config(make_given(routes), lifespan="off", log_config=None))
        self._listening.listen()
        self._serving = threading.Thread(target=lambda: asyncio.run(self._server.serve([self._listening])))
        self._serving.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._serving.join()

    def url(self, pod: str = POD) -> str:
        return f"http://127.0.0.1:{self.port}/v1/given/samples/{pod}"

    def put(self, name: str, body: bytes = b"{}\n", speaker: TokenCaller = ADDS, pod: str = POD) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            headers = {"Authorization": f"Bearer {token_of(SECRET, speaker)}"}
            connection.request("PUT", f"/v1/given/samples/{pod}/{name}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def found(self) -> dict[str, str]:
        """Return the stored samples of the replica, by file name in the dataset."""
        return {file.name: file.path.read_text() for file in self.kept.complete(RUN)}


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Server]:
    """A server that is not started yet."""
    server = Server(tmp_path / "samples")
    yield server
    server.stop()


@pytest.fixture
def server(away: Server) -> Server:
    away.start()
    return away


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "requests"
    found.mkdir()
    return found


def sending(server: Server, folder: Path, pod: str = POD) -> SampleUploader:
    return SampleUploader(str(folder), server.url(pod), token_of(SECRET, ADDS))


def named(name: str) -> str:
    """Return the name of a file in the dataset."""
    return f"{name.removesuffix('.jsonl')}-x2k4f-adds-r1-1.jsonl"


def test_complete_files_are_brought_and_removed_and_at_the_end_whole_requests_of_the_rest(server: Server, folder: Path) -> None:
    (folder / SECOND).write_text('{"b":2}\n')
    (folder / FIRST).write_text('{"a":1}\n')
    half = folder / "requests-1700000000003-1-3.jsonl.part"
    half.write_text('{"c":3}\n{"d"')
    (folder / "requests-1700000000004-1-4.jsonl.part").write_text('{"e"')
    looks: list[float] = []

    def told(seconds: float) -> bool:
        looks.append(seconds)
        if len(looks) == 2:
            assert sorted(server.found()) == [named(FIRST), named(SECOND)]
            assert half.exists(), "the replica is writing it"
            server.ends = True
        return len(looks) == 2

    assert sending(server, folder).run(told)
    assert server.found() == {
        named(FIRST): '{"a":1}\n',
        named(SECOND): '{"b":2}\n',
        named("requests-1700000000003-1-3.jsonl"): '{"c":3}\n',
    }
    assert list(folder.iterdir()) == []
    assert server.came == [(str(RUN), False), (str(RUN), False), (str(RUN), True)]
    assert server.kept.runs() == [RUN]


def test_while_the_operator_is_away_files_wait_and_it_is_asked_less_often(
    away: Server, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / FIRST).write_text("{}\n")
    waits: list[float] = []

    def told(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 7:
            away.start()
        return len(waits) == 9

    assert sending(away, folder).run(told)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 1, 1]
    assert list(away.found()) == [named(FIRST)]
    assert f"{FIRST} has not been sent to the operator yet" in capfd.readouterr().err


def test_what_is_told_to_end_tries_on_for_a_while(away: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / FIRST).write_text("{}\n")
    with monkeypatch.context() as patched:
        patched.setattr(samples, "PATIENCE", 0.0)
        assert not sending(away, folder).run(lambda _: True)
    assert (folder / FIRST).exists()
    assert sending(away, folder).run(lambda _: True, lambda _: away.start()), "the operator comes back meanwhile"
    assert list(away.found()) == [named(FIRST)]


def test_a_file_that_is_sent_twice_is_there_once(server: Server) -> None:
    assert server.put(FIRST, b'{"a":1}\n')[0] == 204
    assert server.put(FIRST, b'{"a":2}\n{"b":3}\n')[0] == 204
    assert server.found() == {named(FIRST): '{"a":1}\n'}


def test_another_service_a_run_or_a_pod_that_is_none_brings_nothing(server: Server, folder: Path) -> None:
    for speaker, pod, status in (
        (OTHER, POD, 404),
        (TokenCaller("team", "adds"), POD, 404),
        (ADDS, "theirs", 404),
        (ADDS, "unborn", 503),
    ):
        assert server.put(FIRST, speaker=speaker, pod=pod)[0] == status
    assert server.put(FIRST, speaker=TokenCaller("team", ""))[0] == 401
    (folder / FIRST).write_text("{}\n")
    for pod in ("unborn", "theirs"):
        assert not sending(server, folder, pod).send(samples.COMPLETE), "it may be known later"
    assert (folder / FIRST).exists()
    server.job.labels.pop(SAMPLES_LABEL)
    status, words = server.put(FIRST)
    assert (status, "does not sample requests" in words) == (409, True)
    assert server.found() == {}


@pytest.mark.parametrize(
    "name",
    [
        "passwd",
        "requests-1-1-1.jsonl",
        "requests-1700000000001-1-1.jsonl.part",
        "..%2F..%2Frequests-1700000000001-1-1.jsonl",
        "requests-1700000000001-1-1.jsonl%0A",
        f"requests-1700000000001-1-{'1' * 300}.jsonl",
        "requests-٠1700000000001-1-1.jsonl".encode().hex(),
    ],
)
def test_only_names_of_samples_are_taken(server: Server, name: str) -> None:
    assert server.put(name)[0] in (404, 409)
    assert server.found() == {}
    assert list(server.kept._jobs.rglob("*.jsonl*")) == []


def test_a_file_that_is_not_wanted_stays_behind_and_the_others_are_brought(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sample, "LARGEST", 100)
    (folder / FIRST).write_text("x" * 100 + "\n")
    (folder / SECOND).write_text("{}\n")
    bringer = sending(server, folder)
    assert bringer.send(samples.COMPLETE)
    assert list(server.found()) == [named(SECOND)]
    assert [path.name for path in folder.iterdir()] == [FIRST]
    assert bringer.send(samples.COMPLETE), "it is not sent again"
    assert capfd.readouterr().err.count("the operator rejected") == 1
    for body in (b"", b'{"a":1}\n{"b"'):
        status, words = server.put(FIRST, body)
        assert (status, "ends in the middle of a line" in words) == (409, True)


def test_a_body_without_a_length_is_cut_where_it_is_too_long(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "LARGEST", 2 << 20)
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        blocks = (b"x" * (1 << 20) for _ in range(4))
        headers = {"Authorization": f"Bearer {token_of(SECRET, ADDS)}"}
        connection.request("PUT", f"/v1/given/samples/{POD}/{FIRST}", blocks, headers, encode_chunked=True)
        assert connection.getresponse().status == 409
    assert list(server.kept._jobs.rglob("*-*")) == []


@contextmanager
def begun(server: Server, name: str) -> Iterator[socket.socket]:
    """Start an upload of three bytes that the server has accepted, without sending any of them."""
    head = f"PUT /v1/given/samples/{POD}/{name} HTTP/1.1\r\nHost: o\r\nAuthorization: Bearer {token_of(SECRET, ADDS)}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        yield connection


def test_what_breaks_off_on_the_way_leaves_nothing(server: Server) -> None:
    with begun(server, FIRST) as connection:
        connection.sendall(b"{}")
    while server.put(SECOND)[0] == 503:  # The server answers 503 until it has noticed that the other upload was disconnected.
        pass
    assert list(server.found()) == [named(SECOND)]
    assert list((server.kept._jobs / ".arriving").iterdir()) == []


def test_a_pod_brings_one_file_after_the_other(server: Server) -> None:
    with begun(server, FIRST) as connection:
        assert server.put(SECOND)[0] == 503
        connection.sendall(b"{}\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 204")
    assert server.put(SECOND)[0] == 204
    assert sorted(server.found()) == [named(FIRST), named(SECOND)]


def test_the_disk_does_not_fill(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_samples, "WAITING", 5)
    assert server.put(FIRST)[0] == 204
    status, words = server.put(SECOND)
    assert (status, "are already waiting" in words) == (503, True)
    server.kept.remove(server.kept.complete(RUN))
    assert server.put(SECOND)[0] == 204, "what became a dataset makes room"
    monkeypatch.setattr(server.kept, "room", lambda: upload.SPARE + 2)
    status, words = server.put("requests-1700000000003-1-3.jsonl")
    assert (status, "no room" in words) == (503, True)


def test_what_a_replica_brought_goes_with_its_record(server: Server) -> None:
    server.put(FIRST)
    server.kept.forget(RUN)
    assert server.kept.runs() == []
    server.put(FIRST)
    server.kept.remove(server.kept.complete(RUN))
    server.kept.finish(RUN)
    assert server.kept.runs() == [], "an empty folder is not looked at"
    assert server.put(SECOND)[0] == 204, "and comes back"


def test_an_operator_that_died_while_something_came_begins_with_what_is_whole(server: Server) -> None:
    server.put(FIRST)
    (server.kept._jobs / ".arriving" / "half").write_bytes(b"{")
    anew = UploadedSampleFolder(server.kept._jobs)
    anew.tidy()
    assert [file.name for file in anew.complete(RUN)] == [named(FIRST)]
    assert list(server.kept._jobs.rglob("half")) == []
    assert server.put(SECOND)[0] == 204


def test_the_process_ends_when_it_is_told_to_with_everything_brought(server: Server, folder: Path) -> None:
    (folder / FIRST).write_text("{}\n")
    command = [sys.executable, "-m", "fairway.runtime.pod.samples", "--folder", str(folder), "--url", server.url()]
    process = subprocess.Popen(command, env={**os.environ, TOKEN: token_of(SECRET, ADDS)})
    try:
        assert server.heard.wait(60)
        (folder / f"{SECOND}.part").write_text("{}\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert sorted(server.found()) == [named(FIRST), named(SECOND)]
