"""Agents as pods on real nodes, with the rights and the policy of the installation; the GPUs are fake."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster import image
from cluster.nodes import RealCluster
from cluster.process import wait_for

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.manifest import manifests
from fairway.engines.kubernetes.install.node_agent import AUTHORITY, AUTHORITY_FILE
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings

pytestmark = pytest.mark.timeout(600)

HERE = InstallationSettings(
    image=image.FAIRWAY, runtimes={"default": FrameworkRuntime(image.FAIRWAY)}, gpus="fairway", record={"emptyDir": {}}
)
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
            env.append({"name": "FAIRWAY_FAKE_GPUS", "value": "2xT4,busy:0:87,busy:1:87"})
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
    pods = got(cluster, "pods", "-l", f"{annotation.RUN}=sees")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(told())
    for pod in pods:
        (uuid,) = pod["metadata"]["annotations"][annotation.GPU_IDS].split(",")
        assert uuid in {one["uuid"] for one in told()[pod["spec"]["nodeName"]]["gpus"]}
        assert f"sees {uuid} 0.500" in cluster.plane.kubectl("logs", pod["metadata"]["name"])


ASK = """
import asyncio, json, ssl, sys
from fairway.engines.kubernetes.agent import gpu_usage, token_review
from fairway.engines.kubernetes.identity.pod_authenticator import agent_name
endpoint, node, authority = sys.argv[1:]
trusted = ssl.create_default_context(cadata=authority)
print(json.dumps(asyncio.run(gpu_usage.ask(endpoint, token_review.own_token(), agent_name(node), trusted))))
"""


def test_the_operator_asks_an_agent_over_tls_by_the_name_of_its_node(cluster: RealCluster) -> None:
    """With the tokens of real kubelets, and the authority that the operator published."""

    def asked(endpoint: str, node: str) -> dict[str, float]:
        authority = got(cluster, "configmap", AUTHORITY, *SYSTEM).get("data", {}).get(AUTHORITY_FILE, "")
        words = ("exec", "deploy/fairway-operator", "--", "python3", "-c", ASK, endpoint, node, authority)
        found: dict[str, float] = json.loads(cluster.plane.kubectl(*SYSTEM, *words)) if authority else {}
        return found

    nodes = {one["metadata"]["name"]: one["status"] for one in got(cluster, "gpunodes")["items"]}
    assert len(nodes) == 2
    for name, status in nodes.items():
        assert status["endpoint"].startswith("https://")
        wait_for("an answer", lambda at=status["endpoint"], name=name: len(asked(at, name)) == 2, 120.0, lambda: why(cluster))
    first, second = nodes
    assert asked(nodes[first]["endpoint"], second) == {}
