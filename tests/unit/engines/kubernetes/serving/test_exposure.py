"""How the endpoint of a document is exposed on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes.operator.installation import Installation
from fairway.engines.kubernetes.serving import exposure, gateway_found, manifests, naming
from fairway.engines.kubernetes.serving import gateway as routes
from fairway.engines.kubernetes.serving.exposure import Exposure
from fairway.engines.kubernetes.serving.gateway import Gateway
from fairway.plan.service import commands
from fairway.plan.service.access import access_of
from fairway.spec.service import ServiceSpec
from fairway.state.access import Access, KeyRule
from fairway.state.job import Origin
from fairway.state.route import RoutePlan
from fairway.state.service import Service, ServiceKey

KEY = ServiceKey("team", "adds")
AROUND = manifests.Around(Installation(image="fairway:1"), "http://operator:8080", "adds-1234")


def service(**endpoint: Any) -> Service:
    spec = ServiceSpec.model_validate({"model": "adds@3", "endpoint": endpoint})
    return commands.applied(None, KEY, spec, "adds@3", "onnx", Origin(), {}, 0.0)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ({"bind": "0.0.0.0", "keys": "required"}, "bind"),
        ({"tls": {"mode": "self-signed"}}, "self-signed"),
        ({"tls": {"certificate": "a", "key": "b"}}, "kubernetes.io/tls"),
    ],
)
def test_what_is_for_one_machine_is_refused_with_what_to_write(endpoint: dict[str, Any], said: str) -> None:
    (found,) = exposure.cluster_lacks(service(**endpoint))
    assert said in found
    assert exposure.cluster_lacks(service(keys="required", tls={"secret": "cert"}, hosts=["a.example"])) == []


def test_the_router_reads_the_secrets_and_nothing_else_changes() -> None:
    plain = manifests.router(KEY, 2, AROUND)
    assert manifests.router(KEY, 2, AROUND, Exposure()) == plain
    pod = manifests.router(KEY, 2, AROUND, Exposure("adds-keys-1", "cert"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][-2:] == ["--keys", "/fairway/keys/keys.json"]
    assert {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume} == {"adds-keys-1", "cert"}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/fairway/keys", "/fairway/tls"}
    access = access_of(service(tls={"secret": "cert"}))
    assert access is not None
    assert access.tls is not None
    assert access.tls.certificate == "/fairway/tls/tls.crt"


def test_other_keys_are_another_secret_that_is_never_changed() -> None:
    one, two = (exposure.keys_name(KEY, "uid", keys) for keys in (b"[]", b"[1]"))
    assert one != two
    manifest = exposure.keys_secret(KEY, one, b"[]")
    assert manifest["immutable"] is True
    assert manifest["stringData"] == {"keys.json": "[]"}


def test_a_plan_has_keys_only_where_routers_are_told_it() -> None:
    rule = KeyRule("ci", "0a", "digest")
    plan = RoutePlan("team/adds", access=Access(keys_required=True))
    assert exposure.with_keys(plan, (rule,)).access == Access(keys_required=True, keys=(rule,))
    assert exposure.with_keys(RoutePlan("team/adds"), (rule,)).access is None
    assert exposure.with_keys(RoutePlan("team/adds", access=Access()), (rule,)).access == Access()


def test_names_of_the_cluster_count_beside_those_of_the_document() -> None:
    plan = exposure.cluster_plan(RoutePlan("team/adds", hosts=("adds.example",)), "cluster.local")
    assert {"adds.example", "adds", "adds.team", "adds.team.svc", "adds.team.svc.cluster.local"} <= set(plan.hosts)
    assert exposure.cluster_plan(RoutePlan("team/adds"), "cluster.local").hosts == ()


def test_what_a_gateway_cannot_do_has_a_reason() -> None:
    assert "API keys" in routes.needs_own(service(keys="required").spec)
    assert "origins" in routes.needs_own(service(cors={"origins": ["https://a.example"]}).spec)
    assert routes.needs_own(service(hosts=["a.example"]).spec) == ""
    assert "HTTPS, certificateRefs" in exposure.no_gateway(service(tls={"secret": "cert"}).spec)
    assert exposure.no_gateway(service(keys="required").spec) == ""


def listener(name: str, protocol: str = "HTTPS", hostname: str = "", **tls: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "protocol": protocol, "port": 443, "allowedRoutes": {"namespaces": {"from": "All"}}}
    if hostname:
        found["hostname"] = hostname
    return {**found, "tls": {"certificateRefs": [{"name": "cert"}], **tls}} if protocol == "HTTPS" else found


@pytest.mark.parametrize(
    ("one", "takes"),
    [
        (listener("a"), True),
        (listener("a", hostname="*.example.org"), True),
        (listener("a", hostname="other.example.org"), False),
        (listener("a", protocol="HTTP"), False),
        (listener("a", mode="Passthrough"), False),
        (listener("a", certificateRefs=[]), False),
    ],
)
def test_listeners_that_end_tls(one: dict[str, Any], takes: bool) -> None:
    body = {"metadata": {"namespace": "gates", "name": "gate"}, "spec": {"listeners": [one]}}
    namespace = {"metadata": {"name": "team"}}
    assert gateway_found.secured(body, namespace, ("adds.example.org",)) == (("a",) if takes else ())


def test_names_of_the_document_are_routed_at_listeners_with_tls_alone() -> None:
    gateway = Gateway("gates", "gate", "10.0.0.1", 80, "http", None, ("https",))
    route = routes.route_to_router(KEY, "adds", 80, gateway, "cluster.local")
    manifest = routes.tls_route(route, ("adds.example.org",), gateway)
    assert manifest["metadata"]["name"] == "adds.tls"
    assert manifest["spec"]["hostnames"] == ["adds.example.org"]
    assert manifest["spec"]["parentRefs"] == [{"name": "gate", "namespace": "gates", "sectionName": "https"}]
    assert manifest["spec"]["rules"] == route["spec"]["rules"]
    assert "adds.example.org" not in route["spec"]["hostnames"]


def test_a_service_with_tls_is_asked_at_443() -> None:
    assert naming.url(KEY, "adds", 443, "cluster.local", tls=True) == "https://adds.team.svc.cluster.local"
    assert naming.url(KEY, "adds", 80, "cluster.local") == "http://adds.team.svc.cluster.local"
