"""The same verbs on a cluster: the real command, as somebody whom RBAC lets do a few things, over the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.record import Person, start_operator

Add = Callable[..., list[str]]
JOB = """
kind: TrainingJob
name: mnist
framework: pytorch
grace: 1s
code: .
roles:
  worker:
    replicas: 2
    command: python train.py
    resources: {cpu: 1}
    placement: {tolerations: ["*"]}
"""


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    start_operator(found)
    found.start("scheduler")
    yield found
    found.stop()


def bind(plane: ControlPlane, namespace: str, user: str, role: str) -> None:
    body = {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    status, answer = plane.request("POST", path, body)
    assert status == 201, answer


@pytest.fixture
def ann(installed: Installed, namespace: str, tmp_path: Path, kwok_nodes: Add) -> Iterator[Person]:
    """Somebody who may edit in one namespace."""
    kwok_nodes(2, capacity={"cpu": "4"})
    bind(installed.plane, namespace, "ann", "edit")
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    person = Person(installed.plane, tmp_path, "ann", namespace)
    (person.work / "job.yaml").write_text(JOB)
    (person.work / "train.py").write_text("print('hello')\n")
    yield person
    jobs = Jobs(installed, namespace)
    for one in installed.plane.get(jobs.path)[1]["items"]:
        jobs.delete(one["metadata"]["name"])
    wait_for("nothing is left", lambda: not jobs.pods(), 60.0)


def test_one_who_may_edit_a_namespace_uses_the_verbs_there(ann: Person, installed: Installed, namespace: str) -> None:
    jobs = Jobs(installed, namespace)
    assert "* local" in ann.run("use").stdout
    assert ann.json("--context", "lab", "list")["jobs"] == []
    assert f"on lab / {namespace}" in ann.run("use", "lab").stderr
    assert "* lab" in ann.run("use").stdout

    submitted = ann.run("submit", "job.yaml")
    assert submitted.stdout == "mnist-1\n"
    assert submitted.stderr.startswith(f"on lab / {namespace}\n")
    made = jobs.get("mnist-1")
    assert made["metadata"]["annotations"]["fairway.dev/user"] == "ann"
    assert made["metadata"]["annotations"]["fairway.dev/code"].startswith("blob:")
    jobs.runs("mnist-1")

    assert [job["name"] for job in ann.json("list")["jobs"]] == ["mnist-1"]
    assert ann.json("get", "mnist")["phase"] == "Running"
    assert ann.json("why", "mnist")["phase"] == "Running"
    assert ann.json("events", "mnist")["events"][0]["message"] == "by ann"
    assert {event["subject"] for event in ann.json("events")["events"]} == {f"{namespace}/mnist-1"}
    assert [job["name"] for job in ann.json("top", "job")["jobs"]] == ["mnist-1"]
    assert [task["name"] for task in ann.json("top", "job", "mnist")["tasks"]] == ["worker-0", "worker-1"]
    assert len(ann.json("top", "node")["nodes"]) == 2
    assert "has printed nothing" in ann.run("logs", "mnist").stderr

    assert "is stopped" in ann.run("stop", "mnist", "--wait").stderr
    assert jobs.get("mnist-1")["spec"]["suspend"] is True
    ann.run("resume", "mnist")
    assert jobs.get("mnist-1")["spec"]["suspend"] is False
    assert jobs.runs("mnist-1")["attempt"] == 1
    assert ann.run("submit", "--like", "mnist-1", "--workers", "1", "-o", "name").stdout == "mnist-2\n"
    again = jobs.get("mnist-2")
    assert again["spec"]["roles"]["worker"]["replicas"] == {"min": 1, "max": 1}
    assert again["metadata"]["annotations"]["fairway.dev/code"] == made["metadata"]["annotations"]["fairway.dev/code"]
    assert ann.run("delete", "--all", "mnist").stdout == "mnist-2\nmnist-1\n"
    assert installed.plane.get(f"{jobs.path}/mnist-1")[0] == 404
    assert ann.json("list")["jobs"] == []
    assert "on local" in ann.run("use", "local").stderr
