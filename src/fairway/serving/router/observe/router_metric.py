"""The router's own metrics: under Fairway's names, and under those of Knative's queue-proxy, which KServe's dashboards use."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.serving.exposition.metric_family import MetricFamily
from fairway.serving.router.counter import RevisionCounters
from fairway.serving.router.routing.router_state import RouterState
from fairway.state.serving.load import LATENCY_BOUNDS
from fairway.state.serving.route import RouteBackend

_SECONDS = tuple(f"{bound:.6g}" for bound in LATENCY_BOUNDS)
_MILLISECONDS = tuple(f"{1000 * bound:.6g}" for bound in LATENCY_BOUNDS)


def families(desk: RouterState, up: Mapping[RouteBackend, bool], dropped: tuple[int, int]) -> list[MetricFamily]:
    """Return all metrics of the router. `dropped`: lines of the access log, written and dropped."""
    revisions = desk.revision_counts()
    return [
        *_requests(desk, revisions),
        *_latency(revisions),
        *_state(desk, up),
        *_single(desk, dropped),
        *_knative(desk, revisions),
    ]


def _requests(desk: RouterState, revisions: Mapping[int, RevisionCounters]) -> list[MetricFamily]:
    requests = MetricFamily(
        "fairway_router_requests_total", "counter", "Responses by revision and status; revision 0: the router's own."
    )
    failed = MetricFamily("fairway_router_failed_total", "counter", "Requests answered with 5xx, or not at all, after retries.")
    mirrored = MetricFamily("fairway_router_mirrored_total", "counter", "Mirrored copies of requests sent to a revision.")
    for number, count in revisions.items():
        label = ("revision", str(number))
        for code, times in sorted(count.codes.items()):
            requests.add(times, label, ("code", str(code)))
        failed.add(count.failed, label)
        mirrored.add(count.mirrored, label)
    for code, times in sorted(desk.own_codes.items()):
        requests.add(times, ("revision", "0"), ("code", str(code)))
    return [requests, failed, mirrored]


def _latency(revisions: Mapping[int, RevisionCounters]) -> list[MetricFamily]:
    family = MetricFamily(
        "fairway_router_request_seconds", "histogram", "Latency of successful responses, from the last byte of a request."
    )
    for number, count in revisions.items():
        family.add_histogram(_SECONDS, count.buckets, count.latency_sum, ("revision", str(number)))
    return [family]


def _state(desk: RouterState, up: Mapping[RouteBackend, bool]) -> list[MetricFamily]:
    replicas = MetricFamily("fairway_router_replicas", "gauge", "Replicas that receive requests.")
    in_flight = MetricFamily("fairway_router_in_flight_requests", "gauge", "Requests sent to replicas and not answered yet.")
    weight = MetricFamily("fairway_router_weight", "gauge", "The share of the traffic that a revision receives, 0 to 1.")
    answers = MetricFamily("fairway_replica_up", "gauge", "1: the replica's metrics could be scraped; 0: they could not.")
    counts: dict[str, list[int]] = {}
    for backend, place in desk.routes.places.items():
        counts.setdefault(str(backend.revision), []).append(place.count.in_flight)
    for revision, numbers in sorted(counts.items()):
        replicas.add(len(numbers), ("revision", revision))
        in_flight.add(sum(numbers), ("revision", revision))
    whole = sum(desk.routes.weights.values())
    for number, part in sorted(desk.routes.weights.items()):
        weight.add(part / whole if whole else 0, ("revision", str(number)))
    for backend, answered in sorted(up.items(), key=lambda pair: pair[0].name):
        answers.add(int(answered), ("replica", backend.name), ("revision", str(backend.revision)))
    return [replicas, in_flight, weight, answers]


def _single(desk: RouterState, dropped: tuple[int, int]) -> list[MetricFamily]:
    received, sent = desk.bytes_passed()
    families = []
    for name, kind, words, value in (
        (
            "fairway_router_arrived_total",
            "counter",
            "Requests received, including held ones; probes are not counted.",
            desk.arrived,
        ),
        ("fairway_router_probes_total", "counter", "Health probes and scrapes; no other metric counts them.", desk.probes),
        ("fairway_router_held_requests", "gauge", "Requests that wait because there is no replica.", len(desk.waiting)),
        ("fairway_router_expired_total", "counter", "Held requests that were answered 503.", desk.expired),
        ("fairway_router_connections", "gauge", "Open client connections.", len(desk.guests)),
        ("fairway_router_received_bytes_total", "counter", "Bytes received from clients.", received),
        ("fairway_router_sent_bytes_total", "counter", "Bytes sent to clients.", sent),
        ("fairway_access_log_lines_total", "counter", "Lines of the access log.", dropped[0]),
        (
            "fairway_access_log_dropped_total",
            "counter",
            "Lines not written to the access log: too many, or the disk is slow.",
            dropped[1],
        ),
    ):
        family = MetricFamily(name, kind, words)
        family.add(value)
        families.append(family)
    return families


def _knative(desk: RouterState, revisions: Mapping[int, RevisionCounters]) -> list[MetricFamily]:
    """Return metrics under Knative's names, for requests that replicas answered.

    Latencies are in milliseconds, of successful responses.
    """
    namespace, _, service = desk.routes.plan.service.partition("/")
    families = []
    for prefix, words in (("revision_", "Knative's name"), ("revision_app_", "Knative's name; without waiting requests")):
        count = MetricFamily(f"{prefix}request_count", "counter", f"Responses ({words}).")
        latency = MetricFamily(
            f"{prefix}request_latencies", "histogram", f"Latency of successful responses in milliseconds ({words})."
        )
        for number, revision_count in revisions.items():
            names = (
                ("namespace_name", namespace),
                ("service_name", service),
                ("configuration_name", service),
                ("revision_name", f"{service}-r{number}"),
            )
            for code, times in sorted(revision_count.codes.items()):
                count.add(times, *names, ("response_code", str(code)), ("response_code_class", f"{code // 100}xx"))
            good = (*names, ("response_code", "200"), ("response_code_class", "2xx"))
            latency.add_histogram(_MILLISECONDS, revision_count.buckets, 1000 * revision_count.latency_sum, *good)
        families += [count, latency]
    return families
