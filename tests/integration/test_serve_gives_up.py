"""`fairway serve` and `wait` that cannot succeed: they exit with 1 (or refuse), give reason and remedy, and delete nothing."""

from __future__ import annotations

import json
import socket
import struct
import subprocess

import onnx
import pytest
from daemon_home import DaemonHome
from test_services import write_model


@pytest.fixture
def registered(home: DaemonHome) -> DaemonHome:
    home.ask("model", "register", "adds", str(write_model(home.work / "v1.onnx", 1)))
    return home


def given_up(home: DaemonHome, *words: str) -> str:
    ended = home.call(*words)
    assert ended.returncode == 1, (ended.stdout, ended.stderr)
    assert "the service stays" in ended.stderr
    name = words[words.index("--name") + 1] if "--name" in words else words[1].rpartition("/")[2]
    assert name in home.ask("list", "services", "-o", "name")
    return ended.stderr


def refused(home: DaemonHome, *words: str, code: int = 5) -> str:
    """Assert that it is refused, also with `--plan`, and that no service was created."""
    for more in ((), ("--plan",)):
        ended: subprocess.CompletedProcess[str] = home.call("serve", *words, *more)
        assert ended.returncode == code, (ended.stdout, ended.stderr)
    assert home.ask("list", "services", "-o", "name") == ""
    return ended.stderr


def test_no_cpu_is_free(registered: DaemonHome) -> None:
    registered.ask("run", "-d", "--cpus", "16", "--", "sleep", "600")
    said = given_up(registered, "serve", "adds", "--timeout", "4s")
    assert "needs 1 CPU; 0 of 16 are free" in said
    assert said.count("0 of 1 replicas ready; waits") == 2, "once while it waits, once at the end"
    assert "needs 1 CPU" in given_up(registered, "wait", "service/adds", "--timeout", "1s")
    registered.ask("stop", "--all")
    registered.ask("wait", "service/adds", "--timeout", "30s")


def test_a_server_that_ends_at_once(registered: DaemonHome) -> None:
    said = given_up(registered, "serve", "--name", "bad", "--", "python3", "-c", "import no_such_framework")
    assert "started 3 times and ended each time" in said
    assert "No module named 'no_such_framework'" in said


def test_an_opset_that_the_runtime_does_not_know(registered: DaemonHome) -> None:
    model = onnx.load(str(registered.work / "v1.onnx"))
    model.opset_import[0].version = 99
    onnx.save(model, str(registered.work / "new.onnx"))
    registered.ask("model", "register", "new", str(registered.work / "new.onnx"))
    said = given_up(registered, "serve", "new")
    assert "Opset 99 is under development" in said
    assert "  fix: check it with onnx.checker" in said


def test_a_port_that_is_taken(registered: DaemonHome) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = given_up(registered, "serve", "adds", "--port", port)
        assert f"cannot listen on 127.0.0.1:{port}" in said
        assert "give the service another port" in said
    registered.until(lambda: registered.call("wait", "service/adds").returncode == 0, "the port")


def test_weights_without_a_server(registered: DaemonHome) -> None:
    head = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path = registered.work / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(4))
    registered.ask("model", "register", "weights", str(path))
    said = refused(registered, "weights")
    assert "weights@1 cannot be served: its folder holds only weights" in said
    assert "fix: export the model as ONNX" in said


def test_content_that_is_gone(registered: DaemonHome) -> None:
    (blob,) = [path for path in registered.path.glob("blobs/sha256/*/*") if path.read_bytes().startswith(b"\x08")]
    blob.chmod(0o600)
    blob.unlink()
    assert "the content of v1.onnx" in refused(registered, "adds", code=3)
