"""The verbs that need a running pod: logs that are followed, commands and files inside. Operator and scheduler are pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster import image
from cluster.nodes import RealCluster
from cluster.record import Person

pytestmark = pytest.mark.timeout(600)

PROGRAM = """
import os, pathlib, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
outputs = pathlib.Path(os.environ["FAIRWAY_SHARED_DIR"])
(outputs / "said").write_text("something to take home")
while not (outputs / "go").exists():
    time.sleep(0.05)
print("it was told:", (outputs / "go").read_text(), flush=True)
"""
DOCUMENT = """
kind: TrainingJob
name: talk
framework: pytorch
code: .
command: [python3, train.py]
metrics: {pattern: 'rank (?P<rank>[0-9]+) of (?P<world>[0-9]+)'}
"""
NAMESPACE = "verbs"


@pytest.fixture(scope="module")
def cluster(real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> RealCluster:
    plane = real_nodes.plane
    plane.start_scheduler()
    real_nodes.load(image.fairway(tmp_path_factory.mktemp("image") / "fairway.tar", ["kubernetes"]))
    admin = Person(plane, tmp_path_factory.mktemp("admin"), "admin", "default", ["system:masters"])
    settings = {"image": image.FAIRWAY, "runtimes": {"default": {"image": image.FAIRWAY}}, "record": {"emptyDir": {}}}
    (admin.work / "installation.yaml").write_text(json.dumps(settings))
    installed = admin.run("install", "kubernetes", "-f", "installation.yaml", "--timeout", "4m", timeout=300.0).stderr
    assert "Deployment fairway-system/fairway-operator is up: 1 of 1 ready" in installed
    # The installation is usable at once when the command returns.
    assert "service unavailable" not in admin.run("--context", "lab", "list").stderr
    plane.kubectl("create", "namespace", NAMESPACE)
    plane.kubectl("-n", NAMESPACE, "create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann")
    return real_nodes


def test_logs_are_followed_and_one_goes_inside_a_pod(cluster: RealCluster, tmp_path: Path) -> None:
    ann = Person(cluster.plane, tmp_path, "ann", NAMESPACE)
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    (ann.work / "train.py").write_text(PROGRAM)
    (ann.work / ".fairwayignore").write_text("secret.txt\n")
    (ann.work / "secret.txt").write_text("this stays here")
    (ann.work / "talk.yaml").write_text(DOCUMENT)
    submitted = ann.run("submit", "talk.yaml")
    assert submitted.stdout == "talk-1\n"
    with ann.start("logs", "-f", "talk") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "rank 0 of 1\n"

        inside = ann.run("exec", "talk", "--", "python3", "-c", "import os; print(os.environ['RANK'], sorted(os.listdir('.')))")
        assert inside.stdout == "0 ['.fairwayignore', 'talk.yaml', 'train.py']\n"
        assert "in the pod talk-1-worker-0-r0" in inside.stderr
        assert ann.run("exec", "talk", "--", "sh", "-c", "exit 7", code=7).stdout == ""
        assert ann.run("exec", "talk", "--", "cat", given="through the API server").stdout == "through the API server"
        assert "does not run" in ann.run("exec", "talk", "--index", "3", "--", "true", code=5).stderr

        ann.run("cp", "talk:shared/said", "said.txt")
        assert (ann.work / "said.txt").read_text() == "something to take home"
        assert "already exists" in ann.run("cp", "talk:shared/said", "said.txt", code=5).stderr
        assert "there is no" in ann.run("cp", "talk:shared/nothing", "nothing", code=3).stderr
        assert "leads out" in ann.run("cp", "talk:shared/../../../etc/passwd", "x", code=3).stderr
        bob = Person(cluster.plane, tmp_path, "bob", NAMESPACE)
        cluster.plane.kubectl("-n", NAMESPACE, "create", "rolebinding", "bob", "--clusterrole=view", "--user=bob")
        refused = bob.run("--context", "lab", "exec", "talk", "--", "true", code=5).stderr
        assert 'User "bob" cannot create resource "pods/exec"' in refused or 'cannot get resource "pods/exec"' in refused, refused

        (ann.work / "go").write_text("go on")
        ann.run("cp", "go", "talk:shared/go")
        assert following.stdout.readline() == "it was told: go on\n"
        assert following.wait(timeout=60) == 0
    assert ann.run("wait", "talk").returncode == 0
    assert ann.run("logs", "talk").stdout == "rank 0 of 1\nit was told: go on\n"
    # Its output was read for metrics, as on a single machine.
    assert ann.json("get", "talk")["progress"]["metrics"] == {"rank": 0.0, "world": 1.0}
