"""The operator's record is lost, damaged or older than its objects: no pod ends, nothing runs twice, everything continues."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for

Add = Callable[..., list[str]]


@pytest.fixture
def installed(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path)
    found.install()
    found.start("operator")
    found.start("scheduler")
    yield found
    found.stop()


@pytest.fixture
def jobs(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Jobs]:
    """Jobs in a separate namespace; all are deleted while the nodes still exist."""
    del kwok_nodes
    found = Jobs(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    yield found
    for name in [one["metadata"]["name"] for one in installed.plane.get(found.path)[1]["items"]]:
        found.delete(name)
    wait_for("nothing is left", lambda: not found.pods(), 60.0)


def remove(home: Path) -> None:
    """Remove the database alone; backups and journal remain."""
    for path in home.glob("fairway.db*"):
        path.unlink()


def remove_all(home: Path) -> None:
    """Remove the whole volume's content, as if it were new."""
    shutil.rmtree(home)


def empty(home: Path) -> None:
    """Leave an empty file, as a full disk does."""
    for path in home.glob("fairway.db-*"):
        path.unlink()
    (home / "fairway.db").write_bytes(b"")


def put_back(home: Path) -> None:
    """Restore a copy from before the runs."""
    for path in home.glob("fairway.db-*"):
        path.unlink()
    shutil.copy(home / "older.copy", home / "fairway.db")


LOSSES = {"missing": remove, "everything": remove_all, "empty": empty, "older": put_back}


def uids(jobs: Jobs, run: str) -> list[tuple[str, str]]:
    return [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in jobs.pods(run)]


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_ends_and_nothing_runs_twice(installed: Installed, jobs: Jobs, kwok_nodes: Add, loss: str) -> None:
    home = installed.folder / "home"
    kwok_nodes(1, capacity={"cpu": "8"})
    wait_for("the record", lambda: (home / "fairway.db").exists())
    installed.end("operator")
    shutil.copy(home / "fairway.db", home / "older.copy")
    installed.start("operator")
    jobs.submit("done")
    jobs.runs("done")
    jobs.annotate("done-worker-0-r0", runs_for="10ms")
    jobs.until("done", "has succeeded", lambda status: status["phase"] == "Succeeded")
    jobs.submit("steady", workers=2)
    jobs.runs("steady")
    jobs.submit("robbed")
    jobs.runs("robbed")
    jobs.plane.request("DELETE", f"/api/v1/namespaces/{jobs.namespace}/pods/robbed-worker-0-r0")
    jobs.until("robbed", "runs again", lambda status: (status["phase"], status["attempt"]) == ("Running", 1))
    before = {name: uids(jobs, name) for name in ("steady", "robbed")}
    finished = jobs.status("done")
    installed.kill("operator")
    LOSSES[loss](home)
    installed.start("operator")
    # A new object is handled last: by then the operator has processed the others.
    jobs.submit("later")
    jobs.runs("later")
    for name, pods in before.items():
        assert uids(jobs, name) == pods, jobs.why_not(name)
        jobs.until(name, "runs", lambda status: status["phase"] == "Running")
    assert jobs.status("robbed")["attempt"] == 1
    done = jobs.status("done")
    assert (done["phase"], done["finishTime"], done["attempt"]) == ("Succeeded", finished["finishTime"], 0)
    assert not [pod for pod in jobs.pods("done") if pod["status"]["phase"] == "Running"], "it does not run again"
    for name in before:
        for pod in jobs.pods(name):
            jobs.annotate(pod["metadata"]["name"], runs_for="10ms")
        jobs.until(name, "has succeeded", lambda status: status["phase"] == "Succeeded")
    assert jobs.status("robbed")["attempt"] == 1
    jobs.delete("done")
    wait_for("its pods go with it", lambda: not jobs.pods("done"), 60.0)
