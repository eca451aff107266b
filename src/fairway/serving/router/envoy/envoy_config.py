"""Plans as Envoy's configuration: its bootstrap and the files that it watches. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from fairway.serving.router.host_rule import ANY, LOOPBACK, is_loopback
from fairway.state.serving.load import LATENCY_BOUNDS
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

CLUSTERS = "clusters.json"
ROUTES = "routes.json"
STAT_PREFIX = "service"
_TYPE = "type.googleapis.com/envoy.config"
_MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_OPTIONS = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_PREVIOUS = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
_FOREVER_MS = 1e12
"""Upper bound of the histogram bucket for all longer times."""
_ANSWER_SECONDS = "900s"
_NEVER_BEGUN = "connect-failure,reset-before-request"
_NO_REPLICA = (
    '{"error": "no replica is ready, and Envoy does not hold requests: '
    'a service that may scale to zero (min 0) needs the router of fairway"}\n'
)

_SIMPLE = "(?i)((application/x-www-form-urlencoded|multipart/form-data|text/plain)[ \t]*(;.*)?)?"
_UNLIMITED = ("max_connections", "max_pending_requests", "max_requests", "max_retries")

Message = dict[str, Any]


def cluster_name(revision: int, *, mirror: bool = False) -> str:
    """Return the name of a revision's cluster; copies have a cluster of their own, so that they are counted apart."""
    return f"mirror-{revision}" if mirror else f"revision-{revision}"


def bootstrap(folder: str, admin: str, host: str, port: int) -> Message:
    """Return Envoy's bootstrap: its listener, its admin endpoint (a Unix socket) and the files that it watches."""
    watched = {"resource_api_version": "V3", "path_config_source": _source(folder, ROUTES)}
    manager = {
        "@type": _MANAGER,
        "stat_prefix": STAT_PREFIX,
        "generate_request_id": True,
        "use_remote_address": True,
        "skip_xff_append": False,
        "request_timeout": "0s",
        "stream_idle_timeout": _ANSWER_SECONDS,
        "request_headers_timeout": "30s",
        "common_http_protocol_options": {"idle_timeout": "120s", "max_headers_count": 128},
        "always_set_request_id_in_response": True,
        "rds": {"route_config_name": "routes", "config_source": watched},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
    }
    listener = {
        "name": "service",
        "address": {"socket_address": {"address": host, "port_value": port}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
    }
    bounds = [*(round(1000 * bound, 6) for bound in LATENCY_BOUNDS), _FOREVER_MS]
    return {
        "node": {"id": "fairway", "cluster": "fairway"},
        "admin": {"address": {"pipe": {"path": admin, "mode": 0o600}}},
        "stats_flush_interval": "1s",
        "stats_config": {"histogram_bucket_settings": [{"match": {"suffix": "upstream_rq_time"}, "buckets": bounds}]},
        "static_resources": {"listeners": [listener]},
        "dynamic_resources": {
            "cds_config": {"resource_api_version": "V3", "path_config_source": _source(folder, CLUSTERS)},
        },
    }


def clusters(plan: RoutePlan, known: Iterable[int], version: str) -> Message:
    """Return the clusters, by revision. Revisions of earlier plans stay as empty clusters, so that their counters survive."""
    revisions = sorted({*known, *(backend.revision for backend in plan.backends)})
    resources = [
        _cluster(cluster_name(revision, mirror=mirror), [member for member in plan.backends if member.revision == revision])
        for revision in revisions
        for mirror in (False, True)
    ]
    return {"version_info": version, "resources": resources}


def routes(plan: RoutePlan, version: str) -> Message:
    """Return the route table: which request goes to which revision."""
    served = {backend.revision for backend in plan.backends}
    entries: list[Message] = []
    for match in plan.matches:
        if match.revision in served:
            header = {"name": match.header, "string_match": {"exact": match.value}}
            entries += _routes(plan, served, [header], {"cluster": cluster_name(match.revision)}, match.revision)
    weights = [(revision, weight) for revision, weight in plan.weights if weight and revision in served]
    if not plan.weights:
        weights = [(revision, 1) for revision in sorted(served)]
    if weights:
        entries += _routes(plan, served, [], _weighted(plan, weights), None)
    else:
        entries.append(_nobody())
    table = {
        "@type": f"{_TYPE}.route.v3.RouteConfiguration",
        "name": "routes",
        "virtual_hosts": _hosts(plan, entries),
        "ignore_port_in_host_matching": True,
    }
    return {"version_info": version, "resources": [table]}


def _hosts(plan: RoutePlan, routes: list[Message]) -> list[Message]:
    """Return the virtual hosts for the allowed host names and origins: the rules of `host_rule.py` for Envoy."""
    if not is_loopback(plan.host) or ANY in plan.hosts:
        return [{"name": "all", "domains": ["*"], "routes": routes}]
    names = sorted({*(name.decode() for name in LOOPBACK - {b"::1"}), *(name.lower() for name in plan.hosts)})
    others = {"match": {"prefix": "/"}, **_refusal("the Host is no name of this endpoint: use localhost or 127.0.0.1")}
    return [
        {"name": "ours", "domains": names, "routes": [*_cross_site(names), *routes]},
        {"name": "others", "domains": ["*"], "routes": [others]},
    ]


def _cross_site(names: list[str]) -> list[Message]:
    """Return routes that refuse what a page of another site can send without a preflight."""
    ours = "|".join(re.escape(name) for name in names)
    simple = [
        {"name": ":method", "string_match": {"safe_regex": {"regex": "GET|HEAD|OPTIONS"}}, "invert_match": True},
        {"name": "content-type", "string_match": {"safe_regex": {"regex": _SIMPLE}}, "treat_missing_header_as_empty": True},
    ]
    cross_site = [{"name": "sec-fetch-site", "string_match": {"exact": "cross-site"}}]
    origin = {"safe_regex": {"regex": f"(?i)[a-z][a-z0-9+.-]*://({ours})(:[0-9]*)?"}}
    foreign = [{"name": "origin", "present_match": True}, {"name": "origin", "string_match": origin, "invert_match": True}]
    refusal = _refusal("a page of another site sent this: send content-type application/json")
    return [{"match": {"prefix": "/", "headers": [*simple, *condition]}, **refusal} for condition in (cross_site, foreign)]


def _refusal(reason: str) -> Message:
    return {
        "direct_response": {"status": 403, "body": {"inline_string": json.dumps({"error": reason}) + "\n"}},
        "response_headers_to_add": [
            {"header": {"key": "content-type", "value": "application/json"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
        ],
    }


def _source(folder: str, name: str) -> Message:
    # Files are replaced by renaming, which Envoy notices only if it watches the folder.
    return {"path": f"{folder}/{name}", "watched_directory": {"path": folder}}


def _cluster(name: str, backends: list[RouteBackend]) -> Message:
    endpoints = [{"endpoint": {"address": _address(backend.address)}} for backend in backends]
    return {
        "@type": f"{_TYPE}.cluster.v3.Cluster",
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "lb_policy": "LEAST_REQUEST",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _OPTIONS,
                "explicit_http_config": {"http_protocol_options": {}},
                "common_http_protocol_options": {"idle_timeout": "4s"},
            }
        },
        "circuit_breakers": {"thresholds": [dict.fromkeys(_UNLIMITED, 1_000_000)]},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}] if endpoints else []},
    }


def _address(address: str) -> Message:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def _weighted(plan: RoutePlan, weights: list[tuple[int, int]]) -> Message:
    parts = [
        {"name": cluster_name(revision), "weight": weight, "response_headers_to_add": [_told(revision)]}
        # In order of number: the bounds between neighbours move, so that growing one takes only from the one before it.
        for revision, weight in sorted(weights)
    ]
    weighted: Message = {"clusters": parts}
    if plan.sticky:
        weighted["use_hash_policy"] = True
    return {"weighted_clusters": weighted}


def _routes(plan: RoutePlan, served: set[int], headers: list[Message], aim: Message, revision: int | None) -> list[Message]:
    """Return one route for methods that may be repeated and one for all others: they differ in what is retried."""
    repeatable = {"name": ":method", "string_match": {"safe_regex": {"regex": "GET|HEAD|OPTIONS|PUT|DELETE|TRACE"}}}
    entries = []
    for matched, again in (([*headers, repeatable], True), (headers, False)):
        action: Message = {**aim, "timeout": "0s", "idle_timeout": _ANSWER_SECONDS, "retry_policy": _retries(plan, again)}
        if plan.sticky:
            action["hash_policy"] = [{"header": {"header_name": plan.sticky}}]
        if plan.mirror is not None and plan.mirror.revision in served:
            action["request_mirror_policies"] = [_mirror(plan.mirror.revision, plan.mirror.share)]
        route: Message = {"match": {"prefix": "/", "headers": matched}, "route": action}
        if revision is not None:
            route["response_headers_to_add"] = [_told(revision)]
        entries.append(route)
    return entries


def _retries(plan: RoutePlan, again: bool) -> Message:
    policy: Message = {
        "retry_on": _NEVER_BEGUN,
        "num_retries": 3,
        "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": _PREVIOUS}}],
        "host_selection_retry_max_attempts": 5,
    }
    if again:
        policy["retry_on"] = f"{_NEVER_BEGUN},reset,retriable-status-codes"
        policy["retriable_status_codes"] = list(plan.retry_statuses)
    return policy


def _mirror(revision: int, share: int) -> Message:
    fraction = {"numerator": share * (10_000 // WHOLE), "denominator": "TEN_THOUSAND"}
    return {"cluster": cluster_name(revision, mirror=True), "runtime_fraction": {"default_value": fraction}}


def _told(revision: int) -> Message:
    return {
        "header": {"key": "fairway-revision", "value": str(revision)},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }


def _nobody() -> Message:
    return {
        "match": {"prefix": "/"},
        "direct_response": {"status": 503, "body": {"inline_string": _NO_REPLICA}},
        "response_headers_to_add": [
            {"header": {"key": "retry-after", "value": "1"}},
            {"header": {"key": "content-type", "value": "application/json"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
        ],
    }
