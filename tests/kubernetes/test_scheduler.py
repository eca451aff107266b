"""The scheduler on a real control plane, beside kube-scheduler: both admit the same pods."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import SYSTEM, Installed
from cluster.process import wait_for

from fairway.engines.kubernetes.scheduler import memory_store

Add = Callable[..., list[str]]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CASES = 20
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
        """Create a pod that does nothing."""
        head = {"name": name, "labels": more.pop("labels", {}), "annotations": more.pop("annotations", {})}
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        plain = {"schedulerName": scheduler, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
        body = {"metadata": head, "spec": {"containers": [container], **plain, **more}}
        status, answer = self.plane.request("POST", self.path, body)
        assert status == 201, answer

    def get(self, name: str) -> dict[str, Any]:
        """Return the pod; an empty object when it does not exist."""
        status, answer = self.plane.get(f"{self.path}/{name}")
        found: dict[str, Any] = answer if status == 200 else {}
        return found

    def all(self) -> list[dict[str, Any]]:
        """Return every pod."""
        found: list[dict[str, Any]] = self.plane.get(self.path)[1]["items"]
        return found

    def node(self, name: str) -> str:
        """Wait until it is bound; return its node."""
        wait_for(
            f"{name} is bound", lambda: _node(self.get(name)), PATIENCE, lambda: f"{_why(self.get(name))} {self.last_words()}"
        )
        return _node(self.get(name))

    def why(self, name: str) -> dict[str, Any]:
        """Wait until its status gives the reason why it waits; return it."""
        wait_for(f"{name} says why", lambda: _why(self.get(name)), PATIENCE, self.last_words)
        return _why(self.get(name))

    def last_words(self) -> str:
        """Return the ends of the processes' logs."""
        return self.installed.last_words()

    def delete(self, name: str) -> None:
        """Delete the pod."""
        self.plane.request("DELETE", f"{self.path}/{name}?gracePeriodSeconds=0")


def _node(pod: dict[str, Any]) -> str:
    return str(pod.get("spec", {}).get("nodeName", ""))


def _why(pod: dict[str, Any]) -> dict[str, Any]:
    conditions = pod.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), {})


@pytest.fixture
def pods(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Pods]:
    """Pods in a separate namespace; all are deleted while the nodes still exist."""
    del kwok_nodes
    found = Pods(installed, namespace)
    yield found
    installed.plane.request("DELETE", f"{found.path}?gracePeriodSeconds=0")
    wait_for("nothing is left", lambda: not found.all(), PATIENCE)


# Beside kube-scheduler


def _selector(chance: random.Random, case: str) -> dict[str, Any]:
    """Return a selector that matches pods of this case only."""
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
    tolerations = [{"key": "special", "operator": "Exists"}] if chance.random() < 0.5 else []
    found = {"labels": _labels(chance, case), "affinity": affinity, "topologySpreadConstraints": list(keys.values())}
    return found | {"tolerations": tolerations}


def _scene(chance: random.Random, case: str, nodes: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return pods that are bound already, and a new one."""
    lying = []
    for _ in range(chance.randrange(1, 5)):
        anti = {"podAntiAffinity": {REQUIRED: [_term(chance, case)]}} if chance.random() < 0.4 else {}
        lying.append({"labels": _labels(chance, case), "affinity": anti, "nodeName": chance.choice(nodes)})
    return lying, _candidate(chance, case)


def _on(node: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the same pod, for this node only."""
    rule = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {**pod, "affinity": {**pod["affinity"], "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [rule]}}}}


def test_the_same_pods_are_admitted_on_the_same_nodes(pods: Pods, kwok_nodes: Add) -> None:
    """Random affinity rules; each pod is offered each node alone, to both schedulers."""
    taint = {"key": "special", "value": "", "effect": "NoSchedule"}
    room = {"pods": "10000"}
    kwok_nodes(2, prefix="left", capacity=room, labels={ZONE: "1", "rare": "1"})
    kwok_nodes(1, prefix="right", capacity=room, labels={ZONE: "2"})
    nodes = kwok_nodes(1, prefix="far", capacity=room, labels={ZONE: "3", "rare": "2"}, taints=[taint])
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
    admitted_in_all = sum(found.values())
    assert len(found) / 5 < admitted_in_all < len(found) * 4 / 5, "some are admitted, some are not"


def _decided(pods: Pods, comers: dict[str, tuple[int, str, str]]) -> dict[tuple[int, str, str], bool]:
    """Return whether each was admitted, once both schedulers have decided on all."""
    state: dict[tuple[int, str, str], bool] = {}

    def all_are() -> bool:
        for pod in pods.all():
            of = comers.get(pod["metadata"]["name"])
            if of is not None and (_node(pod) or _why(pod)):
                state[of] = bool(_node(pod))
        return len(state) == len(comers)

    wait_for("all are decided about", all_are, PATIENCE, pods.last_words)
    return state


# Volumes


def test_a_claim_that_waits_for_its_consumer_gets_its_volume_where_the_pod_goes(pods: Pods, kwok_nodes: Add) -> None:
    """An existing volume is bound to its claim; a new one is provisioned for the node that was chosen."""
    nodes = kwok_nodes(2)
    _class(pods, "by-hand", "kubernetes.io/no-provisioner")
    _class(pods, "made", "made.example.com")
    volumes = "/api/v1/persistentvolumes"
    status, answer = pods.plane.request("POST", volumes, _volume(f"{pods.namespace}-there", nodes[1], "by-hand"))
    assert status == 201, answer
    for kind in ("by-hand", "made"):
        _claim(pods, kind)
        mount = {"name": "v", "persistentVolumeClaim": {"claimName": kind}}
        pods.make(f"mounts-{kind}", volumes=[mount])
    assert pods.node("mounts-by-hand") == nodes[1]
    assert _claimed(pods, "by-hand")["status"]["phase"] == "Bound"
    uid = pods.get("mounts-by-hand")["metadata"]["uid"]
    events = f"/apis/events.k8s.io/v1/namespaces/{pods.namespace}/events?fieldSelector=regarding.uid={uid}"
    wait_for("an Event says so", lambda: "Scheduled" in [one["reason"] for one in pods.plane.get(events)[1]["items"]], PATIENCE)
    # No provisioner runs here, so the test acts as one: the node is chosen, and the pod is not bound before the volume exists.
    wait_for("the node is chosen", lambda: _chosen(pods, "made"), PATIENCE, pods.last_words)
    assert not _node(pods.get("mounts-made"))
    made = _volume(f"{pods.namespace}-made", _chosen(pods, "made"), "made")
    made["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": pods.namespace, "name": "made"}
    pods.plane.request("POST", volumes, made)
    assert pods.node("mounts-made") == _chosen(pods, "made")
    for name in ("there", "made"):
        pods.plane.request("DELETE", f"{volumes}/{pods.namespace}-{name}")


def _class(pods: Pods, name: str, provisioner: str) -> None:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    pods.plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", body)


def _claim(pods: Pods, name: str) -> None:
    spec = {"storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    path = f"/api/v1/namespaces/{pods.namespace}/persistentvolumeclaims"
    status, answer = pods.plane.request("POST", path, {"metadata": {"name": name}, "spec": spec})
    assert status == 201, answer


def _claimed(pods: Pods, name: str) -> dict[str, Any]:
    found: dict[str, Any] = pods.plane.get(f"/api/v1/namespaces/{pods.namespace}/persistentvolumeclaims/{name}")[1]
    return found


def _chosen(pods: Pods, name: str) -> str:
    return str(_claimed(pods, name)["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node", ""))


def _volume(name: str, node: str, kind: str) -> dict[str, Any]:
    rule = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [rule]}},
    }
    return {"metadata": {"name": name}, "spec": spec}


# Queues, room and memory


def test_queues_act_from_their_objects_say_how_they_stand_and_are_remembered(
    installed: Installed, pods: Pods, kwok_nodes: Add
) -> None:
    kwok_nodes(1, capacity={"cpu": "4"})
    queue = f"q-{pods.namespace}"
    path = f"/apis/fairway.dev/v1alpha1/jobqueues/{queue}"
    document = {"apiVersion": "fairway.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": queue}}
    pods.plane.apply({**document, "spec": {"quota": {"cpu": "2"}, "borrow": False}}, path)
    for name in ("one", "two"):
        labels = {"app.kubernetes.io/managed-by": "fairway", "fairway.dev/run": f"own-{name}"}
        pods.make(f"own-{name}", cpu="1500m", labels=labels, annotations={"fairway.dev/queue": queue})
    # The queue of a pod that does not belong to Fairway is ignored: it would have to wait there.
    pods.make("stranger", cpu="10m", annotations={"fairway.dev/queue": queue, "fairway.dev/priority": "1000"})
    pods.make("big", cpu="100")
    # More nodes would help the pod that needs room, and autoscalers see it; they would not help the one whose queue is full.
    assert pods.why("big")["reason"] == "Unschedulable"
    pods.node("stranger")
    wait_for("one of the two runs", lambda: any(_node(pods.get(f"own-{name}")) for name in ("one", "two")), PATIENCE)
    held = next(name for name in ("own-one", "own-two") if not _node(pods.get(name)))
    # Its first reason may have been a lack of nodes: the scheduler receives pods and nodes in any order.
    wait_for("why it waits", lambda: pods.why(held)["reason"] == "FairwayQueue", PATIENCE, pods.last_words)
    assert f"queue {queue} may use 2 CPUs" in pods.why(held)["message"]

    def told() -> dict[str, Any]:
        found: dict[str, Any] = pods.plane.get(path)[1].get("status", {})
        return found

    wait_for("the queue says so", lambda: (told().get("running"), told().get("waiting")) == (1, 1), PATIENCE, pods.last_words)
    assert told()["used"]["cpu"] == "1.5"
    assert [one["reason"] for one in told()["reasons"]] == ["quota"]
    line = pods.plane.kubectl("get", "jobqueue", queue).splitlines()[1].split()
    assert line[:4] == [queue, "1", "1", "1"]
    _remembers(installed, pods, queue)
    pods.plane.apply({**document, "spec": {"quota": {"cpu": "4"}, "borrow": False}}, path)
    pods.node(held)
    pods.plane.request("DELETE", path)


def _remembers(installed: Installed, pods: Pods, queue: str) -> None:
    """A scheduler that ends saves what it has learnt; the next one starts with it, and no pod moves."""
    before = {pod["metadata"]["name"]: _node(pod) for pod in pods.all()}
    installed.stop()
    kept = pods.plane.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/fairway-scheduler-memory")[1]["data"]["memory"]
    assert queue in memory_store.read(kept).usage
    installed.start("scheduler")
    pods.make("later")
    pods.node("later")
    pods.delete("later")
    assert {pod["metadata"]["name"]: _node(pod) for pod in pods.all() if pod["metadata"]["name"] != "later"} == before


def test_room_is_made_when_budgets_allow_and_no_gang_stays_half(pods: Pods, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "1"})
    own = {"key": "half", "value": "", "effect": "NoSchedule"}
    half = kwok_nodes(1, prefix="half", capacity={"cpu": "3"}, taints=[own])[-1]
    _leave_half(pods, half)
    pods.make("low", cpu="1", labels={"app": "guarded"})
    pods.node("low")
    wait_for("it runs", lambda: pods.get("low")["status"]["phase"] == "Running", PATIENCE)
    budgets = f"/apis/policy/v1/namespaces/{pods.namespace}/poddisruptionbudgets"
    rule = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    status, answer = pods.plane.request("POST", budgets, {"metadata": {"name": "guard"}, "spec": rule})
    assert status == 201, answer
    wait_for("the budget counts", lambda: pods.plane.get(f"{budgets}/guard")[1]["status"].get("currentHealthy") == 1, PATIENCE)
    urgent = {"metadata": {"name": f"urgent-{pods.namespace}"}, "value": 1000}
    pods.plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    pods.make("high", cpu="1", priorityClassName=f"urgent-{pods.namespace}")
    pods.why("high")
    assert pods.get("low")["metadata"].get("deletionTimestamp") is None
    pods.plane.request("DELETE", f"{budgets}/guard")
    pods.node("high")
    assert not pods.get("low")
    wait_for("none of the gang is bound", lambda: not pods.get("gang-0"), PATIENCE, pods.last_words)
    assert not any(_node(pods.get(f"gang-{index}")) for index in range(3))


def _leave_half(pods: Pods, node: str) -> None:
    """Create a gang of three as left by a scheduler that ended after its first binding; another pod took the remaining room."""
    pods.make("taken", "default-scheduler", cpu="2", nodeName=node)
    parts = {"worker": {"size": 3, "least": 3, "most": 3}}
    for index in range(3):
        labels = {"fairway.dev/role": "worker", "fairway.dev/index": str(index)}
        bound = {"nodeName": node} if not index else {"tolerations": [{"key": "half", "operator": "Exists"}]}
        pods.make(f"gang-{index}", cpu="1", labels=labels, annotations=_gang("half", parts), **bound)


def _gang(name: str, parts: dict[str, Any]) -> dict[str, str]:
    return {"fairway.dev/gang": name, "fairway.dev/gang-parts": json.dumps(parts)}
