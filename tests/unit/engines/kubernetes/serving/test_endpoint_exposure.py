"""How the endpoint of a document is exposed on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.serving import endpoint_exposure, gateway_status, naming
from fairway.engines.kubernetes.serving import gateway_route as routes
from fairway.engines.kubernetes.serving import manifest as serving_manifest
from fairway.engines.kubernetes.serving.endpoint_exposure import RouterPodSecrets
from fairway.engines.kubernetes.serving.gateway_route import ClusterGateway
from fairway.plan.service import service_command
from fairway.plan.service.access import access_of
from fairway.spec.service import ServiceSpec
from fairway.state.job import SubmissionOrigin
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.access import AccessRules, KeyRule
from fairway.state.serving.route import RoutePlan

KEY = ServiceKey("team", "adds")
AROUND = serving_manifest.PodSurroundings(InstallationSettings(image="fairway:1"), "http://operator:8080", "adds-1234")


def service(**endpoint: Any) -> ServiceState:
    spec = ServiceSpec.model_validate({"model": "adds@3", "endpoint": endpoint})
    return service_command.applied(None, KEY, spec, "adds@3", "onnx", SubmissionOrigin(), {}, 0.0)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ({"bind": "0.0.0.0", "keys": "required"}, "bind"),
        ({"tls": {"mode": "self-signed"}}, "self-signed"),
        ({"tls": {"certificate": "a", "key": "b"}}, "kubernetes.io/tls"),
    ],
)
def test_what_is_for_one_machine_is_refused_with_what_to_write(endpoint: dict[str, Any], said: str) -> None:
    (found,) = endpoint_exposure.cluster_lacks(service(**endpoint))
    assert said in found
    assert endpoint_exposure.cluster_lacks(service(keys="required", tls={"secret": "cert"}, hosts=["a.example"])) == []


def test_the_router_reads_the_secrets_and_nothing_else_changes() -> None:
    plain = serving_manifest.router(KEY, 2, AROUND)
    assert serving_manifest.router(KEY, 2, AROUND, RouterPodSecrets()) == plain
    pod = serving_manifest.router(KEY, 2, AROUND, RouterPodSecrets("adds-keys-1", "cert"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][-2:] == ["--keys", "/fairway/keys/keys.json"]
    assert {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume} == {"adds-keys-1", "cert"}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/fairway/keys", "/fairway/tls"}
    access = access_of(service(tls={"secret": "cert"}))
    assert access is not None
    assert access.tls is not None
    assert access.tls.certificate == "/fairway/tls/tls.crt"


def test_other_keys_are_another_secret_that_is_never_changed() -> None:
    one, two = (endpoint_exposure.keys_name(KEY, "uid", keys) for keys in (b"[]", b"[1]"))
    assert one != two
    manifest = endpoint_exposure.keys_secret(KEY, one, b"[]")
    assert manifest["immutable"] is True
    assert manifest["stringData"] == {"keys.json": "[]"}


def test_a_plan_has_keys_only_where_routers_are_told_it() -> None:
    rule = KeyRule("ci", "0a", "digest")
    plan = RoutePlan("team/adds", access=AccessRules(keys_required=True))
    assert endpoint_exposure.with_keys(plan, (rule,)).access == AccessRules(keys_required=True, keys=(rule,))
    assert endpoint_exposure.with_keys(RoutePlan("team/adds"), (rule,)).access is None
    assert endpoint_exposure.with_keys(RoutePlan("team/adds", access=AccessRules()), (rule,)).access == AccessRules()


def test_names_of_the_cluster_count_beside_those_of_the_document() -> None:
    plan = endpoint_exposure.cluster_plan(RoutePlan("team/adds", hosts=("adds.example",)), "cluster.local")
    assert {"adds.example", "adds", "adds.team", "adds.team.svc", "adds.team.svc.cluster.local"} <= set(plan.hosts)
    assert endpoint_exposure.cluster_plan(RoutePlan("team/adds"), "cluster.local").hosts == ()


def test_what_a_gateway_cannot_do_has_a_reason() -> None:
    assert "API keys" in routes.needs_own(service(keys="required").spec)
    assert "origins" in routes.needs_own(service(cors={"origins": ["https://a.example"]}).spec)
    assert routes.needs_own(service(hosts=["a.example"]).spec) == ""
    assert "HTTPS, certificateRefs" in endpoint_exposure.no_gateway(service(tls={"secret": "cert"}).spec)
    assert endpoint_exposure.no_gateway(service(keys="required").spec) == ""


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
    assert gateway_status.secured(body, namespace, ("adds.example.org",)) == (("a",) if takes else ())


def test_names_of_the_document_are_routed_at_listeners_with_tls_alone() -> None:
    gateway = ClusterGateway("gates", "gate", "10.0.0.1", 80, "http", None, ("https",))
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
