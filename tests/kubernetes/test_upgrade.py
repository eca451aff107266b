"""Definitions that are older or newer than ours under running jobs: nothing is lost, restarted or reverted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import kwok
from cluster.control_plane import ControlPlane
from cluster.fixtures import skipping_what_is_missing
from cluster.installed import Installed, Jobs
from cluster.process import wait_for

from fairway.version import VERSION

FIRST = Path(__file__).with_name("first-crds.yaml")
"""The definitions as they were first published."""
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KIND = f"{KINDS}/trainingjobs.fairway.dev"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A separate control plane: definitions are shared by all tests of a cluster."""
    found = ControlPlane()
    with skipping_what_is_missing():
        found.start()
    yield found
    found.stop()


def first_definitions() -> list[dict[str, Any]]:
    """Return the definitions without a field that was added later, and with one that was removed since."""
    found = list(yaml.safe_load_all(FIRST.read_text()))
    spec = next(one for one in found if one["spec"]["names"]["kind"] == "TrainingJob")["spec"]["versions"][0]
    fields = spec["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["timeout"]
    fields["formerly"] = {"type": "string"}
    return found


def install(plane: ControlPlane, folder: Path) -> subprocess.CompletedProcess[str]:
    settings = folder / "installation.yaml"
    settings.write_text("image: fairway:1\nrecord: {emptyDir: {}}\nruntimes: {default: {image: none}}\n")
    words = ["install", "kubernetes", "-f", str(settings), "--timeout", "0"]
    command = [sys.executable, "-c", "import sys; from fairway.cli.main import main; sys.exit(main())", *words]
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig())}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)


def identities(jobs: Jobs) -> list[tuple[str, str, int]]:
    return [(pod["metadata"]["name"], pod["metadata"]["uid"], restarts(pod)) for pod in jobs.pods()]


def restarts(pod: dict[str, Any]) -> int:
    return sum(int(one["restartCount"]) for one in pod["status"].get("containerStatuses", ()))


def test_older_definitions_are_upgraded_under_jobs_and_newer_ones_left_alone(plane: ControlPlane, tmp_path: Path) -> None:
    for one in first_definitions():
        plane.apply(one, f"{KINDS}/{one['metadata']['name']}")
    installed = Installed(plane, tmp_path)
    installed.install(kinds=False)
    kwok.add_nodes(plane, 1, capacity={"cpu": "8"})
    installed.start("operator")
    installed.start("scheduler")
    jobs = Jobs(installed, "default")
    try:
        jobs.submit("steady", workers=2)
        jobs.runs("steady")
        # The operator of then had the field; this one never sees it.
        installed.kill("operator")
        jobs.patch("steady", formerly="set")
        before, pods = jobs.get("steady"), identities(jobs)
        assert before["spec"]["formerly"] == "set"

        done = install(plane, tmp_path)
        assert done.returncode == 0, done.stderr
        definition = plane.get(KIND)[1]
        assert definition["status"]["storedVersions"] == ["v1alpha1"]
        assert definition["metadata"]["labels"]["app.kubernetes.io/version"] == VERSION

        installed.start("operator")
        # A job with a field that the older definition lacks; when it runs, both processes have seen the new definition.
        jobs.submit("later", timeout="1h")
        jobs.runs("later")
        assert jobs.get("later")["spec"]["timeout"] == "1h"
        after = jobs.get("steady")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert "formerly" not in after["spec"]
        assert all(after["spec"][name] == value for name, value in before["spec"].items() if name != "formerly")
        assert (after["status"]["phase"], after["status"]["attempt"], after["status"]["restarts"]) == ("Running", 0, 0)
        assert [one for one in identities(jobs) if one[0].startswith("steady")] == pods

        again = install(plane, tmp_path)
        assert again.returncode == 0, again.stderr
        assert plane.get(KIND)[1]["metadata"]["resourceVersion"] == definition["metadata"]["resourceVersion"]

        newer = [{"op": "replace", "path": "/metadata/labels/app.kubernetes.io~1version", "value": "99.1.0"}]
        assert plane.request("PATCH", KIND, newer, "application/json-patch+json")[0] == 200
        version = plane.get(KIND)[1]["metadata"]["resourceVersion"]
        refused = install(plane, tmp_path)
        assert refused.returncode == 5
        assert f"the cluster has Fairway 99.1.0, and this is {VERSION}" in refused.stderr
        assert "use Fairway 99.1.0 or newer" in refused.stderr
        assert plane.get(KIND)[1]["metadata"]["resourceVersion"] == version
        for name in ("steady", "later"):
            jobs.delete(name)
        wait_for("nothing is left", lambda: not jobs.pods(), 60.0)
    finally:
        installed.stop()
