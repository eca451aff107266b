"""Agents as pods on real nodes, with the rights and the policy that the installation gave them; the GPUs are pretended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster import image
from cluster.nodes import RealCluster
from cluster.process import wait_for

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.install.manifests import manifests
from fairway.engines.kubernetes.operator.installation import Installation, Runtime

pytestmark = pytest.mark.timeout(600)

HERE = Installation(image=image.FAIRWAY, runtimes={"default": Runtime(image.FAIRWAY)}, gpus="fairway", record={"emptyDir": {}})
SYSTEM = ("-n", HERE.namespace)
PROGRAM = (
    "import os; print('sees', os.environ['NVIDIA_VISIBLE_DEVICES'], os.environ.get('XLA_PYTHON_CLIENT_MEM_FRACTION', 'all'))"
)


@pytest.fixture(scope="module")
def cluster(real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> RealCluster:
    plane = real_nodes.plane
    plane.start_scheduler()
    real_nodes.load(image.fairway(tmp_path_factory.mktemp("image") / "fairway.tar", ["kubernetes"]))
    for one in manifests(HERE):
        if one["kind"] == "DaemonSet":
            env = one["spec"]["template"]["spec"]["containers"][0]["env"]
            env.append({"name": "FAIRWAY_FAKE_GPUS", "value": "2xT4"})
        plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(one))
    wait_for("our processes", lambda: all_ready(real_nodes), 300.0, lambda: why(real_nodes))
    return real_nodes


def all_ready(cluster: RealCluster) -> bool:
    found = got(cluster, "deployments,daemonsets", *SYSTEM)["items"]
    wanted = [one["spec"].get("replicas", one["status"].get("desiredNumberScheduled", 2)) for one in found]
    return bool(found) and wanted == [one["status"].get("readyReplicas", one["status"].get("numberReady", 0)) for one in found]


def got(cluster: RealCluster, *words: str) -> Any:
    return json.loads(cluster.plane.kubectl("get", *words, "-o", "json"))


def why(cluster: RealCluster) -> str:
    said = [cluster.plane.kubectl("get", "pods,tj,gpunodes", "-A", "-o", "wide"), cluster.plane.kubectl("get", "events", "-A")]
    for name in ("ds/fairway-agent", "deploy/fairway-scheduler", "deploy/fairway-operator"):
        try:
            said.append(cluster.plane.kubectl(*SYSTEM, "logs", name, "--tail=20"))
        except RuntimeError as error:
            said.append(str(error))
    return "\n".join(said)


def test_what_an_agent_finds_reaches_the_containers_of_pods(cluster: RealCluster) -> None:
    told = lambda: {one["metadata"]["name"]: one.get("status", {}) for one in got(cluster, "gpunodes")["items"]}  # noqa: E731
    wait_for("two nodes with GPUs", lambda: len(told()) == 2 and all(one.get("count") == 2 for one in told().values()), 120.0,
             lambda: why(cluster))  # fmt: skip
    assert {one["handedOutBy"] for one in told().values()} == {"Fairway"}
    role = {"replicas": {"min": 2, "max": 2}, "command": ["python3", "-c", PROGRAM]}
    role |= {"resources": {"cpu": "100m", "gpu": "0.5"}, "placement": {"apart": True}}
    job = {"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "sees"}}
    body = {**job, "spec": {"framework": "command", "roles": {"worker": role}}}
    cluster.plane.kubectl("create", "-f", "-", given=json.dumps(body))
    ended = lambda: got(cluster, "tj", "sees").get("status", {}).get("phase") == "Succeeded"  # noqa: E731
    wait_for("it has succeeded", ended, 240.0, lambda: why(cluster))
    pods = got(cluster, "pods", "-l", f"{marks.RUN}=sees")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(told())
    for pod in pods:
        (uuid,) = pod["metadata"]["annotations"][marks.GPU_IDS].split(",")
        assert uuid in {one["uuid"] for one in told()[pod["spec"]["nodeName"]]["gpus"]}
        assert f"sees {uuid} 0.500" in cluster.plane.kubectl("logs", pod["metadata"]["name"])
