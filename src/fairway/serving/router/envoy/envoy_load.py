"""Translates the statistics of Envoy's admin socket to the `RouteLoad` that every router returns. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fairway.serving.router.envoy.envoy_config import STAT_PREFIX, cluster_name
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, RevisionLoad, RouteLoad
from fairway.state.serving.route import RoutePlan


def known_revisions(clusters: Mapping[str, Any]) -> list[int]:
    """Return the revisions in a cluster file."""
    names = (str(cluster["name"]) for cluster in clusters["resources"])
    return sorted({int(name.rpartition("-")[2]) for name in names})


def read_load(stats: Mapping[str, Any], hosts: Mapping[str, Any], plan: RoutePlan, now: float, epoch: str) -> RouteLoad:
    """Return the counters.

    Envoy does not report how long a backend was busy, and the sum of latencies is computed from its buckets.
    """
    numbers = {stat["name"]: int(stat["value"]) for stat in stats["stats"] if isinstance(stat.get("value"), int)}
    histograms = {
        stat["name"]: [int(bucket["cumulative"]) for bucket in stat["buckets"]]
        for entry in stats["stats"]
        if isinstance(entry.get("histograms"), list)
        for stat in entry["histograms"]
    }
    names = {str(cluster["name"]) for cluster in hosts.get("cluster_statuses", ())}
    revisions = sorted(int(name.removeprefix("revision-")) for name in names if name.startswith("revision-"))
    return RouteLoad(
        time=now,
        epoch=epoch,
        arrived=numbers.get(f"http.{STAT_PREFIX}.downstream_rq_total", 0),
        revisions={revision: _revision(numbers, histograms, revision) for revision in revisions},
        backends=_backends(hosts, plan),
    )


def _revision(numbers: Mapping[str, int], histograms: Mapping[str, list[int]], revision: int) -> RevisionLoad:
    prefix, copy = f"cluster.{cluster_name(revision)}.", f"cluster.{cluster_name(revision, mirror=True)}."

    def count(name: str, of: str = prefix) -> int:
        return numbers.get(f"{of}upstream_rq_{name}", 0)

    rejected = count("429")
    client_errors = count("4xx") - rejected
    own = _latency(histograms.get(f"{prefix}upstream_rq_time", []))
    copied = _latency(histograms.get(f"{copy}upstream_rq_time", []))
    latency = tuple(a + b for a, b in zip(own, copied, strict=True)) if own and copied else own or copied
    return RevisionLoad(
        arrived=count("total") - count("retry"),
        answered=count("2xx") + count("3xx") + client_errors,
        client_errors=client_errors,
        failed=count("5xx"),
        rejected=rejected,
        latency=latency,
        latency_sum=sum(number * bound for number, bound in zip(latency, (*LATENCY_BOUNDS, LATENCY_BOUNDS[-1]), strict=False)),
        mirrored=count("total", copy),
        mirror_failed=count("5xx", copy),
        mirror_client_errors=count("4xx", copy) - count("429", copy),
    )


def _latency(cumulative: list[int]) -> tuple[int, ...]:
    if not cumulative or not cumulative[-1]:
        return ()
    return tuple(after - before for before, after in pairwise([0, *cumulative]))


def _backends(hosts: Mapping[str, Any], plan: RoutePlan) -> dict[str, BackendLoad]:
    by_address: dict[str, BackendLoad] = {}
    for cluster in hosts.get("cluster_statuses", ()):
        if not str(cluster["name"]).startswith("revision-"):
            continue
        for host in cluster.get("host_statuses", []):
            socket_address = host["address"]["socket_address"]
            counts = {stat["name"]: int(stat.get("value", 0)) for stat in host["stats"]}
            by_address[f"{socket_address['address']}:{socket_address['port_value']}"] = BackendLoad(
                in_flight=counts.get("rq_active", 0),
                answered=counts.get("rq_success", 0),
                failed=counts.get("rq_error", 0),
                refused=counts.get("cx_connect_fail", 0),
            )
    return {backend.name: by_address[backend.address] for backend in plan.backends if backend.address in by_address}
