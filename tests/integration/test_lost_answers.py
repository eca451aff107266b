"""Responses are lost, wholly or partly, and the daemon is killed before, while and after it acts: all is done exactly once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cutting_proxy import CuttingProxy
from daemon_home import DaemonHome

import fairway
from fairway.sdk.transport import local_path


@pytest.fixture
def busy(home: DaemonHome) -> DaemonHome:
    """A home whose GPUs are all in use, so that whatever is submitted waits."""
    run = home.submit(home.document("holder", 1, role={"processes": 1, "resources": {"gpu": 2}}))
    home.until_started(f"{run}/worker-0#0")
    return home


def proxied(home: DaemonHome, **more: Any) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(home, home.runtime / "proxy.sock", **more)
    try:
        yield proxy
    finally:
        proxy.close()


def client_of(home: DaemonHome, proxy: CuttingProxy, kind: type[Any] = fairway.Client) -> Any:
    made = kind(home=home.path)
    made.daemon.socket = str(proxy.path)
    made.daemon.patience = 60.0  # On a busy machine a daemon takes a while to start.
    return made


def waiting(home: DaemonHome, number: int) -> dict[str, Any]:
    """Return a document that waits for GPUs; half of them in place, with an environment that is stored beside the run."""
    document = home.document("cut", 1, role={"processes": 1, "resources": {"gpu": 2}}, labels={"n": str(number)})
    return {**document, "code": {"path": str(home.work), "in_place": number % 2 == 0}}


def runs_by_number(home: DaemonHome) -> Counter[str]:
    """Return how many runs each submit created."""
    found = json.loads(home.ask("list", "cut", "-o", "json", "--limit", "1000"))["jobs"]
    return Counter(job["labels"]["n"] for job in found)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("submits", "kills"), [(30, 3), pytest.param(200, 12, marks=pytest.mark.soak)])
def test_every_submit_makes_one_run_however_its_answer_is_lost(busy: DaemonHome, submits: int, kills: int) -> None:
    for proxy in proxied(busy, seed=14, harm=b"POST /v1/jobs?", kills=kills):
        blocking, awaited = client_of(busy, proxy), client_of(busy, proxy, fairway.AsyncClient)
        names = []
        for number in range(submits):
            if number % 4:
                names.append(blocking.submit(waiting(busy, number)).name)
            else:
                names.append(asyncio.run(awaited.submit(waiting(busy, number))).name)
    print(f"{submits} submits, {len(set(names))} runs; requests: {dict(proxy.done)}")
    assert len(set(names)) == submits
    assert runs_by_number(busy) == Counter(str(number) for number in range(submits))
    assert sum(count for kind, count in proxy.done.items() if kind not in ("whole", "other")) > submits / 2, proxy.done
    assert min(proxy.done[kind] for kind in ("cut-answer", "cut-request", "no-answer")) > submits / 20, proxy.done
    assert sum(proxy.done[kind] for kind in ("kill-before", "kill-during", "kill-after")) == kills, proxy.done
    busy.kill_daemon()
    busy.start_daemon()
    left = {path.name for path in busy.path.glob("jobs/default/cut-*")} - set(names)
    assert left == set(), "a submit that was cut off left something"


def test_the_command_line_asks_again_with_the_same_key(busy: DaemonHome) -> None:
    elsewhere = busy.runtime / "caller"
    elsewhere.mkdir(mode=0o700)
    path = _socket_of(busy, elsewhere)
    document = busy.write(waiting(busy, 0))
    proxy = CuttingProxy(busy, path, 5, harm=b"POST /v1/jobs?", kills=0, part=1.0)
    try:
        name = busy.ask("submit", document, more={"XDG_RUNTIME_DIR": str(elsewhere)})
    finally:
        proxy.close()
    assert sum(count for kind, count in proxy.done.items() if kind not in ("whole", "other")) == 3, proxy.done
    assert busy.names().count(name) == 1
    assert runs_by_number(busy) == {"0": 1}


def test_a_key_of_the_user_is_for_one_document(busy: DaemonHome) -> None:
    document = busy.write(waiting(busy, 0))
    first = busy.ask("submit", document, "--key", "build-4711")
    busy.kill_daemon()
    assert busy.ask("submit", document, "--key", "build-4711", more={"BUILD": "2"}) == first
    other = busy.call("submit", document, "--key", "build-4711", "--priority", "3")
    assert other.returncode == 5
    assert "build-4711" in other.stderr
    assert first in other.stderr
    wrong = busy.call("submit", document, "--key", "two words")
    assert wrong.returncode == 2
    assert "two words" in wrong.stderr
    assert runs_by_number(busy) == {"0": 1}


def test_deletes_resumes_and_applies_are_done_once(busy: DaemonHome) -> None:
    failing = {**busy.document("fails", 1, sys.executable, "-c", "raise SystemExit(1)")}
    queue = {"kind": "JobQueue", "name": "research"}
    for proxy in proxied(busy, seed=3, harm=b"", kills=3, part=1.0):
        client = client_of(busy, proxy)
        applied = client.apply(json.dumps(failing) + "\n---\n" + json.dumps(queue))
        assert (applied[0].name, applied[0].action) == ("fails-1", "created")
        assert [queue.name for queue in client.queues()] == ["default", "research"]
        client.wait("fails-1", timeout=30)
        client.resume("fails-1")
        client.wait("fails-1", timeout=30)
        assert [event.reason for event in client.events("fails-1")].count("Resumed") == 1
        assert client.delete("fails-1") == ("fails-1",)
        client.delete_queue("research")
        assert sum(count for kind, count in proxy.done.items() if kind not in ("whole", "other")) == 12, proxy.done
    assert busy.names() == ["holder-1"]
    assert busy.ask("queue", "list", "-o", "name") == "default"


def _socket_of(home: DaemonHome, runtime: Path) -> Path:
    """Return where a caller with that runtime folder expects the daemon's socket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        return Path(local_path.find_socket(str(home.path)))
