"""Builds the status of a ModelService object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.serving import naming
from fairway.engines.kubernetes.serving.gateway_sync import RequestPath
from fairway.engines.kubernetes.timestamp import stamp
from fairway.plan.service.measurement import ServiceMeasurements
from fairway.state.service import ReplicaPhase, ServiceRecord
from fairway.state.serving.route import WHOLE, RoutePlan
from fairway.views.serving.endpoint import EndpointView
from fairway.views.serving.release import release_line, release_view
from fairway.views.serving.service import service_view

Status = dict[str, Any]


def status_of(
    record: ServiceRecord,
    plan: RoutePlan | None,
    url: str,
    trouble: str,
    generation: int,
    before: Mapping[str, Any],
    now: float,
    way: RequestPath = RequestPath(),
) -> Status:
    """Return the complete status.

    `trouble` is why the objects are not as they should be; `way` is the path that requests take.
    """
    service = record.service
    view = service_view(record, ServiceMeasurements(), EndpointView(url))
    live = [replica for replica in record.replicas if replica.phase is not ReplicaPhase.GONE]
    weights = dict(plan.weights) if plan is not None else {}
    ready = {
        revision.number: sum(replica.revision == revision.number and replica.phase is ReplicaPhase.READY for replica in live)
        for revision in service.revisions
    }
    message = trouble or service.message
    available = "True" if view.ready_replicas or view.phase == "Idle" else "False"
    releasing = "True" if view.release is not None else "False"
    return {
        "observedGeneration": generation,
        "phase": "Failing" if trouble and not view.ready_replicas else view.phase,
        "message": message,
        "serves": view.serves,
        "revision": view.revision,
        "ready": f"{view.ready_replicas}/{view.wanted_replicas}",
        "replicas": len(live),
        "readyReplicas": view.ready_replicas,
        "selector": ",".join(f"{name}={value}" for name, value in naming.labels(service.key, naming.REPLICA).items()),
        "rollout": release_line(release_view(service)) if service.rollout is not None else "",
        "rule": view.rule,
        "why": view.why,
        "url": url,
        "revisions": [
            {
                "number": item.number,
                "serves": item.serves,
                "phase": str(item.phase),
                "ready": ready[item.number],
                "traffic": f"{100 * weights.get(item.number, 0) / WHOLE:g}%",
                **({"reason": item.reason} if item.reason else {}),
            }
            for item in view.revisions
        ],
        "conditions": [
            _condition("Available", available, view.phase, message, before, now),
            _condition("Progressing", releasing, "Releasing" if releasing == "True" else "AsExpected", "", before, now),
            *_by_gateway(way, before, now),
        ],
    }


def _by_gateway(way: RequestPath, before: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """Return the condition that tells whether requests go through the gateway, if the administrator configured one."""
    if not way.word:
        return []
    reason = "Followed" if way.leads else "OwnRouter"
    return [_condition("ByGateway", "True" if way.leads else "False", reason, way.word, before, now)]


def refused(message: str, before: Mapping[str, Any], now: float) -> Status:
    """Return the status of an object that cannot be run as a service, based on its former status."""
    kept = {name: value for name, value in before.items() if name != "conditions"}
    condition = _condition("Accepted", "False", "Refused", message, before, now)
    return {**kept, "phase": before.get("phase") or "Failing", "message": message, "conditions": [condition]}


def _condition(kind: str, status: str, reason: str, message: str, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    former = next((condition for condition in before.get("conditions", ()) if condition.get("type") == kind), None)
    since = former["lastTransitionTime"] if former is not None and former.get("status") == status else stamp(now)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


UID = f"{annotation.DOMAIN}/uid"
"""The label of a service that holds the uid of the object it comes from."""
