"""A plan as a route of a gateway, and what a gateway's requests came to."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes.serving import gateway
from fairway.engines.kubernetes.serving.gateway import Gateway
from fairway.engines.kubernetes.serving.tally import Tally
from fairway.spec.service import ServiceSpec
from fairway.state.load import ReplicaLoad
from fairway.state.route import Backend, HeaderMatch, Mirror, RoutePlan
from fairway.state.service import ServiceKey

KEY = ServiceKey("team", "adds")
FRONT = Gateway("infra", "front", "10.96.0.9", 8080)
BACKENDS = (Backend("r1-1", 1, "10.0.0.1:20000"), Backend("r2-2", 2, "10.0.0.2:20000"))


def route(**plan: Any) -> dict[str, Any]:
    return gateway.http_route(KEY, RoutePlan("team/adds", BACKENDS, **plan), "adds", FRONT, "cluster.local")


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
            "parentRefs": [{"name": "front", "namespace": "infra"}],
            "hostnames": ["adds.team", "adds.team.svc", "adds.team.svc.cluster.local"],
            "rules": [{"backendRefs": [backend(1, 9_500), backend(2, 500)]}],
        },
    }


def test_headers_come_first_and_copies_go_beside() -> None:
    plan = {"weights": ((1, 10_000),), "matches": (HeaderMatch("x-group", "b", 2), HeaderMatch("x-group", "c", 3))}
    rules = route(**plan, mirror=Mirror(2, 2_500))["spec"]["rules"]
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


def test_the_name_leads_to_the_gateway_by_address_or_by_name() -> None:
    service, slice_ = gateway.front_service(KEY, "adds", 80, FRONT)
    assert "selector" not in service["spec"]
    assert slice_["metadata"]["labels"]["kubernetes.io/service-name"] == "adds"
    assert (slice_["endpoints"], slice_["ports"]) == ([{"addresses": ["10.96.0.9"]}], [{"name": "http", "port": 8080}])
    (named,) = gateway.front_service(KEY, "adds", 80, Gateway("infra", "front", "front.example", 80))
    assert named["spec"]["externalName"] == "front.example"


def test_a_gateway_counts_when_it_has_an_address_and_takes_plain_requests() -> None:
    body: dict[str, Any] = {
        "metadata": {"name": "front", "namespace": "infra"},
        "spec": {"listeners": [{"protocol": "HTTPS", "port": 443}, {"protocol": "HTTP", "port": 8080}]},
        "status": {"addresses": [{"value": "10.96.0.9"}]},
    }
    assert gateway.found(body) == FRONT
    assert gateway.found({**body, "status": {}}) is None
    assert gateway.found({**body, "spec": {"listeners": [{"protocol": "HTTPS", "port": 443}]}}) is None


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"replicas": {"min": 0, "max": 1}}, "no replica"),
        ({"traffic": {"sticky": "x-user"}}, "x-user"),
        ({"rollout": {"guard": {"metric": {"name": "clicks"}}}}, "clicks"),
        ({}, ""),
    ],
)
def test_what_a_gateway_cannot_do_asks_for_our_own_router(spec: dict[str, Any], word: str) -> None:
    said = gateway.needs_own(ServiceSpec.model_validate({"model": "adds@1", **spec}))
    assert bool(said) == bool(word)
    assert word in said


def test_counters_of_replicas_add_up_and_never_go_back() -> None:
    tally, plan = Tally("e"), RoutePlan("team/adds", BACKENDS)
    first = tally.add(plan, {"r1-1": ReplicaLoad(1.0, served=10, failed=1), "r2-2": ReplicaLoad(1.0, served=5)}, 1.0)
    assert (first.arrived, first.revisions[1].answered, first.revisions[1].failed) == (16, 10, 1)
    # One is gone, the other started anew.
    again = tally.add(RoutePlan("team/adds", BACKENDS[:1]), {"r1-1": ReplicaLoad(2.0, served=3, refused=2)}, 2.0)
    assert (again.arrived, again.revisions[1].answered, again.revisions[1].rejected) == (21, 13, 2)
    assert again.revisions[2] == first.revisions[2]
