"""Every write of an operator fails a few times: its runs end well without a restart of the operator, and show what failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster import kwok
from cluster.control_plane import ControlPlane
from cluster.fixtures import skipping_what_is_missing
from cluster.installed import Installed, Jobs
from cluster.points import OPERATOR_OF_JOBS
from cluster.process import wait_for

FAILURES = 2
"""How often a write fails: a first try and its first retry."""
PATIENCE = 120.0


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    plane = ControlPlane()
    with skipping_what_is_missing():
        plane.start()
    installed = Installed(plane, tmp_path_factory.mktemp("fairway"))
    try:
        installed.install()
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "faults"}})
        wait_for("its account", lambda: plane.get("/api/v1/namespaces/faults/serviceaccounts/default")[0] == 200)
        kwok.add_nodes(plane, 2, capacity={"cpu": "4"})
        installed.start("scheduler")
        yield Jobs(installed, "faults", PATIENCE)
    finally:
        installed.stop()
        plane.stop()


def finish(jobs: Jobs, name: str) -> None:
    """Let the pods of a run end well."""

    def over() -> bool:
        for pod in jobs.pods(name):
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp"):
                jobs.annotate(pod["metadata"]["name"], runs_for="1ms")
        return jobs.status(name).get("phase") == "Succeeded"

    wait_for(f"{name} has succeeded", over, PATIENCE, lambda: jobs.why_not(name))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", OPERATOR_OF_JOBS)
def test_a_write_that_fails_is_repeated_and_the_operator_lives(jobs: Jobs, point: str) -> None:
    installed = jobs.installed
    log = installed.folder / "operator.log"
    before = log.read_text().count("injected failure") if log.exists() else 0
    process = installed.start(
        "operator", FAIRWAY_CRASH_AT=f"{point}:fails:{FAILURES}", FAIRWAY_OPERATOR_ENDPOINT="http://127.0.0.1:1"
    )
    name = point.removeprefix("api.").replace("/", "-")
    victim, other = f"{name}-victim", f"{name}-other"
    try:
        for run in (victim, other):
            jobs.submit(run)
        jobs.runs(victim)
        jobs.patch(victim, suspend=True)
        jobs.until(victim, "is stopped", lambda status: status["phase"] == "Stopped")
        finish(jobs, other)
        jobs.delete(victim)
        wait_for("its pods go", lambda: not jobs.pods(victim), PATIENCE, jobs.what_is_there)
        wait_for(f"{point} is reached", lambda: log.read_text().count("injected failure") > before, PATIENCE)
        assert process.poll() is None, "the operator ended"
    finally:
        installed.kill("operator")
