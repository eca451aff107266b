"""The scheduler on a real control plane, beside kube-scheduler: what one admits, the other admits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed
from cluster.process import wait_for

Add = Callable[..., list[str]]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CASES = 24
PATIENCE = 120.0


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("scheduler"))
    found.install()
    found.start("scheduler")
    yield found
    found.stop()


class Pods:
    """Pods in one namespace."""

    def __init__(self, installed: Installed, namespace: str) -> None:
        self.installed, self.plane, self.namespace = installed, installed.plane, namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_for("the service account", lambda: self.plane.get(accounts)[0] == 200)

    def make(self, name: str, scheduler: str = "fairway", cpu: str = "10m", **more: Any) -> None:
        """A pod that does nothing."""
        head = {"name": name, "labels": more.pop("labels", {}), "annotations": more.pop("annotations", {})}
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        plain = {"schedulerName": scheduler, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
        tolerations = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
        body = {"metadata": head, "spec": {"containers": [container], "tolerations": tolerations, **plain, **more}}
        status, answer = self.plane.request("POST", self.path, body)
        assert status == 201, answer

    def get(self, name: str) -> dict[str, Any]:
        """The pod; nothing when it is gone."""
        status, answer = self.plane.get(f"{self.path}/{name}")
        found: dict[str, Any] = answer if status == 200 else {}
        return found

    def all(self) -> list[dict[str, Any]]:
        """Every pod."""
        found: list[dict[str, Any]] = self.plane.get(self.path)[1]["items"]
        return found

    def node(self, name: str) -> str:
        """Wait until it is bound; to which node."""
        wait_for(
            f"{name} is bound", lambda: _node(self.get(name)), PATIENCE, lambda: f"{_why(self.get(name))} {self.last_words()}"
        )
        return _node(self.get(name))

    def why(self, name: str) -> dict[str, Any]:
        """Wait until it says why it waits."""
        wait_for(f"{name} says why", lambda: _why(self.get(name)), PATIENCE, self.last_words)
        return _why(self.get(name))

    def last_words(self) -> str:
        """What the processes wrote last."""
        return self.installed.last_words()

    def delete(self, name: str) -> None:
        """Let it go."""
        self.plane.request("DELETE", f"{self.path}/{name}?gracePeriodSeconds=0")


def _node(pod: dict[str, Any]) -> str:
    return str(pod.get("spec", {}).get("nodeName", ""))


def _why(pod: dict[str, Any]) -> dict[str, Any]:
    conditions = pod.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), {})


@pytest.fixture
def pods(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Pods]:
    """In a namespace of its own; all pods go while the nodes are still there."""
    del kwok_nodes
    found = Pods(installed, namespace)
    yield found
    installed.plane.request("DELETE", f"{found.path}?gracePeriodSeconds=0")
    wait_for("nothing is left", lambda: not found.all(), PATIENCE)


# Beside kube-scheduler


def _selector(chance: random.Random, case: str) -> dict[str, Any]:
    """Matches pods of this case only."""
    app = chance.choice(["x", "y"])
    rule = chance.choice(
        [
            {"matchLabels": {"app": app}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": [app]}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]},
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        ]
    )
    return {**rule, "matchLabels": {**rule.get("matchLabels", {}), "case": case}}


def _term(chance: random.Random, case: str) -> dict[str, Any]:
    return {"topologyKey": chance.choice([ZONE, ZONE, HOST, "rare"]), "labelSelector": _selector(chance, case)}


def _labels(chance: random.Random, case: str) -> dict[str, str]:
    tier = {"tier": "1"} if chance.random() < 0.5 else {}
    return {"case": case, "app": chance.choice(["x", "y"]), **tier}


def _spread(chance: random.Random, case: str) -> dict[str, Any]:
    key = chance.choice([ZONE, HOST, "rare"])
    found = {"topologyKey": key, "maxSkew": chance.choice([1, 1, 2]), "whenUnsatisfiable": "DoNotSchedule"}
    found |= {"labelSelector": _selector(chance, case), "nodeAffinityPolicy": "Ignore"}
    found |= {"nodeTaintsPolicy": chance.choice(["Ignore", "Honor"])}
    return found | ({"minDomains": chance.choice([2, 4])} if chance.random() < 0.4 else {})


def _candidate(chance: random.Random, case: str) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    kind = chance.randrange(4)
    if kind in (0, 3):
        affinity["podAffinity"] = {REQUIRED: [_term(chance, case) for _ in range(chance.choice([1, 1, 2]))]}
    if kind in (1, 3) or chance.random() < 0.2:
        affinity["podAntiAffinity"] = {REQUIRED: [_term(chance, case) for _ in range(chance.choice([1, 2]))]}
    spread = [_spread(chance, case) for _ in range(chance.choice([1, 1, 2]))] if kind == 2 else []
    keys = {one["topologyKey"]: one for one in spread}
    return {"labels": _labels(chance, case), "affinity": affinity, "topologySpreadConstraints": list(keys.values())}


def _scene(chance: random.Random, case: str, nodes: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Pods that lie somewhere already, and one that comes."""
    lying = []
    for _ in range(chance.randrange(1, 5)):
        anti = {"podAntiAffinity": {REQUIRED: [_term(chance, case)]}} if chance.random() < 0.4 else {}
        lying.append({"labels": _labels(chance, case), "affinity": anti, "nodeName": chance.choice(nodes)})
    return lying, _candidate(chance, case)


def _on(node: str, pod: dict[str, Any]) -> dict[str, Any]:
    """The same pod, for this node only."""
    rule = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {**pod, "affinity": {**pod["affinity"], "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [rule]}}}}


def test_the_same_pods_are_admitted_on_the_same_nodes(pods: Pods, kwok_nodes: Add) -> None:
    """Random rules about other pods; each pod is offered each node alone, to both schedulers."""
    taint = {"key": "special", "value": "", "effect": "NoSchedule"}
    nodes = kwok_nodes(2, prefix="left", labels={ZONE: "1", "rare": "1"})
    nodes = kwok_nodes(1, prefix="right", labels={ZONE: "2"})
    nodes = kwok_nodes(1, prefix="far", labels={ZONE: "3", "rare": "2"}, taints=[taint])
    pods.plane.start_scheduler("--kube-api-qps=1000", "--kube-api-burst=1000")
    comers: dict[str, tuple[int, str, str]] = {}
    waiting = []
    for number in range(CASES):
        for scheduler in ("fairway", "default-scheduler"):
            for node in nodes:
                case = f"{number}-{scheduler[0]}-{node}"
                lying, comer = _scene(random.Random(number), case, nodes)
                for index, one in enumerate(lying):
                    pods.make(f"lies-{case}-{index}", scheduler, **one)
                comers[f"comes-{case}"] = (number, scheduler, node)
                waiting.append((f"comes-{case}", scheduler, _on(node, comer)))
    for name, scheduler, comer in waiting:
        pods.make(name, scheduler, **comer)
    found = _decided(pods, comers)
    pods.plane.processes.end("kube-scheduler")
    for number in range(CASES):
        admitted = {
            scheduler: {node for (case, by, node), bound in found.items() if (case, by) == (number, scheduler) and bound}
            for scheduler in ("fairway", "default-scheduler")
        }
        scene = _scene(random.Random(number), "case", nodes)
        assert admitted["fairway"] == admitted["default-scheduler"], f"case {number}: {scene}"
    assert len(set(found.values())) == 2, "some are admitted, some are not"


def _decided(pods: Pods, comers: dict[str, tuple[int, str, str]]) -> dict[tuple[int, str, str], bool]:
    """Whether each was admitted, once both have decided about all."""
    state: dict[tuple[int, str, str], bool] = {}

    def all_are() -> bool:
        for pod in pods.all():
            of = comers.get(pod["metadata"]["name"])
            if of is not None and (_node(pod) or _why(pod)):
                state[of] = bool(_node(pod))
        return len(state) == len(comers)

    wait_for("all are decided about", all_are, PATIENCE, pods.last_words)
    return state
