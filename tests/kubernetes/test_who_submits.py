"""The caller's identity: by command, by program or by hand. Groups come from the API server; users cannot write others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.record import API_SERVICE, Person, start_operator

import fairway
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.pod_annotation_policy import pod_marks
from fairway.engines.kubernetes.install.submitter_policy import vouching
from fairway.errors import DeniedError

pytestmark = pytest.mark.timeout(300)

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
QUEUE = {
    "apiVersion": "fairway.dev/v1alpha1",
    "kind": "JobQueue",
    "metadata": {"name": "language"},
    "spec": {"members": ["group:nlp"]},
}
QUEUES = "/apis/fairway.dev/v1alpha1/jobqueues"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    made = [*vouching("fairway-system"), *pod_marks("fairway-system")]
    policies = [(one, f"{ADMISSION}/{PLURALS[one['kind']]}/{one['metadata']['name']}") for one in made]
    for one, path in policies:
        control_plane.apply(one, path)
    control_plane.apply(QUEUE, f"{QUEUES}/language")
    start_operator(found)
    yield found
    found.stop()
    for path in (*(path for _, path in policies), API_SERVICE, f"{QUEUES}/language"):
        control_plane.request("DELETE", path)


def person(installed: Installed, namespace: str, folder: Path, name: str, groups: list[str]) -> Person:
    """A user who may edit, and belongs to these groups."""
    installed.plane.kubectl("-n", namespace, "create", "rolebinding", name, "--clusterrole=edit", f"--user={name}")
    found = Person(installed.plane, folder, name, namespace, groups)
    found.env["FAIRWAY_CONTEXT"] = "lab"
    return found


def made_by_hand(name: str, namespace: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {f"fairway.dev/{key}": value for key, value in annotations.items()},
        },
        "spec": {"queue": "language", "roles": {"worker": {"command": ["python", "train.py"]}}},
    }


def test_members_are_judged_by_the_groups_that_the_api_server_knows(installed: Installed, namespace: str, tmp_path: Path) -> None:
    jobs = Jobs(installed, namespace)
    ann = person(installed, namespace, tmp_path, "ann", ["nlp", "everybody"])
    submitted = ann.run("submit", "--queue", "language", "--name", "words", "--", "python", "-c", "1")
    assert submitted.stdout == "words-1\n"
    noted = jobs.get("words-1")["metadata"]["annotations"]
    assert (noted["fairway.dev/user"], noted["fairway.dev/groups"]) == ("ann", '["nlp"]')

    bob = person(installed, namespace, tmp_path, "bob", ["vision"])
    refused = bob.run("submit", "--queue", "language", "--name", "words", "--", "python", "-c", "1", code=5).stderr
    assert "bob may not submit to the queue language: group:nlp may" in refused
    assert "or use another queue: default" in refused

    # No user can write it by hand, on a new object or an existing one.
    def forged(**annotations: str) -> tuple[int, Any]:
        return installed.plane.request("POST", jobs.path, made_by_hand("forged", namespace, **annotations))

    wait_for("the policy holds", lambda: forged(user="ann")[0] == 422, 60.0)
    status, answer = forged(groups='["nlp"]')
    assert status == 422
    assert "only Fairway's operator may write it: remove it, or submit the document with `fairway submit`" in answer["message"]

    def patch(**annotations: str | None) -> int:
        body = {"metadata": {"annotations": {f"fairway.dev/{key}": value for key, value in annotations.items()}}}
        kind = "application/merge-patch+json"
        return installed.plane.request("PATCH", f"{jobs.path}/words-1", body, kind)[0]

    assert patch(user="root") == 422
    assert patch(note="seen") == 200
    assert patch(groups=None) == 200

    # An object without a user has no owner: it may use the queues that are open to all.
    bare = json.dumps(made_by_hand("bare", namespace))
    installed.plane.kubectl("apply", "-f", "-", given=bare)
    said = jobs.until("bare", "is refused", lambda status: status.get("reason") == "Refused")["message"]
    assert "an object that was created without Fairway names no user: use `fairway submit`" in said


async def test_a_program_acts_on_a_cluster_as_a_command_does(
    installed: Installed, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within an event loop, as in a notebook, both the blocking client and the asynchronous one."""
    cleo = person(installed, namespace, tmp_path, "cleo", [])
    monkeypatch.setenv("KUBECONFIG", str(cleo.kubeconfig))
    (cleo.work / "train.py").write_text("print(1)\n")
    document = {"kind": "TrainingJob", "name": "small", "code": str(cleo.work), "command": "python train.py"}
    client = fairway.Client(context="lab")
    assert client.plan(document).jobs
    job = client.submit(document, workers=2)
    assert (job.name, job.user, job.replicas) == ("small-1", "cleo", 2)
    assert Jobs(installed, namespace).get("small-1")["metadata"]["annotations"]["fairway.dev/code"].startswith("blob:")
    async with fairway.AsyncClient(context="lab") as awaited:
        assert [one.name for one in (await awaited.list()).jobs] == ["small-1"]
        waiting = asyncio.create_task(awaited.wait("small"))
        with pytest.raises(TimeoutError):
            await awaited.wait("small", timeout=0.5)
        await asyncio.to_thread(client.stop, "small")
        assert (await waiting).phase.value == "Stopped"
        assert [change.phase.value async for change in awaited.watch("small")][-1:] == ["Stopped"]
    assert client.delete("small-1") == ("small-1",)
    with pytest.raises(DeniedError, match='User "cleo" cannot list'):
        fairway.Client(context="lab", namespace="kube-system").list()


POD = {"containers": [{"name": "c", "image": "none"}], "automountServiceAccountToken": False}


def described(name: str, annotations: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return every kind of object that leads to a pod with these annotations, by path."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": POD}
    once = {"metadata": {"annotations": annotations}, "spec": {**POD, "restartPolicy": "Never"}}
    chosen = {"selector": {"matchLabels": labels}, "template": template}
    return {
        "api/v1/pods": {"metadata": {"annotations": annotations}, "spec": POD},
        "api/v1/replicationcontrollers": {"spec": {"replicas": 1, "selector": labels, "template": template}},
        "apis/apps/v1/deployments": {"spec": {"replicas": 1, **chosen}},
        "apis/apps/v1/replicasets": {"spec": {"replicas": 1, **chosen}},
        "apis/apps/v1/daemonsets": {"spec": chosen},
        "apis/apps/v1/statefulsets": {"spec": {"replicas": 1, "serviceName": name, **chosen}},
        "apis/batch/v1/jobs": {"spec": {"template": once}},
        "apis/batch/v1/cronjobs": {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": once}}}},
    }


def test_whose_turn_it_is_stands_on_pods_that_fairway_makes_alone(installed: Installed, namespace: str) -> None:
    plane, jobs = installed.plane, Jobs(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: plane.get(accounts)[0] == 200)

    def make(path: str, body: dict[str, Any], name: str, query: str = "?dryRun=All") -> tuple[int, Any]:
        root, _, plural = path.rpartition("/")
        body = {**body, "metadata": {**body.get("metadata", {}), "name": name}}
        return plane.request("POST", f"/{root}/namespaces/{namespace}/{plural}{query}", body)

    one = described("one", {annotation.QUEUE: "language"})
    wait_for("the policies hold", lambda: all(make(path, body, "one")[0] == 422 for path, body in one.items()), 60.0)
    for mark in annotation.TRUSTED:
        for path, body in described("two", {mark: "1"}).items():
            status, answer = make(path, body, "two")
            assert (status, f"the annotation {mark} is reserved for pods that Fairway creates" in answer.get("message", "")) == (
                422,
                True,
            ), path
    for path, body in described("plain", {"note": "1"}).items():
        assert make(path, body, "plain")[0] == 201, path

    # An existing pod cannot get it later; a pod that has it may keep it.
    assert make("api/v1/pods", described("plain", {"note": "1"})["api/v1/pods"], "plain", "")[0] == 201
    here = f"/api/v1/namespaces/{namespace}/pods/plain"
    kind = "application/merge-patch+json"
    assert plane.request("PATCH", here, {"metadata": {"annotations": {annotation.PRIORITY: "9"}}}, kind)[0] == 422
    assert plane.request("PATCH", here, {"metadata": {"annotations": {"note": "2"}}}, kind)[0] == 200

    # The operator creates its own pods, and the cluster's controllers create those of its templates.
    jobs.submit("ours")
    wait_for("the operator's pod", lambda: len(jobs.pods("ours")) == 1, 60.0, jobs.what_is_there)
    (pod,) = jobs.pods("ours")
    assert pod["metadata"]["annotations"][annotation.QUEUE] == "default"
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    assert plane.request("PATCH", path, {"metadata": {"annotations": {"note": "1"}}}, kind)[0] == 200
    assert plane.request("PATCH", path, {"metadata": {"annotations": {annotation.QUEUE: "language"}}}, kind)[0] == 422
    jobs.delete("ours")


def test_pods_of_a_service_keep_their_queue(installed: Installed, namespace: str) -> None:
    plane = installed.plane
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: plane.get(accounts)[0] == 200)
    body = described("served", {annotation.QUEUE: "language"})["apis/apps/v1/deployments"]
    body = {"apiVersion": "apps/v1", "kind": "Deployment", **body, "metadata": {"name": "served", "namespace": namespace}}
    operator = plane.kubeconfig("system:serviceaccount:fairway-system:fairway-operator", ["system:serviceaccounts"])
    plane.kubectl("--kubeconfig", str(operator), "apply", "--server-side", "-f", "-", given=json.dumps(body))
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dserved"
    wait_for("the controllers' pod", lambda: len(plane.get(path)[1]["items"]) == 1, 60.0)
    (pod,) = plane.get(path)[1]["items"]
    assert pod["metadata"]["annotations"][annotation.QUEUE] == "language"
    plane.kubectl("-n", namespace, "delete", "deployment", "served", "--wait=false")
