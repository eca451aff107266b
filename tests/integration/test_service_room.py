"""A service on a full machine: which runs it preempts, which it waits for, and what both sides are shown."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from daemon_home import DaemonHome

SERVER = """
import http.server, os
http.server.HTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
TRAINER = """
import os, time
import fairway
begin = fairway.checkpoint.latest()
with open(os.environ["MARKS"] + "/started", "a") as file:
    file.write(f"{os.environ['FAIRWAY_JOB']}/{os.environ['FAIRWAY_TASK']}#{os.environ['FAIRWAY_ATTEMPT']} {os.getpid()}\\n")
if begin is None:
    with fairway.checkpoint.save(5) as folder:
        (folder / "weights").write_text("w")
fairway.report(step=5, loss=1)
while not os.path.exists(os.environ["MARKS"] + f"/go-{os.environ['FAIRWAY_JOB']}"):
    time.sleep(0.02)
"""


@pytest.fixture
def full(home: DaemonHome) -> DaemonHome:
    """A machine of two cores."""
    home.environment["FAIRWAY_CPUS"] = "2"
    (home.work / "server.py").write_text(SERVER)
    (home.work / "trainer.py").write_text(TRAINER)
    return home


def serve(home: DaemonHome, name: str, *flags: str) -> Any:
    return home.ask("serve", "--name", name, "--cpus", "1", "-d", *flags, "--", sys.executable, "server.py")


def service(home: DaemonHome, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(home.persist("get", f"service/{name}", "-o", "json"))
    return found


def test_a_run_that_has_saved_nothing_is_not_made_to_leave_by_a_service(full: DaemonHome) -> None:
    run = full.submit(full.document("long", 1, role={"resources": {"cpu": 2}}))
    full.until_started(f"{run}/worker-0#0")
    serve(full, "web")
    serve(full, "web")
    serve(full, "other")
    full.until(lambda: service(full, "web")["replicas"], "a replica that waits")
    full.until(lambda: "long-1" in full.ask("why", "service/web"), "the reason why it waits")
    assert "MakingRoom" not in full.ask("events", run)
    told = full.ask("why", "service/web")
    assert "has saved nothing" in told
    assert full.get(run)["phase"] == "Running"
    assert full.get(run)["attempt"] == 0
    planned = full.ask("serve", "--name", "third", "--cpus", "1", "--plan", "--", sys.executable, "server.py")
    assert "would wait" in planned
    assert "long-1" in planned
    full.tell(run)
    full.until(lambda: service(full, "web")["ready_replicas"] == 1, "the replica once the run is over")
    assert len(full.started()) == 1, "the run was started once"


def test_a_run_that_has_saved_makes_room_and_both_sides_say_so(full: DaemonHome) -> None:
    run = full.submit(full.document("saves", 1, sys.executable, str(full.work / "trainer.py"), role={"resources": {"cpu": 2}}))
    full.until_started(f"{run}/worker-0#0")
    full.until(lambda: full.get(run)["progress"]["checkpoint_step"] == 5, "a checkpoint")
    planned = full.ask("serve", "--name", "web", "--cpus", "1", "--plan", "--", sys.executable, "server.py")
    assert "saves-1 would have to leave: it makes room for service web, which is more urgent" in planned
    assert "goes on from step 5 later" in planned
    assert full.get(run)["phase"] == "Running", "only planned"

    serve(full, "web")
    full.until(lambda: service(full, "web")["ready_replicas"] == 1, "the replica")
    assert "makes room for service web, which is more urgent" in full.ask("events", run)
    told = full.ask("why", run)
    assert "makes room for service web" in told
    assert full.get(run)["phase"] == "Pending"
    full.ask("delete", "service/web")
    full.until_started(f"{run}/worker-0#1")
    full.until_phase(run, "Running")
    assert "service web" not in full.ask("why", run), "it runs again"
    full.tell(run)
    full.until_phase(run, "Succeeded")


def test_a_service_that_is_more_urgent_by_its_document_takes_the_place(full: DaemonHome) -> None:
    run = full.submit(full.document("long", 1, role={"resources": {"cpu": 2}}))
    full.until_started(f"{run}/worker-0#0")
    document = {
        "kind": "ModelService",
        "name": "web",
        "command": [sys.executable, "server.py"],
        "code": {"path": ".", "in_place": True},
        "resources": {"cpu": 1},
        "priority": 101,
    }
    planned = full.ask("apply", "-f", full.write(document), "--plan")
    assert "long-1 would have to leave: it makes room for service web" in planned
    assert "has saved nothing and begins again later" in planned
    full.ask("apply", "-f", full.write(document))
    full.until(lambda: service(full, "web")["ready_replicas"] == 1, "the replica")
    assert "it has saved nothing and begins again" in full.ask("events", run)
