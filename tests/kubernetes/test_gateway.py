"""Services behind a gateway that carries traffic (Traefik), on real nodes: splits, headers, releases under load, and back.

The gateway takes long to build, so it is built only on request: `PYTHONPATH=tests .venv/bin/python -m cluster build gateway`.
"""

from __future__ import annotations

import collections
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from cluster import gateway, image
from cluster.fixtures import skipping_what_is_missing
from cluster.installed import Installed
from cluster.nodes import RealCluster
from cluster.process import wait_for
from cluster.programs import find
from cluster.served import PATIENCE, Services, register

from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings

pytestmark = pytest.mark.timeout(600)

BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [10, 20]}]})


@pytest.fixture(scope="module")
def program() -> None:
    """Checks for the program before a cluster is started in vain."""
    with skipping_what_is_missing(by="FAIRWAY_GATEWAY"):
        find("traefik")


class Crowd:
    """Sends requests to a service by its address in the cluster, on kept connections; counts the responses of each version."""

    def __init__(self, address: str, host: str) -> None:
        self._address = address
        self._headers = {"Content-Type": "application/json", "Host": host}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.answers: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []

    def ask(self, connection: http.client.HTTPConnection, **more: str) -> str:
        """Return the version that responded: the number that its model adds."""
        connection.request("POST", "/v2/models/adds/infer", BODY, {**self._headers, **more})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise ValueError(f"{answer.status} {said[:200]!r}")
        return f"{json.loads(said)['outputs'][0]['data'][0] - 10:g}"

    def many(self, count: int, **more: str) -> collections.Counter[str]:
        """Send this many requests, and count the responses."""
        with closing(self.connection()) as connection:
            return collections.Counter(self.ask(connection, **more) for _ in range(count))

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, 80, timeout=60)

    def __enter__(self) -> Crowd:
        self._threads = [threading.Thread(target=self._ask_on, daemon=True) for _ in range(3)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask_on(self) -> None:
        connection = self.connection()
        while not self._stop.wait(0.01):
            try:
                self.answers[self.ask(connection)] += 1
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
        connection.close()


class Behind(Services):
    """Services behind the gateway."""

    def condition(self) -> dict[str, Any]:
        found = [one for one in self.status("adds").get("conditions", ()) if one["type"] == "ByGateway"]
        return found[0] if found else {}

    def traffic(self) -> dict[str, str]:
        """Return what serves, and its share of the traffic."""
        parts = {one["serves"]: one["traffic"] for one in self.status("adds").get("revisions", ())}
        return {serves: part for serves, part in parts.items() if part != "0%"}

    def until_traffic(self, **parts: str) -> None:
        wanted = {f"adds@{version[1:]}": part for version, part in parts.items()}
        wait_for(f"traffic is {wanted}", lambda: self.traffic() == wanted, PATIENCE, lambda: self.why_not("adds"))

    def until_by_gateway(self, whether: str, word: str) -> None:
        def so() -> bool:
            found = self.condition()
            return found.get("status") == whether and word in found.get("message", "")

        wait_for(f"by the gateway: {whether}", so, PATIENCE, lambda: self.why_not("adds"))

    def route(self) -> dict[str, Any]:
        path = f"{gateway.API}/namespaces/{self.namespace}/httproutes/adds"
        found: dict[str, Any] = self.plane.get(path)[1]
        return found

    def until_followed(self) -> None:
        """Return when the gateway reports that it follows the current route."""

        def followed() -> bool:
            route = self.route()
            said = [one for parent in route["status"]["parents"] for one in parent["conditions"]]
            seen = all(one["observedGeneration"] == route["metadata"]["generation"] for one in said)
            return seen and {one["type"]: one["status"] for one in said} == {"Accepted": "True", "ResolvedRefs": "True"}

        wait_for("the route is followed", followed, PATIENCE, lambda: json.dumps(self.route()))


@pytest.fixture(scope="module")
def services(program: None, real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Operator and scheduler as processes with the rights of their accounts, replicas and routers as pods."""
    folder = tmp_path_factory.mktemp("behind")
    real_nodes.load(image.fairway(folder / "fairway.tar", ["kubernetes", "serve"]))
    installed = Installed(real_nodes.plane, folder)
    installed.installation = InstallationSettings(
        image.FAIRWAY, runtimes={"default": FrameworkRuntime(image.FAIRWAY)}, gateway="infra/front"
    )
    installed.install()
    (folder / "home").mkdir()
    register(folder / "home", 1, 2, 3)
    machine = real_nodes.network.plan.machine
    real_nodes.plane.start_scheduler()
    with gateway.running(real_nodes):
        port = str(gateway.free_port(machine))
        at = {"FAIRWAY_OPERATOR_PORT": port, "FAIRWAY_OPERATOR_ENDPOINT": f"http://{machine}:{port}"}
        installed.start("operator", **at)
        installed.start("scheduler")
        yield Behind(installed, "default")
        installed.stop()


def test_a_gateway_carries_the_requests_of_a_service_and_of_its_releases(services: Behind) -> None:
    one = {"replicas": {"min": 1, "max": 1}}
    services.apply("adds", model="adds@1", **one)
    services.until("adds", "is ready", lambda status: status.get("ready") == "1/1")
    services.until_by_gateway("True", "by gateway infra/front")
    assert services.counts("adds") == {"adds-r1": 1}, "a gateway leads: no router of ours is needed"
    (front, *_) = services.of("services", "adds")
    crowd = Crowd(front["spec"]["clusterIP"], "adds.default.svc.cluster.local")
    wait_for("an answer", lambda: _answers(crowd), PATIENCE, lambda: services.why_not("adds"))
    with crowd:
        canary = {"strategy": "canary", "steps": [{"to": "20%", "for": "1h"}], "requests": 0}
        headers = {"headers": [{"header": "x-tester", "value": "yes"}]}
        services.apply("adds", model="adds@2", rollout=canary, traffic=headers, **one)
        services.until_traffic(v1="80%", v2="20%")
        services.until_followed()
        wait_for("the gateway has it", lambda: crowd.answers["2"], PATIENCE, lambda: str(crowd.failures[:5]))
        before = crowd.answers.copy()
        # The gateway distributes all requests by round robin, so all of them count.
        parts = crowd.many(4_000) + (crowd.answers - before)
        assert 0.18 <= parts["2"] / parts.total() <= 0.22, parts
        assert crowd.many(200, **{"X-Tester": "yes"}) == {"2": 200}
        assert "2" in crowd.many(200, **{"X-Tester": "no"})

        services.apply("adds", model="adds@1", traffic=headers, **one)
        services.until_traffic(v1="100%")
        services.until_followed()
        wait_for("all is as it was", lambda: crowd.many(50) == {"1": 50}, PATIENCE, lambda: services.why_not("adds"))

        quick = {"strategy": "canary", "steps": [{"to": "50%", "for": "1s"}], "requests": 20}
        services.apply("adds", model="adds@2", rollout=quick, **one)
        services.until_traffic(v2="100%")
        services.until_followed()
        wait_for("the next version answers all", lambda: crowd.many(50) == {"2": 50}, PATIENCE)
        assert services.condition()["status"] == "True"
    assert crowd.failures == []


def test_what_this_gateway_cannot_do_is_done_by_our_router_without_a_failed_request(services: Behind) -> None:
    one = {"replicas": {"min": 1, "max": 1}}
    services.apply("adds", model="adds@2", **one)
    # Until a release is over, a new one would begin from the version before it.
    services.until("adds", "is released", lambda status: "Done" in status.get("rollout", ""))
    services.until_by_gateway("True", "by gateway infra/front")
    (front, *_) = services.of("services", "adds")
    with Crowd(front["spec"]["clusterIP"], "adds.default.svc.cluster.local") as crowd:
        wait_for("answers", lambda: crowd.answers["2"] > 50, PATIENCE, lambda: str(crowd.failures[:5]))
        shadow = {"strategy": "shadow", "steps": [{"to": "50%", "for": "1h"}]}
        services.apply("adds", model="adds@3", rollout=shadow, **one)
        services.until_by_gateway("False", "HTTPRouteRequestMirror")
        leads = lambda: services.route()["spec"]["rules"][0]["backendRefs"][0]["name"] == "adds"  # noqa: E731
        wait_for("our router answers", leads, PATIENCE, lambda: services.why_not("adds"))
        assert "adds-router" in services.counts("adds")
        services.until_followed()
        crowd.many(200)
        services.apply("adds", model="adds@2", **one)
        services.until_by_gateway("True", "by gateway infra/front")
        wait_for("our router goes", lambda: "adds-router" not in services.counts("adds"), PATIENCE)
        crowd.many(200)
    assert crowd.failures == []
    assert set(crowd.answers) == {"2"}, "nobody sees the answers to copies"


def _answers(crowd: Crowd) -> bool:
    try:
        return bool(crowd.many(1))
    except (OSError, ValueError, http.client.HTTPException):
        return False
