"""ModelService objects on a real control plane: Deployments, Services and the router's objects, on pretended nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.modules import definitions
from cluster.process import wait_for
from cluster.served import PATIENCE, Services, register

Add = Callable[..., list[str]]


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    (found.folder / "home").mkdir()
    register(found.folder / "home", 1, 2)
    found.start("operator")
    found.start("scheduler")
    yield found
    found.stop()


@pytest.fixture
def services(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Services]:
    """In a namespace of its own; everything goes while the nodes are still there."""
    kwok_nodes(2, capacity={"cpu": "4"})
    found = Services(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    yield found
    for name in [one["metadata"]["name"] for one in installed.plane.get(found.path)[1]["items"]]:
        found.delete(name)
    wait_for("nothing is left", lambda: not found.of("pods", "adds"), PATIENCE, lambda: found.why_not("adds"))


def test_a_service_has_a_deployment_a_router_and_a_name_and_leaves_nothing(services: Services) -> None:
    services.apply("adds", model="adds@1", replicas={"min": 2, "max": 4})
    status = services.until("adds", "is ready", lambda status: status.get("ready") == "2/2")
    assert (status["phase"], status["serves"], status["revision"]) == ("Ready", "adds@1", 1)
    assert status["url"] == f"http://adds.{services.namespace}.svc.cluster.local"
    assert services.counts("adds") == {"adds-r1": 2, "adds-router": 2}
    front, revision = services.of("services", "adds")
    assert front["spec"]["selector"]["fairway.dev/part"] == "router"
    assert revision["spec"]["selector"]["fairway.dev/revision"] == "1"
    assert {pod["metadata"]["labels"]["fairway.dev/replica"] for pod in services.pods("adds")} == {"adds-r1-1", "adds-r1-2"}
    shown = services.plane.kubectl("-n", services.namespace, "get", "ms", "-o", "wide")
    assert shown.splitlines()[1].split()[:4] == ["adds", "Ready", "adds@1", "2/2"], shown
    described = services.plane.kubectl("-n", services.namespace, "describe", "ms", "adds")
    assert "Created" in described.partition("Events:")[2], described
    services.delete("adds")
    kinds = [("deployments", "/apis/apps/v1"), ("services", "/api/v1"), ("secrets", "/api/v1"), ("configmaps", "/api/v1")]
    for kind, api in [*kinds, ("pods", "/api/v1")]:
        wait_for(f"no {kind}", lambda kind=kind, api=api: not services.of(kind, "adds", api), PATIENCE)


def test_a_release_a_floor_a_killed_operator_and_a_hand_that_scales(installed: Installed, services: Services) -> None:
    services.apply("adds", model="adds@1", replicas={"min": 2, "max": 3})
    services.until("adds", "is ready", lambda status: status.get("ready") == "2/2")
    services.plane.kubectl("-n", services.namespace, "scale", "deployment/adds-r1", "--replicas=0")
    wait_for("nobody but the autoscaler scales", lambda: services.settled("adds", 2), PATIENCE, lambda: services.why_not("adds"))
    services.until("adds", "has both", lambda status: status["ready"] == "2/2")

    before = {pod["metadata"]["uid"] for pod in services.pods("adds")}
    installed.kill("operator")
    services.plane.kubectl("-n", services.namespace, "scale", "modelservice/adds", "--replicas=3")
    installed.start("operator")
    services.until("adds", "has its floor", lambda status: status["ready"] == "3/3")
    assert before < {pod["metadata"]["uid"] for pod in services.pods("adds")}

    canary = {"strategy": "canary", "steps": [{"to": "50%", "for": "1s"}], "requests": 0}
    services.apply("adds", model="adds@2", replicas={"min": 2, "max": 3}, rollout=canary)
    traffic = {1: "0%", 2: "100%"}
    services.until("adds", "moves on", lambda status: {one["number"]: one["traffic"] for one in status["revisions"]} == traffic)
    wait_for("the first goes", lambda: services.counts("adds") == {"adds-r1": 0, "adds-r2": 3, "adds-router": 2}, PATIENCE)


def test_what_cannot_be_served_says_why_and_is_served_when_it_can(services: Services) -> None:
    services.plane.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adds"}, "spec": {"ports": [{"port": 1}]}},
        f"/api/v1/namespaces/{services.namespace}/services/adds",
    )
    services.apply("adds", model="adds@7")
    status = services.until("adds", "says why", lambda status: "no version or alias '7'" in status.get("message", ""))
    assert status["phase"] == "Failing"
    services.apply("adds", model="adds@1")
    status = services.until("adds", "is ready", lambda status: status.get("ready") == "1/1")
    assert status["url"] == f"http://adds-serving.{services.namespace}.svc.cluster.local"


def test_a_job_and_a_service_of_the_same_name_do_not_meet(installed: Installed, services: Services) -> None:
    jobs = Jobs(installed, services.namespace)
    services.apply("adds", model="adds@1")
    services.until("adds", "is ready", lambda status: status.get("ready") == "1/1")
    front = services.of("services", "adds")[0]
    jobs.submit("adds")
    jobs.runs("adds")
    (pod,) = jobs.pods("adds")
    found = services.plane.get(f"/api/v1/namespaces/{services.namespace}/services/{pod['spec']['subdomain']}")[1]
    assert (found["metadata"]["name"], found["spec"]["selector"]) == ("adds-run", {"fairway.dev/run": "adds"})
    jobs.delete("adds")
    path = f"/api/v1/namespaces/{services.namespace}/services/adds-run"
    wait_for("its Service goes", lambda: services.plane.get(path)[0] == 404, PATIENCE, lambda: jobs.what_is_there())
    assert services.of("services", "adds")[0]["metadata"]["uid"] == front["metadata"]["uid"]
    status = services.status("adds")
    assert (status["ready"], status["url"]) == ("1/1", f"http://adds.{services.namespace}.svc.cluster.local")


def test_pods_of_an_earlier_operator_go_on_with_the_name_they_know(installed: Installed, services: Services) -> None:
    jobs = Jobs(installed, services.namespace)
    # As they were made then: they find each other by a Service with the name of the job.
    jobs.submit("elder", workers=2, restart={"max": 1, "scope": "task"}, kubernetes={"pod": {"subdomain": "elder"}})
    jobs.runs("elder")
    before = [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in jobs.pods("elder")]
    installed.kill("operator")
    installed.start("operator")
    jobs.annotate("elder-worker-1-r0", runs_for="10ms", exit_code="3")
    again = f"/api/v1/namespaces/{services.namespace}/pods/elder-worker-1-r1"
    wait_for("the one that failed starts again", lambda: services.plane.get(again)[0] == 200, PATIENCE, jobs.what_is_there)
    assert "elder-worker-0.elder." in json.dumps(services.plane.get(again)[1]["spec"]), "it looks for its peer where that is"
    found = services.plane.get(f"/api/v1/namespaces/{services.namespace}/services/elder")[1]
    assert found["spec"]["selector"] == {"fairway.dev/run": "elder"}
    assert jobs.status("elder")["attempt"] == 0
    assert before[0] in [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in jobs.pods("elder")]
    jobs.delete("elder")
    for name in ("elder", "elder-run"):
        path = f"/api/v1/namespaces/{services.namespace}/services/{name}"
        wait_for(f"{name} goes", lambda path=path: services.plane.get(path)[0] == 404, PATIENCE, jobs.what_is_there)
    wait_for("its pods go", lambda: not jobs.pods("elder"), PATIENCE, jobs.what_is_there)


def test_a_gateway_that_is_there_splits_the_traffic_itself(installed: Installed, services: Services) -> None:
    plane, path = services.plane, f"/apis/gateway.networking.k8s.io/v1/namespaces/{services.namespace}"
    for body in definitions("sigs.k8s.io/gateway-api", "config/crd/standard"):
        if body["spec"]["names"]["kind"] in ("Gateway", "HTTPRoute"):
            plane.apply(body, f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{body['metadata']['name']}")
    wait_for("the Gateway API", lambda: plane.get(f"{path}/gateways")[0] == 200 and plane.get(f"{path}/httproutes")[0] == 200)
    spec = {"gatewayClassName": "test", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}
    metadata = {"name": "front", "namespace": services.namespace}
    gateway = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata, "spec": spec}
    plane.apply(gateway, f"{path}/gateways/front")
    addressed = {"status": {"addresses": [{"type": "IPAddress", "value": "10.96.9.9"}]}}
    plane.request("PATCH", f"{path}/gateways/front/status", addressed, "application/merge-patch+json")
    installed.end("operator")
    installed.start("operator", FAIRWAY_INSTALLATION=str(installed.written(gateway=f"{services.namespace}/front")))

    services.apply("adds", model="adds@1", replicas={"min": 1, "max": 1})
    services.until("adds", "is ready", lambda status: status.get("ready") == "1/1")
    wait_for("the route", lambda: plane.get(f"{path}/httproutes/adds")[0] == 200, PATIENCE, lambda: services.why_not("adds"))
    assert services.counts("adds") == {"adds-r1": 1}
    shadow = {"strategy": "shadow", "steps": [{"to": "50%", "for": "1h"}]}
    services.apply("adds", model="adds@2", replicas={"min": 1, "max": 1}, rollout=shadow)

    def copies() -> object:
        return plane.get(f"{path}/httproutes/adds")[1]["spec"]["rules"][-1].get("filters", [{}])[0].get("requestMirror")

    target = {"group": "", "kind": "Service", "name": "adds-r2", "port": 80}
    copied = {"backendRef": target, "fraction": {"numerator": 5000, "denominator": 10000}}
    wait_for("copies go to the next", lambda: copies() == copied, PATIENCE, lambda: f"{copies()} {services.why_not('adds')}")
    (slice_,) = services.of("endpointslices", "adds", "/apis/discovery.k8s.io/v1")[:1]
    assert slice_["endpoints"][0]["addresses"] == ["10.96.9.9"]
    services.apply("adds", model="adds@1", replicas={"min": 0, "max": 1})
    wait_for("the route goes", lambda: plane.get(f"{path}/httproutes/adds")[0] == 404, PATIENCE, lambda: services.why_not("adds"))
    wait_for("our router takes over", lambda: "adds-router" in services.counts("adds"), PATIENCE)
    services.delete("adds")
    wait_for("nothing is left", lambda: not services.of("pods", "adds"), PATIENCE)
    installed.end("operator")
    installed.start("operator")
