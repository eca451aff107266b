"""What a confined worker can do: predict, read its files, write its scratch folder; and nothing else."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

import pytest
from replica_process import replica

TRIES = """
import os, socket, subprocess, tempfile
import numpy as np

SECRET, CANARY, LISTENER = {paths!r}


def local(kind):
    with socket.socket(socket.AF_UNIX, kind) as wire:
        wire.connect(LISTENER)


TRIES = {{
    "write a file": lambda: open(CANARY, "w").close(),
    "write by a program": lambda: subprocess.run(["touch", CANARY], check=True, stderr=subprocess.DEVNULL),
    "write the model": lambda: open(__file__, "a").close(),
    "remove the model": lambda: os.unlink(__file__),
    "read a secret": lambda: open(SECRET).close(),
    "list a folder": lambda: os.listdir(os.path.dirname(SECRET)),
    "open to others": lambda: os.chmod(SECRET, 0o777),
    "a socket of the network": lambda: socket.socket().close(),
    "a datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    "a local socket": lambda: local(socket.SOCK_STREAM),
    "signal another process": lambda: os.kill(os.getppid(), 0),
    "read another's variables": lambda: open("/proc/%d/environ" % os.getppid()).close(),
    "a variable with a token": lambda: os.environ["SOME_TOKEN"],
    "read the model": lambda: open(__file__).close(),
    "write scratch": lambda: tempfile.NamedTemporaryFile().close(),
    "a process": lambda: subprocess.run(["true"], check=True),
    "signal itself": lambda: os.kill(os.getpid(), 0),
    "home": lambda: open(os.path.expanduser("~/x"), "w").close(),
}}


def outcome(do):
    try:
        do()
    except Exception as error:
        return type(error).__name__.encode()
    return b"done"


class Model:
    signature = {{
        "inputs": [{{"name": "x", "datatype": "FP32", "shape": [-1]}}],
        "outputs": [{{"name": "y", "datatype": "BYTES", "shape": [-1, len(TRIES)]}}],
    }}

    def predict(self, inputs):
        found = [outcome(do) for do in TRIES.values()]
        return {{"y": np.array([found] * len(inputs["x"]), dtype=object)}}
"""
FILES = ["write a file", "write by a program", "write the model", "remove the model", "read a secret", "list a folder"]
CALLS = ["open to others", "a socket of the network", "a datagram", "a local socket", "signal another process"]
MORE = ["read another's variables", "a variable with a token"]
ALLOWED = ["read the model", "write scratch", "a process", "signal itself", "home"]


def landlock() -> int:
    return ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)) if sys.platform == "linux" else -1


@pytest.fixture
def trying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model that attempts all of it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    paths = (str(tmp_path / "secret"), str(tmp_path / "canary"), str(tmp_path / "socket"))
    (folder / "model.py").write_text(TRIES.format(paths=paths))
    monkeypatch.setenv("SOME_TOKEN", "secret")
    return folder


def outcomes(folder: Path) -> tuple[dict[str, str], str]:
    """Return the result of each attempt, and the replica's output."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.parent / "socket"))
        listener.listen()
        with replica(folder, "--name", "m", "--runtime", "python") as served:
            status, answer, _ = served.ask("POST", "/v1/models/m:predict", {"instances": [0.0]})
            assert status == 200, answer
    return dict(zip(FILES + CALLS + MORE + ALLOWED, answer["predictions"][0], strict=True)), "".join(served.words)


@pytest.mark.skipif(landlock() < 6, reason="this kernel has no Landlock of version 6")
def test_a_confined_worker_reaches_nothing(trying: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_CONFINE", "always")
    monkeypatch.setenv("TMPDIR", str(trying.parent))
    found, words = outcomes(trying)
    assert "worker: confined: no network, no local sockets, files can be read but not written" in words
    assert {name: found[name] for name in ALLOWED} == dict.fromkeys(ALLOWED, "done")
    refused = {name: found[name] for name in FILES + CALLS + MORE}
    assert "done" not in refused.values(), refused
    assert not (trying.parent / "canary").exists()
    assert (trying / "model.py").exists()
    assert [path.name for path in trying.parent.glob("fairway-worker-*")] == [], "the scratch folder goes with the worker"


def test_a_python_class_is_confined_only_on_request(trying: Path) -> None:
    (trying / "model.py").write_text((trying / "model.py").read_text().replace("os.unlink(__file__)", "None"))
    found, words = outcomes(trying)
    assert "worker: not confined: a Python class may use the network and files" in words
    assert (found["a local socket"], found["write a file"], found["a socket of the network"]) == ("done", "done", "done")


def test_a_setting_that_is_none_is_refused(trying: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairway.errors import UsageError
    from fairway.serving.replica.runtimes.worker_runtime import is_confined

    monkeypatch.setenv("FAIRWAY_CONFINE", "maybe")
    with pytest.raises(UsageError, match="FAIRWAY_CONFINE is 'maybe'"):
        is_confined("torch")
    for asked, python, torch in (("", False, True), ("auto", False, True), ("always", True, True), ("never", False, False)):
        os.environ["FAIRWAY_CONFINE"] = asked
        assert (is_confined("python"), is_confined("torch"), is_confined("savedmodel")) == (python, torch, torch)
