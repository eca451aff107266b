"""ModelService objects on a real control plane: Deployments, Services and the router's objects, on simulated nodes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster import gateway
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.served import PATIENCE, Services, register

Add = Callable[..., list[str]]


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    (found.folder / "home").mkdir()
    found.start("operator")
    found.start("scheduler")
    yield found
    found.stop()


@pytest.fixture
def services(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Services]:
    """Services in a separate namespace; all are deleted while the nodes still exist."""
    kwok_nodes(2, capacity={"cpu": "4"})
    register(installed.folder / "home", 1, 2, namespace=namespace)
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


def test_an_endpoint_with_keys_and_tls_has_a_router_that_reads_secrets(services: Services) -> None:
    services.apply("adds", model="adds@1", endpoint={"keys": "required", "tls": {"secret": "cert"}, "hosts": ["adds.example"]})
    status = services.until("adds", "is ready", lambda status: status.get("ready") == "1/1")
    assert status["url"] == f"https://adds.{services.namespace}.svc.cluster.local"
    (router,) = [one for one in services.of("deployments", "adds", "/apis/apps/v1") if one["metadata"]["name"] == "adds-router"]
    pod = router["spec"]["template"]["spec"]
    mounted = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert mounted["tls"] == "cert"
    assert "--keys" in pod["containers"][0]["command"]
    kept = services.plane.get(f"/api/v1/namespaces/{services.namespace}/secrets/{mounted['keys']}")[1]
    assert kept["immutable"] is True
    plan = services.plane.get(f"/api/v1/namespaces/{services.namespace}/configmaps/adds-router")[1]["data"]["plan.json"]
    # A router of an earlier version finds no routes in it, so that it never serves without the rules.
    assert set(json.loads(plan)) == {"guarded"}
    assert json.loads(plan)["guarded"]["access"]["keys"] == []
    assert f"adds.{services.namespace}.svc" in json.loads(plan)["guarded"]["hosts"]

    services.apply("adds", model="adds@1", endpoint={"bind": "0.0.0.0", "public": True, "tls": {"mode": "self-signed"}})
    said = ("bind 0.0.0.0 is for a single machine", "tls self-signed is for a single machine")
    services.until("adds", "says why", lambda status: all(words in status.get("message", "") for words in said))


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
    # As earlier versions created them: they find each other by a Service with the name of the job.
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


class Judge:
    """Plays a gateway: reports whether it follows the route of `adds`. test_gateway.py has one that carries traffic."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.path = f"/apis/gateway.networking.k8s.io/v1/namespaces/{services.namespace}"
        gateway.install(services.plane)
        chosen = {"matchLabels": {"kubernetes.io/metadata.name": services.namespace}}
        allowed = {"namespaces": {"from": "Selector", "selector": chosen}}
        listener = {"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": allowed}
        spec = {"gatewayClassName": "test", "listeners": [listener]}
        metadata = {"name": "front", "namespace": services.namespace}
        body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata, "spec": spec}
        services.plane.apply(body, f"{self.path}/gateways/front")
        self.patch("gateways/front", {"addresses": [{"type": "IPAddress", "value": "10.96.9.9"}]})

    def patch(self, what: str, status: dict[str, Any]) -> None:
        self.services.plane.request("PATCH", f"{self.path}/{what}/status", {"status": status}, "application/merge-patch+json")

    def route(self) -> dict[str, Any]:
        found: dict[str, Any] = self.services.plane.get(f"{self.path}/httproutes/adds")[1]
        return found

    def rule(self) -> dict[str, Any]:
        """Return the last rule, which matches all requests."""
        found: dict[str, Any] = self.route().get("spec", {}).get("rules", [{}])[-1]
        return found

    def says(self, accepted: str, reason: str, heard: str) -> None:
        """Report this state of the current route, until the service's condition reflects it."""
        parent = {"name": "front", "namespace": self.services.namespace, "sectionName": "http"}

        def is_heard(status: dict[str, Any]) -> bool:
            said = {"reason": reason, "message": "", "observedGeneration": self.route().get("metadata", {}).get("generation", 0)}
            kinds = (("Accepted", accepted), ("ResolvedRefs", "True"))
            conditions = [{"type": k, "status": s, "lastTransitionTime": "2026-01-01T00:00:00Z", **said} for k, s in kinds]
            one = {"parentRef": parent, "controllerName": "test.example/gateway", "conditions": conditions}
            self.patch("httproutes/adds", {"parents": [one]})
            found = [each for each in status.get("conditions", ()) if each["type"] == "ByGateway"]
            return bool(found) and (found[0]["status"], heard in found[0]["message"]) == (accepted, True)

        self.services.until("adds", f"has heard {heard}", is_heard)

    def leads(self) -> bool:
        """Whether the service's name leads to the gateway alone."""
        slices = self.services.of("endpointslices", "adds", "/apis/discovery.k8s.io/v1")
        mine = [one for one in slices if one["metadata"]["labels"]["kubernetes.io/service-name"] == "adds"]
        return [end["addresses"] for one in mine for end in one["endpoints"] or ()] == [["10.96.9.9"]]


def test_a_gateway_splits_the_traffic_once_it_says_that_it_follows_the_route(installed: Installed, services: Services) -> None:
    judge = Judge(services)
    installed.end("operator")
    asked = str(installed.written(gateway=f"{services.namespace}/front"))
    installed.start("operator", FAIRWAY_INSTALLATION=asked)
    services.apply("adds", model="adds@1", replicas={"min": 1, "max": 1})
    judge.says("False", "NotAllowedByListeners", "NotAllowedByListeners")
    services.until("adds", "is ready", lambda status: status.get("ready") == "1/1")
    wait_for("our router serves meanwhile", lambda: "adds-router" in services.counts("adds"), PATIENCE)
    judge.says("True", "Accepted", "by gateway")
    wait_for("the name leads there alone", judge.leads, PATIENCE, lambda: services.why_not("adds"))
    wait_for("our router goes", lambda: services.counts("adds") == {"adds-r1": 1}, PATIENCE)

    shadow = {"strategy": "shadow", "steps": [{"to": "50%", "for": "1h"}]}
    services.apply("adds", model="adds@2", replicas={"min": 1, "max": 1}, rollout=shadow)
    target = {"group": "", "kind": "Service", "name": "adds-r2", "port": 80}
    copied = {"backendRef": target, "fraction": {"numerator": 5000, "denominator": 10000}}
    copies = lambda: judge.rule().get("filters", [{}])[0].get("requestMirror") == copied  # noqa: E731
    wait_for("copies go to the next", copies, PATIENCE, lambda: f"{judge.rule()} {services.why_not('adds')}")
    assert judge.leads()
    installed.kill("operator")
    installed.start("operator", FAIRWAY_INSTALLATION=asked)
    services.apply("adds", model="adds@1", replicas={"min": 0, "max": 1})
    router = [{"group": "", "kind": "Service", "name": "adds", "port": 80, "weight": 1}]
    to_router = lambda: judge.rule().get("backendRefs") == router  # noqa: E731
    wait_for("the gateway leads to our router", to_router, PATIENCE, lambda: f"{judge.rule()} {services.why_not('adds')}")
    assert not judge.leads()
    judge.says("False", "", "lets no request wait")
    services.plane.request("DELETE", f"{judge.path}/gateways/front")
    services.apply("adds", model="adds@1", replicas={"min": 1, "max": 1})
    wait_for("a route to nowhere goes", lambda: not judge.rule(), PATIENCE, lambda: services.why_not("adds"))
    services.delete("adds")
    wait_for("nothing is left", lambda: not services.of("pods", "adds"), PATIENCE)
    installed.end("operator")
    installed.start("operator")


def test_a_registry_without_namespaces_is_taken_up_under_a_service_that_serves(services: Services, installed: Installed) -> None:
    services.apply("adds", model="adds@champion", follow=True, replicas={"min": 1, "max": 1})
    home, namespace = installed.folder / "home", services.namespace
    own = home / "namespaces" / namespace / "models" / "adds"
    (own / "aliases").mkdir()
    (own / "aliases" / "champion").write_text("1\n")
    services.until("adds", "is ready", lambda status: status.get("ready") == "1/1" and status.get("serves") == "adds@1")
    before = [pod["metadata"]["uid"] for pod in services.pods("adds")]
    # The home as a version without namespaces has left it.
    installed.kill("operator")
    for path in [path for path in own.iterdir() if path.name.endswith(".json")]:
        record = json.loads(path.read_bytes())
        path.write_text(json.dumps({**record, "name": "adds"}))
    (home / "models").mkdir(exist_ok=True)
    own.rename(home / "models" / "adds")
    shutil.rmtree(home / "namespaces")
    shutil.rmtree(home / "codes", ignore_errors=True)
    installed.start("operator")

    earlier = home / "namespaces" / "earlier.json"
    wait_for("it is taken up", earlier.exists, PATIENCE, installed.last_words)
    assert namespace in json.loads(earlier.read_bytes())["models"]["adds"]
    # An alias of the earlier model is followed as before, and the service moves from the same pods to the next version.
    services.until("adds", "is looked at", lambda status: status.get("ready") == "1/1")
    assert [pod["metadata"]["uid"] for pod in services.pods("adds")] == before, "nothing was started again"
    (home / "models" / "adds" / "aliases" / "champion").write_text("2\n")
    services.until("adds", "has followed", lambda status: status.get("serves") == "adds@2" and status.get("ready") == "1/1")
    assert services.status("adds")["revision"] == 2, "one release, when the alias moved, and none before"
    # New versions of the namespace continue the earlier numbers.
    register(home, 5, namespace=namespace)
    assert (home / "namespaces" / namespace / "models" / "adds" / "3.json").is_file()
    shutil.rmtree(home / "models" / "adds")
