"""The second story in which operator and scheduler crash before and after every write: services, verbs, queues and volumes.

Clients of the record's API repeat interrupted requests, as users do. Agents crash at each of their writes, too.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster import kwok
from cluster.agents import Agents
from cluster.audit import writes_of
from cluster.control_plane import ControlPlane
from cluster.fixtures import skipping_what_is_missing
from cluster.installed import Installed, Jobs
from cluster.keeper import Keeper
from cluster.modules import definitions
from cluster.nursery import Nursery
from cluster.points import AGENT, NOWHERE, OPERATOR_OF_SERVICES, SCHEDULER_OF_SERVICES, STORIES, as_seen, places
from cluster.process import wait_for
from cluster.record import lead_to_operator
from cluster.served import Services, register
from cluster.witness import Witness

NAMESPACE = "verbs"
RECORD = f"/apis/record.fairway.dev/v1alpha1/namespaces/{NAMESPACE}"
OBJECTS = "/apis/fairway.dev/v1alpha1"
GATEWAYS = f"/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}"
MOST_STORIES = 6
PATIENCE = 240.0
CORES = 8
JOB = """
kind: TrainingJob
name: {name}
framework: pytorch
queue: research
grace: 1s
roles:
  worker:
    replicas: 2
    command: python train.py
    resources: {{cpu: 1}}
    placement: {{tolerations: ["*"]}}
"""
QUEUE = "kind: JobQueue\nname: research\nweight: {weight}\n"
SERVICE = """
kind: ModelService
name: {name}
model: adds@1
replicas: {{min: {least}, max: 2}}
resources: {{cpu: 100m}}
grace: 1s
placement: {{tolerations: ["*"]}}
"""
PARTS = {"deployments": "/apis/apps/v1", "services": "/api/v1", "secrets": "/api/v1", "configmaps": "/api/v1"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    plane = ControlPlane()
    with skipping_what_is_missing():
        theirs = definitions("sigs.k8s.io/gateway-api", "config/crd/standard")
        plane.start()
    found = Installed(plane, tmp_path_factory.mktemp("fairway"))
    found.installation = msgspec.structs.replace(found.installation, gateway=f"{NAMESPACE}/front")
    found.install()
    (found.folder / "home").mkdir()
    register(found.folder / "home", 1, namespace=NAMESPACE)
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    add_gateway(plane, theirs)
    yield found
    found.stop()
    plane.stop()


def add_gateway(plane: ControlPlane, theirs: list[dict[str, Any]]) -> None:
    for body in theirs:
        if body["spec"]["names"]["kind"] in ("Gateway", "HTTPRoute"):
            plane.apply(body, f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{body['metadata']['name']}")
    wait_for("the Gateway API", lambda: all(plane.get(f"{GATEWAYS}/{kind}")[0] == 200 for kind in ("gateways", "httproutes")))
    make_gateway(plane)


def make_gateway(plane: ControlPlane) -> None:
    spec = {"gatewayClassName": "test", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}
    metadata = {"name": "front", "namespace": NAMESPACE}
    gateway = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata, "spec": spec}
    plane.apply(gateway, f"{GATEWAYS}/gateways/front")
    addressed = {"status": {"addresses": [{"type": "IPAddress", "value": "10.96.9.9"}]}}
    plane.request("PATCH", f"{GATEWAYS}/gateways/front/status", addressed, "application/merge-patch+json")


def ask(installed: Installed, method: str, rest: str, **body: Any) -> dict[str, Any]:
    """Send a request to the record, repeatedly until it succeeds."""
    found: list[tuple[int, Any]] = []

    def is_answered() -> bool:
        found.append(installed.plane.request(method, f"{RECORD}/{rest}", body or None))
        return found[-1][0] < 500

    wait_for(f"{method} {rest}", is_answered, PATIENCE, lambda: f"{found[-1]} {installed.last_words()}")
    status, answer = found[-1]
    # An earlier try may have been performed although its response was lost.
    assert status < 300 or (method == "DELETE" and status == 404 and len(found) > 1), f"{method} {rest}: {found}"
    return dict(answer) if isinstance(answer, dict) else {}


def apply(installed: Installed, document: str) -> str:
    """Apply a document; return the name of the object."""
    (applied,) = ask(installed, "POST", "apply", documents=document)["applied"]
    return str(applied["name"])


def story(installed: Installed, number: int, nodes: list[str]) -> None:
    """Create a queue, run a job in it, serve a model, mount volumes, and delete all of it."""
    jobs, services = Jobs(installed, NAMESPACE, PATIENCE), Services(installed, NAMESPACE)
    apply(installed, QUEUE.format(weight=number + 2))
    use_queue(installed, jobs, f"job-{number}")
    mount_volumes(jobs, f"data-{number}", nodes)
    serve(installed, services, f"adds-{number}")


def use_queue(installed: Installed, jobs: Jobs, name: str) -> None:
    run = apply(installed, JOB.format(name=name))
    jobs.runs(run)
    said = f"{OBJECTS}/jobqueues/research"
    wait_for("the queue to say so", lambda: jobs.plane.get(said)[1].get("status", {}).get("running") == 1, PATIENCE)
    # The repeated request got the same run.
    assert [one["metadata"]["name"] for one in jobs.plane.get(jobs.path)[1]["items"]] == [run]
    ask(installed, "POST", f"jobs/{run}/stop")
    jobs.until(run, "is stopped", lambda status: status["phase"] == "Stopped")
    assert jobs.get(run)["spec"]["suspend"] is True
    ask(installed, "DELETE", f"jobs/{run}")
    wait_for("it goes", lambda: not jobs.pods() and not jobs.plane.get(jobs.path)[1]["items"], PATIENCE, jobs.what_is_there)


def serve(installed: Installed, services: Services, name: str) -> None:
    """Serve by the gateway, then by our own router, with more replicas, without a gateway, and delete the service."""
    plane, route = services.plane, f"{GATEWAYS}/httproutes/{name}"
    apply(installed, SERVICE.format(name=name, least=1))
    until_ready(services, name, "1/1")
    slice_ = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{name}-gateway"
    led = lambda: (follow(plane, route), set(services.counts(name)), plane.get(slice_)[0])[1:] == ({f"{name}-r1"}, 200)  # noqa: E731
    wait_for("the gateway leads", led, PATIENCE, lambda: services.why_not(name))
    everything_is_owned(services, name, {f"{name}-r1"})
    apply(installed, SERVICE.format(name=name, least=0))
    ask(installed, "POST", f"services/{name}/scale", floor=2)
    left = lambda: (follow(plane, route), plane.get(slice_)[0])[1] == 404  # noqa: E731
    wait_for("our router leads", left, PATIENCE, lambda: services.why_not(name))
    until_ready(services, name, "2/2")
    everything_is_owned(services, name, {f"{name}-r1", f"{name}-router"})
    assert len({pod["metadata"]["labels"]["fairway.dev/replica"] for pod in services.pods(name)}) == 2
    plane.request("DELETE", f"{GATEWAYS}/gateways/front")
    wait_for("its route goes", lambda: plane.get(route)[0] == 404, PATIENCE, lambda: services.why_not(name))
    make_gateway(plane)
    ask(installed, "DELETE", f"services/{name}")
    for kind, api in {**PARTS, "pods": "/api/v1"}.items():
        wait_for(f"no {kind}", lambda kind=kind, api=api: not services.of(kind, name, api), PATIENCE)


def follow(plane: ControlPlane, route: str) -> None:
    """Report, as a gateway, that the route is accepted in its current form."""
    status, found = plane.get(route)
    if status != 200:
        return
    said = {"reason": "Yes", "message": "", "observedGeneration": found["metadata"]["generation"]}
    kinds = ("Accepted", "ResolvedRefs")
    conditions = [{"type": one, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", **said} for one in kinds]
    parent = {"name": "front", "namespace": NAMESPACE, "sectionName": "http"}
    parents = [{"parentRef": parent, "controllerName": "test.example/gateway", "conditions": conditions}]
    plane.request("PATCH", f"{route}/status", {"status": {"parents": parents}}, "application/merge-patch+json")


def until_ready(services: Services, name: str, ready: str) -> None:
    wait_for(f"{name} has {ready}", lambda: services.status(name).get("ready") == ready, PATIENCE, lambda: services.why_not(name))


def everything_is_owned(services: Services, name: str, deployments: set[str]) -> None:
    assert set(services.counts(name)) == deployments
    for kind, api in PARTS.items():
        found = services.of(kind, name, api)
        assert [one["metadata"]["name"] for one in found if not one["metadata"].get("ownerReferences")] == [], kind
    assert len(services.of("secrets", name)) == 1, "its keys are made once"


def mount_volumes(jobs: Jobs, name: str, nodes: list[str]) -> None:
    """Mount an existing volume that waits for its claim, and one that is provisioned for the chosen node."""
    plane, claims = jobs.plane, f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    volumes, pods = "/api/v1/persistentvolumes", f"/api/v1/namespaces/{NAMESPACE}/pods"
    for kind, maker in (("there", "kubernetes.io/no-provisioner"), ("made", "made.example.com")):
        own = f"{name}-{kind}"
        body = {"metadata": {"name": kind}, "provisioner": maker, "volumeBindingMode": "WaitForFirstConsumer"}
        plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", body)
        if kind == "there":
            plane.request("POST", volumes, volume(own, nodes[1], kind))
        asked = {"storageClassName": kind, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        plane.request("POST", claims, {"metadata": {"name": own}, "spec": asked})
        mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": own}}]
        spec = {"schedulerName": "fairway", "containers": [{"name": "c", "image": "none"}], "volumes": mounted}
        spec["tolerations"] = [{"operator": "Exists"}]
        status, answer = plane.request("POST", pods, {"metadata": {"name": own}, "spec": spec})
        assert status == 201, answer

    def chosen() -> str:
        return str(plane.get(f"{claims}/{name}-made")[1]["metadata"].get("annotations", {}).get(SELECTED, ""))

    wait_for("a node is chosen", chosen, PATIENCE, jobs.what_is_there)
    made = volume(f"{name}-made", chosen(), "made")
    made["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": f"{name}-made"}
    plane.request("POST", volumes, made)
    for kind, node in (("there", nodes[1]), ("made", chosen())):
        own = f"{name}-{kind}"
        wait_for(f"{own} runs", lambda own=own: plane.get(f"{pods}/{own}")[1]["status"]["phase"] == "Running", PATIENCE)
        assert plane.get(f"{pods}/{own}")[1]["spec"]["nodeName"] == node
        assert plane.get(f"{claims}/{own}")[1]["spec"]["volumeName"] == own
        plane.request("DELETE", f"{pods}/{own}")


SELECTED = "volume.kubernetes.io/selected-node"


def volume(name: str, node: str, kind: str) -> dict[str, Any]:
    rule = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [rule]}},
    }
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.timeout(600)
def test_services_verbs_and_queues_survive_wherever_operator_and_scheduler_die(installed: Installed) -> None:
    nodes = kwok.add_nodes(installed.plane, 2, capacity={"cpu": str(CORES)})
    listening = lead_to_operator(installed)
    with (
        Keeper(installed, "operator", places(OPERATOR_OF_SERVICES), **listening) as operator,
        Keeper(installed, "scheduler", places(SCHEDULER_OF_SERVICES)) as scheduler,
        Witness(installed.plane, NAMESPACE, CORES) as seen,
    ):
        for number in range(MOST_STORIES):
            story(installed, number, nodes)
            if not operator.left and not scheduler.left:
                break
    assert seen.wrong == []
    assert (operator.left, scheduler.left) == ([], []), "nothing reaches these"
    assert (operator.ended, scheduler.ended) == ([], []), "they end only where they are told to"
    for process, points in (("operator", OPERATOR_OF_SERVICES), ("scheduler", SCHEDULER_OF_SERVICES)):
        excused = [point for name, point in NOWHERE if name == process]
        seen_by_server = writes_of(installed.plane.folder, process)
        assert as_seen(points) <= seen_by_server <= as_seen([*STORIES[process], *excused]), process


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_services_verbs_and_queues_live_through_a_failure_of_every_write(installed: Installed) -> None:
    """Each write of the operator fails twice in a separate story; the operator keeps running, and the story is completed."""
    nodes = kwok.add_nodes(installed.plane, 2, prefix="failing", capacity={"cpu": str(CORES)})
    listening = lead_to_operator(installed)
    log = installed.folder / "operator.log"
    installed.start("scheduler")
    for number, point in enumerate(OPERATOR_OF_SERVICES, start=100):
        operator = installed.start("operator", FAIRWAY_CRASH_AT=f"{point}:fails:2", **listening)
        before = log.read_text().count("injected failure")
        story(installed, number, nodes)
        assert operator.poll() is None, f"{point}: {installed.last_words()}"
        assert log.read_text().count("injected failure") > before, f"nothing reaches {point}"
        installed.kill("operator")
    installed.kill("scheduler")


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


@pytest.mark.timeout(300)
def test_an_agent_that_dies_at_any_write_is_followed_by_one_that_ends_up_with_the_same(
    installed: Installed, tmp_path: Path, nursery: Nursery
) -> None:
    plane, agents = installed.plane, Agents(installed.plane, tmp_path)
    (node,) = kwok.add_nodes(plane, 1, prefix="gpu")
    agents.gpus(node, "2xT4,sick:0,sick:1")
    told, log, uids = agents.environment(node), tmp_path / f"{node}.log", set()
    for place in places(AGENT):
        code = nursery.start("agent", {**told, "FAIRWAY_CRASH_AT": place}, log).wait(60)
        assert code == -signal.SIGKILL, f"{place}: {agents.said(node)}"
        uids |= {one["metadata"]["uid"] for one in plane.get(f"{OBJECTS}/gpunodes")[1]["items"]}
    nursery.start("agent", told, log)
    agents.until(node, count=2, healthy=0)
    wait_for("the taint", lambda: [one for one in taints(plane, node) if "gpu" in one["key"]])
    agents.gpus(node, "2xT4")
    agents.until(node, count=2, healthy=2)
    wait_for("no taint", lambda: not [one for one in taints(plane, node) if "gpu" in one["key"]])
    assert len(uids) == 1, "it was made once"
    assert writes_of(plane.folder, "agent") == as_seen(AGENT)


def taints(plane: ControlPlane, node: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plane.get(f"/api/v1/nodes/{node}")[1]["spec"].get("taints", [])
    return found
