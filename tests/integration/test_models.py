"""Models through the command line and a real daemon: registered once, completely or not at all, whatever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_home import UNAVAILABLE, DaemonHome

from fairway.testing.builder.model_file import onnx_file

TRAINER = """
import os, time
import fairway
fairway.report(step=1, accuracy=0.5)
fairway.report(step=2, accuracy=0.75)
folder = fairway.output("model")
(folder / "model.onnx").write_bytes(bytes.fromhex(os.environ["CONTENT"]))
with open(os.environ["MARKS"] + "/started", "a") as file:
    file.write(f"{os.environ['FAIRWAY_JOB']}/worker-0#0 {os.getpid()}\\n")
while not os.path.exists(os.environ["MARKS"] + "/go-" + os.environ["FAIRWAY_JOB"]):
    time.sleep(0.01)
"""
"""Writes a model, and waits for an order to end."""
PLACES = [f"registry.rename:{moment}:{count}" for moment in ("before", "after") for count in (1, 2, 3)]
"""The model's file, the manifest, and the version's number."""


def trainer(home: DaemonHome) -> dict[str, Any]:
    (home.work / "trainer.py").write_text(TRAINER)
    command = [sys.executable, str(home.work / "trainer.py")]
    document = home.document("train", 1, *command, outputs={"model": "digits"})
    return {**document, "env": {**document["env"], "CONTENT": onnx_file().hex()}}


def versions(home: DaemonHome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(home.persist("model", "list", "-o", "json"))["models"]
    return found


def check_registered_once(home: DaemonHome, run: str) -> None:
    (made,) = versions(home)
    assert (made["name"], made["version"], made["lineage"]["run"]) == ("digits", 1, f"default/{run}")
    assert made["metrics"] == {"accuracy": 0.75}
    reasons = home.persist("events", run)
    assert reasons.count("registered digits@1") == 1
    assert home.get(run)["models"] == ["digits@1"]
    target = home.work / "pulled"
    home.persist("model", "pull", "digits@1", str(target))
    assert (target / "model.onnx").read_bytes() == onnx_file()
    left = [str(path) for pattern in ("blobs/aside/*", "models/*/.*", "expected-models/*") for path in home.path.glob(pattern)]
    assert left == []


def test_a_run_becomes_a_version(home: DaemonHome) -> None:
    run = home.submit(trainer(home))
    home.until_started(f"{run}/worker-0#0")
    home.tell(run)
    home.until_phase(run, "Succeeded")
    check_registered_once(home, run)
    assert "registered: digits@1" in home.ask("get", run)


@pytest.mark.parametrize("place", [PLACES[0], PLACES[2], PLACES[5]])
def test_a_run_becomes_one_version_when_the_daemon_dies_on_the_way(home: DaemonHome, place: str) -> None:
    run = home.submit(trainer(home))
    home.until_started(f"{run}/worker-0#0")
    home.kill_daemon()
    daemon = home.start_child(FAIRWAY_CRASH_AT=place)
    home.until(lambda: home.status()["running"] or daemon.poll() is not None, "the start of the daemon")
    home.tell(run)
    assert home.until(lambda: daemon.poll() is not None, "the death of the daemon")
    assert daemon.returncode == -signal.SIGKILL
    home.until_phase(run, "Succeeded")
    check_registered_once(home, run)


def test_a_registration_by_hand_is_whole_or_not_at_all(home: DaemonHome) -> None:
    kept = []
    for number, place in enumerate(PLACES):
        # New content each time, so that every step has something to do.
        content = onnx_file(outputs=[(f"y{number}", 1, (1,))])
        (home.work / "m.onnx").write_bytes(content)
        daemon = home.start_child(FAIRWAY_CRASH_AT=place)
        home.until(lambda: home.status()["running"], "the start of the daemon")
        assert home.call_once("model", "register", "mine", "m.onnx").returncode == UNAVAILABLE
        assert daemon.wait(30) == -signal.SIGKILL
        if place == PLACES[-1]:
            kept.append(content)
    made = versions(home)
    assert [version["version"] for version in made] == list(range(1, len(kept) + 1))
    for number, content in enumerate(kept, 1):
        home.persist("model", "pull", f"mine@{number}", f"pulled-{number}")
        assert (home.work / f"pulled-{number}" / "m.onnx").read_bytes() == content
    assert home.persist("model", "register", "mine", "m.onnx", "-o", "name") == "mine@1"


@pytest.fixture
def small(make_home: Callable[..., DaemonHome], tmp_path: Path) -> Iterator[DaemonHome]:
    """A home on a small disk of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={24 << 20}", "tmpfs", disk], check=False, capture_output=True)
    if mounted.returncode and not os.environ.get("CI"):
        pytest.skip("no disk of its own can be mounted here")
    assert mounted.returncode == 0
    try:
        home = make_home(disk=disk)
        yield home
        home.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_on_a_full_disk_there_is_no_half_version(small: DaemonHome) -> None:
    folder = small.work / "big"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(onnx_file())
    for number in range(8):
        (folder / f"part-{number}").write_bytes(os.urandom(4 << 20))
    small.start_daemon()
    refused = small.call("model", "register", "big", str(folder))
    assert (refused.returncode, "is full" in refused.stderr) == (4, True), refused.stderr
    assert versions(small) == []
    assert list((small.path / "blobs" / "aside").iterdir()) == []
    small.ask("model", "register", "small", str(folder / "model.onnx"))
    for number in range(4, 8):
        (folder / f"part-{number}").unlink()
    assert small.ask("model", "register", "big", str(folder)) == "big@1"


def test_content_may_lie_in_a_store_elsewhere(make_home: Callable[..., DaemonHome], tmp_path: Path) -> None:
    store = tmp_path / "store"
    home = make_home(FAIRWAY_BLOBS=f"file://{store}")
    (home.work / "m.onnx").write_bytes(onnx_file())
    (home.work / "data").mkdir()
    (home.work / "data" / "a").write_text("a")
    assert home.ask("model", "register", "mine", "m.onnx") == "mine@1"
    assert home.ask("data", "add", "digits", "data") == "digits@1"
    assert len(list((store / "sha256").glob("*/*"))) == 4
    home.kill_daemon()
    shutil.rmtree(home.path / "blobs")
    home.ask("model", "pull", "mine@1", "pulled")
    assert (home.work / "pulled" / "m.onnx").read_bytes() == onnx_file()
    run = home.submit(home.document("reads", 1, "cp", "{{data.d}}/a", f"{home.marks}/seen", data={"d": "digits@1"}))
    home.until_phase(run, "Succeeded")
    assert (home.marks / "seen").read_text() == "a"
