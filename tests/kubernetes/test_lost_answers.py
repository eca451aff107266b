"""Responses of a cluster are lost, and the operator dies while it creates an object: each submit creates exactly one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.record import API_SERVICE, Person, available, lead_to_operator

from fairway import Client
from fairway.errors import ConflictError
from fairway.sdk.transport.cluster import ClusterConnection, lost
from fairway.sdk.transport.http import SocketReply

pytestmark = pytest.mark.timeout(300)

JOB = """
kind: TrainingJob
name: mnist
code: .
grace: 1s
command: python train.py
resources: {cpu: 1}
placement: {tolerations: ["*"]}
"""


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    (found.folder / "home").mkdir()
    yield found
    found.stop()
    control_plane.request("DELETE", API_SERVICE)  # while the operator does not respond there, no namespace can be deleted


@pytest.fixture
def ann(installed: Installed, namespace: str, tmp_path: Path) -> Iterator[Person]:
    """A user who may edit in one namespace."""
    body = {
        "metadata": {"name": "ann-edit"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    assert installed.plane.request("POST", path, body)[0] == 201
    person = Person(installed.plane, tmp_path, "ann", namespace)
    person.env["FAIRWAY_CONTEXT"] = "lab"
    (person.work / "job.yaml").write_text(JOB)
    (person.work / "train.py").write_text("print('hello')\n")
    yield person
    jobs = Jobs(installed, namespace)
    for one in installed.plane.get(jobs.path)[1]["items"]:
        jobs.delete(one["metadata"]["name"])
    installed.end("operator")


def start(installed: Installed, **more: str) -> dict[str, str]:
    """Start the operator; return its address."""
    where = lead_to_operator(installed)
    installed.start("operator", **where, **more)
    wait_for("the record to be available", lambda: available(installed.plane), 60.0, installed.last_words)
    return where


def names(installed: Installed, namespace: str) -> list[str]:
    return sorted(one["metadata"]["name"] for one in installed.plane.get(Jobs(installed, namespace).path)[1]["items"])


class Torn(ClusterConnection):
    """Loses the first answers to each submit."""

    losses = 2

    def request(self, method: str, path: str, *args: Any, **given: Any) -> SocketReply:
        reply = super().request(method, path, *args, **given)
        if (method, path) == ("POST", "/v1/jobs") and self.losses:
            self.losses -= 1
            reply.read()
            raise lost(self.target, "the cable was pulled")
        return reply


def test_a_submit_whose_answer_is_lost_makes_one_object(
    ann: Person, installed: Installed, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(installed)
    monkeypatch.setattr("fairway.sdk.client.ClusterConnection", Torn)
    client = Client(context=str(ann.kubeconfig))
    assert client.submit(ann.work / "job.yaml").name == "mnist-1"
    assert names(installed, namespace) == ["mnist-1"]
    assert client.submit(ann.work / "job.yaml", key="build-1").name == "mnist-2"
    # Another process, which packs the same code again; and the same key for a different request.
    assert ann.run("submit", "job.yaml", "--key", "build-1").stdout == "mnist-2\n"
    with pytest.raises(ConflictError, match="build-1"):
        client.submit(ann.work / "job.yaml", key="build-1", priority=3)
    assert names(installed, namespace) == ["mnist-1", "mnist-2"]
    made = installed.plane.get(f"{Jobs(installed, namespace).path}/mnist-2")[1]
    assert len(made["metadata"]["annotations"]["fairway.dev/request"]) == 64


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_operator_that_dies_while_it_makes_the_object_makes_one(
    ann: Person, installed: Installed, namespace: str, moment: str
) -> None:
    where = start(installed, FAIRWAY_CRASH_AT=f"api.create/trainingjobs:{moment}")
    with ann.start("submit", "job.yaml") as submit:
        operator = installed.processes.pop("operator")
        operator.wait(60)
        installed.end_lease("operator")
        assert names(installed, namespace) == (["mnist-1"] if moment == "after" else [])
        installed.start("operator", **where)
        out, told = submit.communicate(timeout=120)
    assert (submit.returncode, out) == (0, "mnist-1\n"), told
    assert names(installed, namespace) == ["mnist-1"]
