"""A plan as a route of a gateway, and the counts of a gateway's requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairway.engines.kubernetes.serving import gateway_route, gateway_status
from fairway.engines.kubernetes.serving.gateway_load import GatewayLoadCounter
from fairway.engines.kubernetes.serving.gateway_route import ClusterGateway
from fairway.spec.service import ServiceSpec
from fairway.state.service import ServiceKey
from fairway.state.serving.load import ReplicaLoad
from fairway.state.serving.route import WHOLE, RouteBackend, RouteHeaderMatch, RouteMirror, RouteObservation, RoutePlan

KEY = ServiceKey("team", "adds")
FRONT = ClusterGateway("infra", "front", "10.96.0.9", 8080, "http")
HOST = "adds.team.svc.cluster.local"
BACKENDS = (RouteBackend("r1-1", 1, "10.0.0.1:20000"), RouteBackend("r2-2", 2, "10.0.0.2:20000"))


def route(**plan: Any) -> dict[str, Any]:
    manifest = gateway_route.http_route(KEY, RoutePlan("team/adds", BACKENDS, **plan), "adds", FRONT, "cluster.local")
    assert manifest is not None
    return manifest


def backend(revision: int, weight: int) -> dict[str, Any]:
    return {"name": f"adds-r{revision}", "port": 80, "weight": weight}


def test_parts_of_the_traffic_are_weights_of_the_revisions_services() -> None:
    assert route(weights=((1, 9_500), (2, 500))) == {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {
            "name": "adds",
            "namespace": "team",
            "labels": {"app.kubernetes.io/managed-by": "fairway", "fairway.dev/service": "adds"},
        },
        "spec": {
            "parentRefs": [{"name": "front", "namespace": "infra", "sectionName": "http"}],
            "hostnames": ["adds.team", "adds.team.svc", "adds.team.svc.cluster.local"],
            "rules": [{"backendRefs": [backend(1, 9_500), backend(2, 500)]}],
        },
    }


def test_headers_come_first_and_copies_go_beside() -> None:
    plan = {"weights": ((1, 10_000),), "matches": (RouteHeaderMatch("x-group", "b", 2), RouteHeaderMatch("x-group", "c", 3))}
    rules = route(**plan, mirror=RouteMirror(2, 2_500))["spec"]["rules"]
    copies = {
        "type": "RequestMirror",
        "requestMirror": {
            "backendRef": {"name": "adds-r2", "port": 80},
            "fraction": {"numerator": 2_500, "denominator": 10_000},
        },
    }
    match = {"headers": [{"type": "Exact", "name": "x-group", "value": "b"}]}
    assert rules == [
        {"matches": [match], "backendRefs": [backend(2, 1)], "filters": [copies]},
        {"backendRefs": [backend(1, 10_000)], "filters": [copies]},
    ]


def test_a_revision_without_a_replica_gives_its_part_to_the_others_as_in_our_router() -> None:
    (rule,) = route(weights=((1, 4_000), (2, 1_000), (3, 5_000)))["spec"]["rules"]
    assert rule == {"backendRefs": [backend(1, 4_000), backend(2, 1_000)]}
    nobody = RoutePlan("team/adds", (), weights=((1, 10_000),))
    assert gateway_route.http_route(KEY, nobody, "adds", FRONT, "cluster.local") is None
    first = gateway_route.http_route(KEY, nobody, "adds", FRONT, "cluster.local", newest=3)
    assert first is not None
    assert first["spec"]["rules"] == [{"backendRefs": [backend(3, 10_000)]}]


def test_who_asks_the_gateway_for_a_service_with_our_router_gets_to_the_router() -> None:
    manifest = gateway_route.route_to_router(KEY, "adds", 8000, FRONT, "cluster.local")
    assert manifest["spec"]["rules"] == [{"backendRefs": [{"name": "adds", "port": 8000, "weight": 1}]}]
    assert gateway_status.leads_to(manifest, "adds")
    assert not gateway_status.leads_to(route(weights=((1, 10_000),)), "adds")


def test_the_name_leads_to_the_gateway() -> None:
    assert "selector" not in gateway_route.front_service(KEY, "adds", 80)["spec"]
    slice_ = gateway_route.front_slice(KEY, "adds", FRONT)
    assert slice_["metadata"]["labels"]["kubernetes.io/service-name"] == "adds"
    assert [end["addresses"] for end in slice_["endpoints"]] == [["10.96.0.9"]]
    assert slice_["ports"] == [{"name": "http", "port": 8080}]


def listener(**more: Any) -> dict[str, Any]:
    return {"name": "http", "protocol": "HTTP", "port": 8080, "allowedRoutes": {"namespaces": {"from": "All"}}, **more}


def found(*listeners: dict[str, Any], status: dict[str, Any] | None = None) -> ClusterGateway | str:
    body = {
        "metadata": {"name": "front", "namespace": "infra"},
        "spec": {"gatewayClassName": "some", "listeners": list(listeners)},
        "status": {"addresses": [{"type": "IPAddress", "value": "10.96.0.9"}]} if status is None else status,
    }
    namespace = {"metadata": {"name": "team", "labels": {"kind": "research"}}}
    return gateway_status.gateway(body, None, namespace, HOST)


def test_the_listener_is_the_one_that_takes_such_routes() -> None:
    https = listener(name="https", protocol="HTTPS", port=443)
    assert found(https, listener()) == FRONT
    assert found(listener(hostname="*.cluster.local")) == FRONT
    assert found(listener(hostname=HOST)) == FRONT
    labelled = {"from": "Selector", "selector": {"matchLabels": {"kind": "research"}}}
    assert found(listener(allowedRoutes={"namespaces": labelled})) == FRONT
    kinds = [{"kind": "HTTPRoute"}]
    assert found(listener(allowedRoutes={"namespaces": {"from": "All"}, "kinds": kinds})) == FRONT


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"protocol": "HTTPS"}, "for HTTPS"),
        # The default is the gateway's own namespace.
        ({"allowedRoutes": {}}, "no route from the namespace team"),
        ({"allowedRoutes": {"namespaces": {"from": "Same"}}}, "no route from the namespace team"),
        ({"allowedRoutes": {"namespaces": {"from": "None"}}}, "no route from the namespace team"),
        ({"allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"a": "b"}}}}}, "namespace team"),
        ({"allowedRoutes": {"namespaces": {"from": "All"}, "kinds": [{"kind": "GRPCRoute"}]}}, "no HTTPRoute"),
        ({"hostname": "models.example.org"}, "for models.example.org"),
        ({"hostname": "*.example.org"}, "for *.example.org"),
    ],
)
def test_a_listener_that_takes_no_such_route_says_why(more: dict[str, Any], word: str) -> None:
    said = found(listener(**more))
    assert isinstance(said, str)
    assert word in said


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ({"key": "kind", "operator": "In", "values": ["research", "other"]}, True),
        ({"key": "kind", "operator": "NotIn", "values": ["research"]}, False),
        ({"key": "kind", "operator": "Exists"}, True),
        ({"key": "kind", "operator": "DoesNotExist"}, False),
    ],
)
def test_namespaces_are_chosen_by_expressions_too(rule: dict[str, Any], holds: bool) -> None:
    chosen = {"from": "Selector", "selector": {"matchExpressions": [rule]}}
    assert isinstance(found(listener(allowedRoutes={"namespaces": chosen})), ClusterGateway) == holds


def test_a_gateway_without_an_address_or_not_ready_is_none() -> None:
    assert "no IP address" in str(found(listener(), status={}))
    assert "no IP address" in str(found(listener(), status={"addresses": [{"type": "Hostname", "value": "front.example"}]}))
    no = {"type": "Programmed", "status": "False", "reason": "AddressNotUsable", "message": "taken"}
    addresses = [{"value": "10.96.0.9"}]
    assert "AddressNotUsable: taken" in str(found(listener(), status={"addresses": addresses, "conditions": [no]}))


def test_what_a_class_can_do_is_read_in_both_forms_and_unknown_where_nothing_is_said() -> None:
    both = frozenset(gateway_route.COPIES)
    assert gateway_status.features({"status": {"supportedFeatures": list(gateway_route.COPIES)}}) == both
    assert gateway_status.features({"status": {"supportedFeatures": [{"name": name} for name in gateway_route.COPIES]}}) == both
    assert gateway_status.features({"status": {}}) is None
    assert gateway_status.features(None) is None


def test_copies_ask_for_a_gateway_that_makes_them() -> None:
    plain = ServiceSpec.model_validate({"model": "adds@1"})
    shadow = ServiceSpec.model_validate({"model": "adds@1", "rollout": {"strategy": "shadow"}})
    plan = RoutePlan("team/adds", BACKENDS)
    none, every = replace(FRONT, features=frozenset({"HTTPRoute"})), replace(FRONT, features=frozenset(gateway_route.COPIES))
    assert "HTTPRouteRequestMirror" in gateway_route.lacks(shadow, plan, none)
    assert gateway_route.lacks(plain, replace(plan, mirror=RouteMirror(2, 2_500)), none)
    assert not gateway_route.lacks(plain, plan, none)
    assert not gateway_route.lacks(shadow, plan, every)
    assert not gateway_route.lacks(shadow, plan, FRONT)


def judged(*conditions: tuple[str, str, str, int], generation: int = 2, **ref: str) -> str | None:
    parent = {"name": "front", "namespace": "infra", "sectionName": "http", **ref}
    said = [
        {"type": kind, "status": status, "reason": reason, "message": "why", "observedGeneration": seen}
        for kind, status, reason, seen in conditions
    ]
    status = {"parents": [{"parentRef": parent, "conditions": said}]}
    return gateway_status.verdict({"metadata": {"generation": generation}, "status": status}, FRONT)


def test_a_gateway_follows_a_route_when_it_says_so_of_this_very_route() -> None:
    accepted, resolved = ("Accepted", "True", "Accepted", 2), ("ResolvedRefs", "True", "ResolvedRefs", 2)
    assert judged(accepted, resolved) == ""
    assert judged(accepted, ("ResolvedRefs", "False", "BackendNotFound", 2)) == "BackendNotFound: why"
    assert judged(("Accepted", "False", "NotAllowedByListeners", 2), resolved) == "NotAllowedByListeners: why"
    assert judged(accepted, resolved, ("PartiallyInvalid", "True", "UnsupportedValue", 2)) == "UnsupportedValue: why"
    assert judged(accepted, resolved, generation=3) is None
    assert judged(accepted, resolved, name="other") is None
    assert judged() is None


def test_parts_of_copies_that_an_older_api_drops_are_noticed() -> None:
    asked = route(weights=((1, 10_000),), mirror=RouteMirror(2, 2_500))
    kept = route(weights=((1, 10_000),), mirror=RouteMirror(2, 2_500))
    assert gateway_status.kept_whole(asked, kept)
    del kept["spec"]["rules"][0]["filters"][0]["requestMirror"]["fraction"]
    assert not gateway_status.kept_whole(asked, kept)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"replicas": {"min": 0, "max": 1}}, "no replica"),
        ({"traffic": {"sticky": "x-user"}}, "x-user"),
        ({"rollout": {"guard": {"metric": {"name": "clicks"}}}}, "clicks"),
        ({"rollout": {"strategy": "shadow", "guard": {"outputs": {}}}}, "compares outputs"),
        ({}, ""),
    ],
)
def test_what_a_gateway_cannot_do_asks_for_our_own_router(spec: dict[str, Any], word: str) -> None:
    said = gateway_route.needs_own(ServiceSpec.model_validate({"model": "adds@1", **spec}))
    assert bool(said) == bool(word)
    assert word in said


def test_counters_of_replicas_add_up_and_never_go_back() -> None:
    tally, plan = GatewayLoadCounter("e"), RoutePlan("team/adds", BACKENDS)
    first = tally.add(
        plan, {"r1-1": ReplicaLoad(1.0, served=10, failed=1), "r2-2": ReplicaLoad(1.0, served=5, client_errors=4)}, 1.0
    )
    assert (first.arrived, first.revisions[1].answered, first.revisions[1].failed) == (16, 10, 1)
    # One replica is gone, the other restarted.
    again = tally.add(RoutePlan("team/adds", BACKENDS[:1]), {"r1-1": ReplicaLoad(2.0, served=3, refused=2)}, 2.0)
    assert (again.arrived, again.revisions[1].answered, again.revisions[1].rejected) == (21, 13, 2)
    assert again.revisions[2] == first.revisions[2]
    assert (again.revisions[1].client_errors, again.revisions[2].client_errors) == (0, 4)


def test_calls_of_grpc_go_to_the_port_that_speaks_http2() -> None:
    matches, observed = (RouteHeaderMatch("x-beta", "yes", 2),), RouteObservation(model="adds")
    plan = RoutePlan("team/adds", BACKENDS, ((1, WHOLE),), matches=matches, mirror=RouteMirror(2), observed=observed)
    manifest = gateway_route.http_route(KEY, plan, "adds", FRONT, "cluster.local")
    assert manifest is not None
    rules = manifest["spec"]["rules"]
    call = {"type": "Exact", "name": "content-type", "value": "application/grpc"}
    names = [[each["name"] for match in rule.get("matches", []) for each in match["headers"]] for rule in rules]
    assert names == [["x-beta", "content-type"], ["content-type"], ["x-beta"], []]
    assert rules[1]["matches"] == [{"headers": [call]}]
    assert [rule["backendRefs"][0]["port"] for rule in rules] == [8001, 8001, 80, 80]
    assert [rule["filters"][0]["requestMirror"]["backendRef"]["port"] for rule in rules] == [8001, 8001, 80, 80]
