"""Kueue and Volcano beside us: their definitions on a real API server accept our pods and groups; we show their reasons."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster.control_plane import ControlPlane
from cluster.fixtures import skipping_what_is_missing
from cluster.installed import Installed, Jobs
from cluster.modules import definitions
from cluster.process import wait_for

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFAULT_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "plain", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "example.org/none",
}
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/{}/workloads"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A separate control plane, with the kinds of both."""
    found = ControlPlane()
    with skipping_what_is_missing():
        theirs = definitions("sigs.k8s.io/kueue", "config/components/crd/bases")
        theirs += definitions("volcano.sh/volcano", "config/crd/volcano/bases")
        found.start()
    found.apply(DEFAULT_CLASS, f"{CLASSES}/plain")
    for one in theirs:
        found.apply(one, f"{KINDS}/{one['metadata']['name']}")
    for path in (WORKLOADS, GROUPS):
        wait_for("their kinds", lambda path=path: found.get(path.format("default"))[0] == 200)
    yield found
    found.stop()


Run = Callable[[str], Jobs]


@pytest.fixture
def operated(plane: ControlPlane, tmp_path: Path) -> Iterator[Run]:
    """Starts an operator for the queueing system of this name; returns jobs of a namespace to submit in."""
    made: list[Installed] = []

    def run(queueing: str) -> Jobs:
        found = Installed(plane, tmp_path)
        found.installation = msgspec.structs.replace(found.installation, scheduler="", queueing=queueing)
        found.install()
        found.start("operator")
        made.append(found)
        namespace = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})[1]["metadata"]["name"]
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_for("the service account", lambda: plane.get(accounts)[0] == 200)
        return Jobs(found, namespace)

    yield run
    for one in made:
        one.stop()


def patch_status(plane: ControlPlane, path: str, status: dict[str, Any]) -> None:
    code, answer = plane.request("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")
    assert code == 200, answer


def test_kueue_admits_the_gang_and_its_reason_is_ours(plane: ControlPlane, operated: Run) -> None:
    jobs = operated("kueue")
    jobs.submit("mnist", workers=2, queue="research")
    wait_for("its pods", lambda: len(jobs.pods("mnist")) == 2, 60.0, jobs.installed.last_words)
    for pod in jobs.pods("mnist"):
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        assert labels["kueue.x-k8s.io/queue-name"] == "research"
        assert (labels["kueue.x-k8s.io/pod-group-name"], annotations["kueue.x-k8s.io/pod-group-total-count"]) == ("mnist-a0", "2")
        assert pod["spec"]["schedulerName"] == "default-scheduler"
    # What Kueue creates for such a group, and reports on it.
    containers = [{"name": "task", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
    pods = {"name": "main", "count": 2, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "mnist-a0"},
        "spec": {"queueName": "research", "podSets": [pods]},
    }
    path = WORKLOADS.format(jobs.namespace)
    status, answer = plane.request("POST", path, workload)
    assert status == 201, answer
    said = "couldn't assign flavors to pod set main: insufficient unused quota for cpu"
    waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": said}
    patch_status(plane, f"{path}/mnist-a0", {"conditions": [{**waits, "lastTransitionTime": "2026-11-01T00:00:00Z"}]})
    jobs.until("mnist", "says why", lambda status: f"Kueue: {said}" in status.get("message", ""))


def test_volcano_gets_a_group_and_its_reason_is_ours(plane: ControlPlane, operated: Run) -> None:
    jobs = operated("volcano")
    jobs.submit("mnist", workers=2, queue="research")
    wait_for("its pods", lambda: len(jobs.pods("mnist")) == 2, 60.0, jobs.installed.last_words)
    for pod in jobs.pods("mnist"):
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "mnist-a0"
        assert pod["spec"]["schedulerName"] == "volcano"
    path = f"{GROUPS.format(jobs.namespace)}/mnist-a0"
    status, group = plane.get(path)
    assert status == 200
    assert {name: group["spec"][name] for name in ("minMember", "queue")} == {"minMember": 2, "queue": "research"}
    assert group["metadata"]["ownerReferences"][0]["kind"] == "TrainingJob"
    said = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"
    waits = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": said}
    written = {**group, "status": {"phase": "Inqueue", "conditions": [waits]}}
    # Volcano's kind has no status subresource: the whole object is written.
    code, answer = plane.request("PUT", path, written)
    assert code == 200, answer
    jobs.until("mnist", "says why", lambda status: f"Volcano: {said}" in status.get("message", ""))
    jobs.delete("mnist")
    wait_for("the group goes with the job", lambda: plane.get(path)[0] == 404, 60.0)


def test_an_installation_leaves_queueing_to_whom_it_finds(plane: ControlPlane) -> None:
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig())}
    words = ["install", "kubernetes", "--image", "fairway:1", "--plan", "-o", "name"]

    def planned(*more: str) -> tuple[str, str]:
        command = [sys.executable, "-c", "import sys; from fairway.cli.main import main; sys.exit(main())", *words, *more]
        told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
        return told.stdout, told.stderr

    objects, said = planned()
    assert "kueue is installed: it keeps queueing and placing pods" in said
    assert "fairway-scheduler" not in objects
    assert "ClusterRole fairway-operator-kueue\n" in objects
    objects, said = planned("--scheduler", "fairway")
    assert "kueue is installed; Fairway still queues and places its own pods" in said
    assert "Deployment fairway-system/fairway-scheduler\n" in objects
