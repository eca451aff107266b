"""Our kinds on a real API server: it refuses what the models refuse, accepts pods as described, and sizes take effect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for

from fairway.engines.kubernetes.operator.installation import DocumentPermissions, FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest import network
from fairway.engines.kubernetes.operator.manifest.pod import pod
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.errors import FairwayError
from fairway.plan.task_expansion import make_tasks
from fairway.spec.job import JobSpec
from fairway.spec.text.document import read_data
from fairway.state.job import JobKey, JobState, SubmissionOrigin

Add = Callable[..., list[str]]


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.installation = msgspec.structs.replace(found.installation, run_volume={"hostPath": {"path": "/runs"}})
    found.install()
    found.start("operator")
    found.start("scheduler")
    yield found
    found.stop()


@pytest.fixture
def jobs(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Jobs]:
    del kwok_nodes
    found = Jobs(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    yield found
    for name in [one["metadata"]["name"] for one in installed.plane.get(found.path)[1]["items"]]:
        found.delete(name)
    wait_for("nothing is left", lambda: not found.pods(), 60.0)


WORKER = {"command": ["python", "train.py"]}
GOOD: dict[str, dict[str, Any]] = {
    "TrainingJob": {"roles": {"worker": WORKER}},
    "ModelService": {"model": "mnist@1"},
    "JobQueue": {},
}
"""A valid object of every kind; each mistake is inserted into it."""
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("TrainingJob", {"success": "launcher"}, "needs a role `launcher`, and there is none"),
    ("TrainingJob", {"success": "chief"}, "needs a role `chief`, and there is none"),
    ("TrainingJob", {"roles": {"worker": {**WORKER, "script": "x"}}}, ""),
    ("TrainingJob", {"roles": {"worker": {}}}, ""),
    ("TrainingJob", {"roles": {"worker": {**WORKER, "replicas": {"min": 3, "max": 2}}}}, "swap them"),
    (
        "TrainingJob",
        {"roles": {"worker": {**WORKER, "placement": {"together": True, "apart": True}}}},
        "wants replicas together and apart",
    ),
    ("TrainingJob", {"code": {"path": "https://example.org/x.git"}}, "is no folder"),
    ("TrainingJob", {"code": {"path": ".", "git": {"url": "x"}}}, "has a path and a git source; keep one of them"),
    ("TrainingJob", {"environment": {"container": "always"}}, "needs an image"),
    ("TrainingJob", {"secrets": ["A", "A"]}, ""),
    ("TrainingJob", {"kubernetes": {"network": {"interface": "eth0; rm"}}}, ""),
    ("ModelService", {"command": ["a"]}, ""),
    ("ModelService", {"model": ""}, ""),
    ("ModelService", {"model": "", "command": ["a"], "follow": True}, "follows a model, and there is none"),
    ("ModelService", {"placement": {"together": True, "apart": True}}, "wants replicas together and apart"),
    ("ModelService", {"environment": {"container": "always"}}, "needs an image"),
    ("ModelService", {"rollout": {"strategy": "shadow", "inPlace": True}}, "keep the old replicas beside the new ones"),
    ("ModelService", {"rollout": {"strategy": "rolling", "steps": [{"to": "5%"}]}}, "has steps"),
    (
        "ModelService",
        {"rollout": {"strategy": "shadow", "guard": {"metric": {"name": "clicks"}}}},
        "nobody sees those of a shadow release",
    ),
    ("JobQueue", {"limits": {"priority": 5}, "defaults": {"priority": 6}}, "is higher than"),
]


def document(kind: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    place = {} if kind == "JobQueue" else {"namespace": namespace}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": kind, "metadata": {"name": "mistaken", **place}, "spec": spec}


def test_the_api_server_refuses_what_the_models_refuse(installed: Installed, namespace: str) -> None:
    plural = {"TrainingJob": "trainingjobs", "ModelService": "modelservices", "JobQueue": "jobqueues"}
    for kind, good in GOOD.items():
        at = plural[kind] if kind == "JobQueue" else f"namespaces/{namespace}/{plural[kind]}"
        path = f"/apis/fairway.dev/v1alpha1/{at}?dryRun=All"
        status, answer = installed.plane.request("POST", path, document(kind, namespace, good))
        assert status == 201, answer
        read_data(document(kind, namespace, good), "good")
        for mistaken, change, words in MISTAKES:
            if mistaken != kind:
                continue
            body = document(kind, namespace, {**good, **change})
            with pytest.raises(FairwayError):
                read_data(body, "mistaken")
            status, answer = installed.plane.request("POST", path, body)
            assert status == 422, (change, answer)
            assert words in answer["message"], (change, answer["message"])


def pods_of(spec: dict[str, Any], namespace: str) -> list[dict[str, Any]]:
    found = JobSpec.model_validate(spec)
    job = JobState(JobKey(namespace, "net-1"), "net", 1, found, SubmissionOrigin(spread=True), created=0.0)
    tasks = tuple(make_tasks(job, {name: role.replicas.min for name, role in found.roles.items()}, 8.0, 0.0))
    topology = pod_name.topology(job, tasks, "cluster.local")
    return [pod(job, task, topology, InstallationSettings(image="fairway:1"), FrameworkRuntime("none")) for task in tasks]


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax", "mpi", "mxnet", "auto", "command"])
def test_the_api_server_takes_pods_of_every_network_and_framework(jobs: Jobs, framework: str) -> None:
    wish = {"host": True, "interface": "eth0", "rdma": True}
    worker = {**WORKER, "replicas": {"min": 2, "max": 4}, "resources": {"other": {"rdma/hca": 1}, "shm": "2Gi"}}
    spec = {"framework": framework, "roles": {"worker": worker}, "kubernetes": {"network": wish}}
    path = f"/api/v1/namespaces/{jobs.namespace}/pods?dryRun=All"
    taken = []
    for body in pods_of(spec, jobs.namespace):
        status, answer = jobs.plane.request("POST", path, body)
        assert status == 201, answer
        made = answer["spec"]
        (task,) = made["containers"]
        assert (made["hostNetwork"], made["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        assert task["securityContext"]["capabilities"]["add"] == [network.LOCKS_MEMORY]
        assert task["resources"]["limits"]["rdma/hca"] == "1"
        taken += [port["hostPort"] for port in task["ports"]]
    assert len(taken) == len(set(taken)), "two pods of the run may lie on one node"


def test_a_document_gets_of_the_network_what_policy_allows(jobs: Jobs) -> None:
    jobs.submit("greedy", kubernetes={"network": {"host": True, "rdma": True}})
    status = jobs.until("greedy", "has failed", lambda status: status.get("phase") == "Failed")
    assert "hostNetwork: True is not allowed on this cluster" in status["message"]
    assert "'IPC_LOCK' is not allowed on this cluster" in status["message"]
    assert DocumentPermissions().capabilities == ()


def test_a_running_job_takes_the_size_that_kubectl_scale_gives_it(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "8"})
    jobs.submit("elastic", replicas={"min": 1, "max": 4})
    jobs.runs("elastic")
    kubectl = jobs.plane.kubectl
    for size in (3, 2):
        kubectl("scale", "trainingjob/elastic", "-n", jobs.namespace, f"--replicas={size}")
        status = jobs.until(
            "elastic",
            f"runs with {size}",
            lambda status, size=size: (status["phase"], status["ready"]) == ("Running", f"{size}/{size}"),
        )
        assert status["restarts"] == 0, "a wish is no failure"
    assert status["attempt"] == 2
    head, line = kubectl("get", "trainingjob", "elastic", "-n", jobs.namespace, "-o", "wide").splitlines()
    assert head.split()[:3] == ["NAME", "PHASE", "READY"]
    assert line.split()[:3] == ["elastic", "Running", "2/2"]
    scale = json.loads(kubectl("get", "--raw", f"{jobs.path}/elastic/scale"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
    assert scale["status"]["selector"] == "fairway.dev/run=elastic"
    found = kubectl(
        "get", "tj", "-n", jobs.namespace, "--field-selector", "status.phase=Running,spec.framework=pytorch", "-o", "name"
    )
    assert found == "trainingjob.fairway.dev/elastic\n"
    described = kubectl("describe", "tj", "elastic", "-n", jobs.namespace)
    assert "made room 2 times" in described
    wait_for(
        "its Events",
        lambda: "resize requested: worker 2" in kubectl("describe", "tj", "elastic", "-n", jobs.namespace),
    )
    assert "Requested replicas of elastic roles" in kubectl("explain", "trainingjob.spec.size")


def test_a_tensorboard_stands_beside_the_run_until_its_logs_go(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "4"})
    jobs.submit("seen", tensorboard={"serve": True}, keep={"logs": "1s"})
    status = jobs.runs("seen")
    assert status["tensorboard"] == f"http://seen-tensorboard.{jobs.namespace}.svc.cluster.local:6006"
    paths = [
        f"/apis/apps/v1/namespaces/{jobs.namespace}/deployments/seen-tensorboard",
        f"/api/v1/namespaces/{jobs.namespace}/services/seen-tensorboard",
    ]
    for path in paths:
        code, made = jobs.plane.get(path)
        assert code == 200, made
        assert made["metadata"]["ownerReferences"][0]["name"] == "seen"
    (pod,) = jobs.pods("seen")
    jobs.annotate(pod["metadata"]["name"], runs_for="10ms")
    jobs.until("seen", "has succeeded", lambda status: status["phase"] == "Succeeded")
    wait_for("its TensorBoard goes", lambda: [jobs.plane.get(path)[0] for path in paths] == [404, 404], 60.0)
    jobs.until("seen", "says so", lambda status: "tensorboard" not in status)
