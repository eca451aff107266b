"""Three pods as processes with their own ports: commands that one starts in another, and connections that are refused."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fairway
from fairway.runtime import task_contract
from fairway.runtime.pod import remote_agent, remote_channel
from fairway.runtime.pod.pod_order import TOKEN, VARIABLE, PodOrder, ProcessStart, RemoteOrder

SOURCE = Path(fairway.__file__).parent.parent
AGENT = SOURCE / "fairway" / "runtime" / "pod" / "remote_agent.py"
KEY = remote_channel.key_of("the token of the run", 0)


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Pod:
    """The first process of a pod without a program of its own."""

    def __init__(self, folder: Path, index: int, port: int, own: list[str] | None = None, grace: float = 10.0) -> None:
        self.port = port
        order = PodOrder(
            f"worker-{index}",
            str(folder),
            str(folder / f"attempt-{index}"),
            [ProcessStart(own or [], {"WHO": f"worker-{index}"}, [])],
            grace=grace,
            remote=RemoteOrder(port, 0, f"worker-{index}", 0, 1),
        )
        env = {**os.environ, VARIABLE: order.encode(), TOKEN: "the token of the run", "PYTHONPATH": str(SOURCE)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairway.runtime.pod"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> tuple[int, str]:
        """Terminate it; return its exit code and its output."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[list[Pod]]:
    made = [Pod(tmp_path, index, port) for index, port in enumerate(free_ports(3))]
    yield made
    for pod in made:
        if pod.process.poll() is None:
            pod.process.kill()
        pod.process.communicate()


Agent = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def agent(pods: list[Pod]) -> Iterator[Agent]:
    """Return a function that starts an agent for one of the pods, which are called `127.0.0.1` and so on."""
    started: list[subprocess.Popen[str]] = []

    def start(pod: int, *command: str, key: bytes = KEY) -> subprocess.Popen[str]:
        hosts = {f"127.0.0.{index + 1}": each.port for index, each in enumerate(pods)}
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SOURCE),
            task_contract.REMOTE_HOSTS: json.dumps(hosts),
            task_contract.REMOTE_KEY: key.hex(),
        }
        handle = subprocess.Popen(
            [sys.executable, AGENT, f"127.0.0.{pod + 1}", *command],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(handle)
        return handle

    yield start
    for handle in started:
        if handle.poll() is None:
            handle.kill()
        handle.communicate()


def test_a_command_runs_in_the_other_pod_with_its_streams_and_exit_code(pods: list[Pod], agent: Agent) -> None:
    running = [agent(index, "read line; echo $WHO got $line; echo wrong >&2;", "exit", str(index)) for index in range(3)]
    said = [one.communicate("input\n", timeout=60) for one in running]
    assert said == [(f"worker-{index} got input\n", "wrong\n") for index in range(3)]
    assert [one.returncode for one in running] == [0, 1, 2]
    assert agent(0, "kill -9 $$").wait(60) == 128 + signal.SIGKILL
    assert [pod.end()[0] for pod in pods] == [128 + signal.SIGTERM] * 3, "who is there for others only ends when told to"


def test_much_that_is_printed_comes_whole(agent: Agent) -> None:
    out, _ = agent(1, f"{sys.executable} -c 'print(\"x\" * 3000000)'").communicate(timeout=60)
    assert len(out) == 3_000_001


def test_signals_are_passed_on_and_the_program_ends_with_the_agent(agent: Agent) -> None:
    running = agent(2, "trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=60)[0] == "told\n"
    assert running.returncode == 9
    left = agent(2, "echo $$; exec sleep 600")
    assert left.stdout is not None
    pid = int(left.stdout.readline())
    watched = os.pidfd_open(pid)
    left.kill()
    assert select.select([watched], [], [], 30)[0], "its caller is gone, and it still runs"
    os.close(watched)


def test_a_pod_that_ends_takes_what_others_started_with_it_and_says_so(pods: list[Pod], agent: Agent) -> None:
    running = agent(1, "echo ready; exec sleep 600")
    assert running.stdout is not None
    running.stdout.readline()
    pods[1].process.kill()
    agents = agent(2, "echo ready; exec sleep 600")
    assert agents.stdout is not None
    agents.stdout.readline()
    pods[2].process.terminate()
    for number, one in ((2, running), (3, agents)):
        _, said = one.communicate(timeout=60)
        assert one.returncode == remote_agent.FAILED
        assert f"the connection to 127.0.0.{number} was lost: connection closed by peer" in said


def test_who_has_not_the_key_of_the_attempt_is_turned_away(pods: list[Pod], agent: Agent) -> None:
    for key in (remote_channel.key_of("the token of the run", 1), remote_channel.key_of("another", 0), b""):
        stranger = agent(0, "echo in", key=key)
        out, said = stranger.communicate(timeout=60)
        assert (stranger.returncode, out) == (remote_agent.FAILED, "")
        assert "does not have this run's key" in said
    assert "the caller does not have this run's key" in pods[0].end()[1]


def test_a_name_that_is_no_pod_of_the_run_is_refused_with_those_that_are() -> None:
    known = {"m-worker-0.m.team.svc.cluster.local": 1, "m-worker-1.m.team.svc.cluster.local": 2}
    assert remote_agent.place_of("m-worker-1", known) == ("m-worker-1.m.team.svc.cluster.local", 2)
    with pytest.raises(remote_agent.PodUnreachableError, match=r"evil is not a pod of this run; its pods are m-worker-0\.m\."):
        remote_agent.place_of("evil", known)
    with pytest.raises(remote_agent.PodUnreachableError, match=r"no process listens on 127\.0\.0\.1:\d+ after 0 s"):
        remote_agent.connect(("127.0.0.1", free_ports(1)[0]), KEY, patience=0)


@pytest.fixture
def wires() -> Iterator[list[socket.socket]]:
    """Two connections, both ends of each."""
    made = [*socket.socketpair(), *socket.socketpair()]
    yield made
    for each in made:
        each.close()


def test_frames_that_are_changed_repeated_or_too_large_are_refused(wires: list[socket.socket]) -> None:
    one, other, sent, taken = wires
    channels: list[remote_channel.RemoteChannel] = []
    accepting = threading.Thread(target=lambda: channels.append(remote_channel.accept(other, KEY)))
    accepting.start()
    calling = remote_channel.call(one, KEY)
    accepting.join()
    (listening,) = channels
    calling.send(remote_channel.INPUT, b"as it is")
    assert listening.receive() == (remote_channel.INPUT, b"as it is")
    remote_channel.RemoteChannel(sent, b"key", b"key").send(remote_channel.INPUT, b"once")
    frame = taken.recv(1000)
    one.sendall(frame)
    with pytest.raises(remote_channel.AuthenticationError, match="wrong signature"):
        listening.receive()
    again = remote_channel.RemoteChannel(taken, b"key", b"key")
    sent.sendall(frame + frame)
    assert again.receive() == (remote_channel.INPUT, b"once")
    with pytest.raises(remote_channel.AuthenticationError, match="wrong signature"):
        again.receive()
    sent.sendall(b"\xff\xff\xff\xff\x01")
    with pytest.raises(remote_channel.AuthenticationError, match="the limit is"):
        again.receive()


def test_without_a_key_nobody_listens(tmp_path: Path) -> None:
    order = PodOrder(
        "worker-0", str(tmp_path), str(tmp_path / "a"), [ProcessStart([], {}, [])], remote=RemoteOrder(0, 0, "worker-0", 0, 1)
    )
    env = {**os.environ, VARIABLE: order.encode(), "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run([sys.executable, "-m", "fairway.runtime.pod"], env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 127
    assert "worker-0: ranks in other pods need the key of the run, but the operator did not provide it" in ended.stderr


def test_ranks_that_all_ran_here_though_they_should_not_are_a_failure(tmp_path: Path) -> None:
    def ended(folder: str, code: str) -> subprocess.CompletedProcess[str]:
        env = {task_contract.REMOTE_HOSTS: "{}", "FOLDER": str(tmp_path / folder)}
        start = ProcessStart([sys.executable, "-c", code], env, [])
        wish = RemoteOrder(0, 0, "worker-0", 0, 1, must_reach=["pod-1"])
        order = PodOrder("worker-0", str(tmp_path), str(tmp_path / folder), [start], remote=wish)
        given = {**os.environ, VARIABLE: order.encode(), TOKEN: "the token of the run", "PYTHONPATH": str(SOURCE)}
        return subprocess.run(
            [sys.executable, "-m", "fairway.runtime.pod"], env=given, capture_output=True, text=True, timeout=60
        )

    silent = ended("silent", "pass")
    assert silent.returncode == 127
    assert "started no rank on pod-1 and reported no error" in silent.stderr
    assert ended("failed", "raise SystemExit(3)").returncode == 3, "its own failure is the cause"

    def noting(*what: str) -> str:
        notes = "".join(f"; remote_channel.note(os.environ['FOLDER'], {each!r}, 'pod-1')" for each in what)
        return "import os; from fairway.runtime.pod import remote_channel" + notes

    assert ended("reached", noting(remote_channel.REACHED)).returncode == 0
    lost = ended("lost", noting(remote_channel.REACHED, remote_channel.LOST))
    assert lost.returncode == 1, "Open MPI 5 exits with 0 when it has lost a host"
    assert "the connection to pod-1 was lost: connection closed by peer" in lost.stderr
