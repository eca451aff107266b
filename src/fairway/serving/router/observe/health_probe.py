"""Health probes: which requests are probes, and how they are answered while there is no replica. Pure functions."""

from __future__ import annotations

import json

from fairway.serving.router.message_head import RequestHead
from fairway.state.serving.route import RouteObservation

_GRPC_LIVE = b"/inference.GRPCInferenceService/ServerLive"
HEALTH_CHECK = b"/grpc.health.v1.Health/Check"
CALLS = frozenset(
    {_GRPC_LIVE, HEALTH_CHECK, b"/inference.GRPCInferenceService/ServerReady", b"/inference.GRPCInferenceService/ModelReady"}
)
"""gRPC methods that are probes."""
LIVE = frozenset({b"/v2/health/live", b"/livez", b"/ping", _GRPC_LIVE})
"""Paths of liveness probes. The router itself is alive."""
READY = frozenset({b"/v2/health/ready", b"/readyz", b"/health", b"/healthz"})
"""Paths of readiness probes: would requests be answered?"""
SCRAPE = b"/metrics"
AGENTS = (
    b"kube-probe/",
    b"Prometheus/",
    b"GoogleHC/",
    b"ELB-HealthChecker/",
    b"Amazon-Route53-Health-Check-Service",
    b"Consul Health Check",
    b"Blackbox Exporter/",
    b"Blackbox-Exporter/",
    b"vmagent",
    b"OpenTelemetry Collector",
    b"Envoy/HC",
)
"""The beginnings of the User-Agent of a probe or a scrape, whatever the path."""


def is_probe(head: RequestHead, about: RouteObservation) -> bool:
    """Return whether a GET, a HEAD or a gRPC call is a probe, by its path or by its sender."""
    path = head.target.partition(b"?")[0]
    if path in CALLS:
        return True
    if path in LIVE or path in READY or path == SCRAPE or (about.ready and path == about.ready.encode()):
        return True
    if about.model and (is_model_ready(path, about.model) or is_model_status(path, about.model)):
        return True
    agent = head.value_of(b"user-agent")
    return agent is not None and agent.startswith(AGENTS)


def is_model_ready(path: bytes, model: str) -> bool:
    """Return whether the path is `/v2/models/M/ready`, with or without a version."""
    return path.startswith(b"/v2/models/%b/" % model.encode()) and path.endswith(b"/ready")


def is_model_status(path: bytes, model: str) -> bool:
    """Return whether the path is `/v1/models/M`, the probe of TensorFlow Serving."""
    return path == b"/v1/models/%b" % model.encode()


def answer(target: bytes, about: RouteObservation) -> tuple[int, bytes]:
    """Return status and JSON for a probe while there is no replica.

    A service that is scaled to zero is ready: the next request starts a replica and waits for it. A load balancer that found it
    not ready would never send that request. A service that should have a replica and has none is not ready.
    """
    path = target.partition(b"?")[0]
    if path in LIVE:
        return 200, _json({"live": True})
    asleep = about.asleep
    more = {"scaled_to_zero": True} if asleep else {"reason": "no replica is ready"}
    if about.model and is_model_status(path, about.model):
        return (200 if asleep else 503), _json(_status(about))
    name = {"name": about.model} if about.model and is_model_ready(path, about.model) else {}
    return (200 if asleep else 503), _json({**name, "ready": asleep, **more})


def _status(about: RouteObservation) -> dict[str, object]:
    if not about.asleep:
        return {"error": "no replica is ready"}
    status = {"error_code": "OK", "error_message": "scaled to zero; a request starts a replica"}
    return {"model_version_status": [{"version": about.version, "state": "AVAILABLE", "status": status}]}


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"
