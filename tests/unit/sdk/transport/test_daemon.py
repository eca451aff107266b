"""Finding, starting and replacing the daemon, with a program that imitates it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairway.errors import UnavailableError
from fairway.sdk.transport import daemon as daemons
from fairway.sdk.transport import local_path
from fairway.sdk.transport.daemon import DaemonConnection, is_older
from fairway.testing.fake.fake_daemon import Answer, DaemonRequestRecord, FakeDaemon

PRETENDER = """
import fcntl, os, socket, sys, time
home = os.environ["FAIRWAY_HOME"]
open(home + "/starts", "a").write("%d\\n" % os.getpid())
lock = os.open(home + "/daemon.lock", os.O_CREAT | os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen(64)
while True:
    connection = listening.accept()[0]
    try:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    except OSError:
        pass
    connection.close()
"""


@pytest.fixture
def make(home: str, tmp_path: Path) -> Iterator[Callable[..., DaemonConnection]]:
    def build(program: str = PRETENDER, **rest: object) -> DaemonConnection:
        file = tmp_path / "program.py"
        file.write_text(program)
        return DaemonConnection(home, command=(sys.executable, str(file), local_path.find_socket(home)), **rest)  # type: ignore[arg-type]

    yield build
    for pid in started(home):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass


def started(home: str) -> list[int]:
    path = Path(home, "starts")
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_daemon_is_started_when_nobody_listens(make: Callable[..., DaemonConnection], home: str) -> None:
    assert make().request("GET", "/x").read() == b"ok"
    [pid] = started(home)
    assert os.getsid(pid) != os.getsid(0)
    assert int(Path(f"/proc/{pid}/stat").read_text().split()[3]) != os.getpid()


def test_many_callers_at_once_start_one(make: Callable[..., DaemonConnection], home: str) -> None:
    callers = [make() for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda caller: caller.request("GET", "/x").read(), callers))
    assert answers == [b"ok"] * 20
    assert len(started(home)) == 1


def test_a_daemon_that_dies_at_its_start_is_told_of(make: Callable[..., DaemonConnection]) -> None:
    daemon = make("import sys; print('what it said last', file=sys.stderr); sys.exit(3)")
    with pytest.raises(UnavailableError, match=r"(?s)ended while starting:.*what it said last.*daemon.log"):
        daemon.request("GET", "/x")


def test_only_what_this_start_wrote_is_shown(make: Callable[..., DaemonConnection], home: str) -> None:
    Path(home, "daemon.log").write_text("an old story\n")
    with pytest.raises(UnavailableError) as caught:
        make("import sys; sys.exit('new trouble')").start()
    assert "new trouble" in str(caught.value)
    assert "old story" not in str(caught.value)


def test_a_program_that_is_not_there_is_told_of(home: str) -> None:
    with pytest.raises(UnavailableError, match=r"(?s)/no/such/python cannot be started"):
        DaemonConnection(home, command=("/no/such/python",)).start()


def test_a_daemon_that_never_answers_is_given_up(make: Callable[..., DaemonConnection], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "START_LIMIT", 0.05)
    monkeypatch.setattr(daemons, "_SOON", 0.0)
    said: list[str] = []
    program = PRETENDER.replace("lock =", "time.sleep(60); lock =")
    with pytest.raises(UnavailableError, match="did not answer within"):
        make(program, say=said.append).start()
    assert len(said) == 1
    assert said[0].startswith("starting the daemon for")


def test_asking_need_not_start_it(home: str) -> None:
    daemon = DaemonConnection(home, command=("/no/such/python",))
    assert not daemon.answers()
    with pytest.raises(UnavailableError, match="no daemon runs for"):
        daemon.request("GET", "/x", start=False)


def test_stop_waits_until_it_is_gone(make: Callable[..., DaemonConnection], home: str) -> None:
    daemon = make()
    daemon.start()
    [pid] = started(home)
    daemon.stop(pid)
    assert not daemon.answers()
    daemon.stop(pid)


def test_a_caller_with_another_runtime_folder_finds_it(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.answers["GET /x"] = "here"
    Path(daemon.home, local_path.SOCKET_LINK).symlink_to(local_path.find_socket(daemon.home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "other"))
    other = DaemonConnection(daemon.home, command=("/no/such/python",))
    assert other.request("GET", "/x").read() == b"here"
    assert other.find() == local_path.read_socket_link(daemon.home)


def test_an_older_daemon_is_replaced_and_a_newer_one_left_alone(make: Callable[..., DaemonConnection], home: str) -> None:
    elder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    said: list[str] = []
    try:
        with FakeDaemon(home, version="0.0.1") as fake:
            fake.answers["GET /x"] = "old"

            def leave(_asked: DaemonRequestRecord) -> Answer:
                fake.close()
                return {"version": "0.0.1", "pid": elder.pid}

            fake.answers["GET /v1/health"] = leave
            assert make(say=said.append).request("GET", "/x").read() == b"ok"
        assert elder.wait(10) == -15
        assert "version 0.0.1" in said[0]
    finally:
        elder.kill()
        elder.wait()
    for pid in started(home):
        make().stop(pid)
    Path(local_path.find_socket(home)).unlink()
    with FakeDaemon(home, version="99.0") as fake:
        fake.answers["GET /x"] = "new"
        assert make().request("GET", "/x").read() == b"new"


@pytest.mark.parametrize(
    ("one", "other", "older"),
    [
        ("0.1.0", "0.2.0", True),
        ("0.9", "0.10", True),
        ("0.2.0", "0.1.9", False),
        ("1.0", "1.0", False),
        ("", "1.0", False),
        ("1.0rc1", "1.0", False),
    ],
)
def test_versions_are_compared_by_number(one: str, other: str, older: bool) -> None:
    assert is_older(one, other) is older
