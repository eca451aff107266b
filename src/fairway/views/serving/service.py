"""Views of services: endpoint, replicas, and the rule that sets their number."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.plan.service.autoscaler import would_change
from fairway.plan.service.measurement import ServiceMeasurements, arrival_rate, histogram, percentile
from fairway.plan.service.rollout import is_active
from fairway.state.fault import ANSWERING, WorkFault
from fairway.state.service import ReplicaPhase, ServiceRecord, ServiceReplica, ServiceRevision, ServiceState
from fairway.state.serving.batching_verdict import BatchingBasis
from fairway.state.serving.load import RouteLoad
from fairway.units import quantity
from fairway.units.notebook_card import NotebookView
from fairway.views.fault import FaultView, fault_line, fault_views
from fairway.views.serving.access import AccessView, access_text
from fairway.views.serving.endpoint import EndpointView
from fairway.views.serving.release import ReleaseView, release_line, release_view
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table

WINDOW = 60.0
"""Window in seconds over which rates and latencies are computed."""


class ReplicaView(msgspec.Struct, frozen=True):
    """A replica."""

    name: str
    revision: int
    phase: str
    since: float
    run: str
    """The run behind the replica."""
    address: str = ""
    message: str = ""
    in_flight: int = 0
    answered: int = 0


class RevisionView(msgspec.Struct, frozen=True):
    """A revision of a service."""

    number: int
    serves: str
    """The model version or the command."""
    phase: str
    created: float
    reason: str = ""
    failures: int = 0
    """Number of its replicas in a row that ended by themselves."""
    batching: str = ""
    """Whether its replicas batch requests and why, in words; empty if unknown."""


class ServiceView(NotebookView, frozen=True):
    """A service with all its details."""

    name: str
    namespace: str
    phase: str
    """`Ready`, `Starting`, `Releasing`, `Idle`, `Failing`, `Deleting`."""
    serves: str
    """The model version that is served now, or the command."""
    revision: int
    """Number of the serving revision; 0 before the first was ready."""
    url: str
    example: str
    example_path: str
    example_body: str
    ready_replicas: int
    wanted_replicas: int
    min_replicas: int
    max_replicas: int
    floor: int
    rule: str
    """The rule that set the number of replicas."""
    why: str
    rate: float
    """Requests per second over the last minute."""
    p95_ms: float | None
    failed: int
    """Number of failed requests since the router started."""
    held: int
    """Number of requests that wait for the first replica."""
    message: str
    created: float
    follows: bool
    replicas: tuple[ReplicaView, ...] = ()
    revisions: tuple[RevisionView, ...] = ()
    release: ReleaseView | None = None
    router: str = ""
    """The service's router, if there is a choice."""
    faults: tuple[FaultView, ...] = ()
    """Operations for the service that currently fail and are retried."""
    outcome_token: str = ""
    """Token that reports of outcomes must carry; empty where it is withheld."""
    metric: str = ""
    """The outcome that a release guard compares."""
    batching: str = ""
    """Whether requests are batched and why, in words; empty: not known."""
    access: AccessView = AccessView()
    """The protection of its port."""
    moving: bool = False
    """Whether a change of its address, TLS or access rules is not in force yet."""


class ServiceList(msgspec.Struct, frozen=True):
    """Services, in order of name."""

    services: tuple[ServiceView, ...]


class ServiceExplanationView(NotebookView, frozen=True):
    """The rule that set the number of replicas of a service, and what would change it."""

    name: str
    wanted: int
    ready: int
    rule: str
    why: str
    would_change: str
    message: str = ""
    faults: tuple[FaultView, ...] = ()
    batching: str = ""
    """Whether requests are batched and why, in words; empty: not known."""
    batching_change: str = ""
    """How to change that; empty if there is no reason to."""
    warnings: tuple[str, ...] = ()
    """Present or upcoming problems of the port's protection, each with its fix."""
    release: ReleaseView | None = None
    """The current release, with the findings of its guards."""


def service_view(
    record: ServiceRecord, measured: ServiceMeasurements, endpoint: EndpointView, faults: Sequence[WorkFault] = ()
) -> ServiceView:
    """Return the view of a service."""
    service = record.service
    route = measured.last.route if measured.last else None
    live = [replica for replica in record.replicas if replica.phase is not ReplicaPhase.GONE]
    ready = sum(replica.phase is ReplicaPhase.READY for replica in live)
    serving = _serving(service)
    p95 = percentile(histogram(measured, None, WINDOW), 0.95)
    return ServiceView(
        name=service.key.name,
        namespace=service.key.namespace,
        phase="Failing" if _fails(faults, endpoint) and not service.deleting else _phase(service, ready),
        serves=_serves(serving) if serving else "",
        revision=service.stable,
        url=endpoint.url,
        example=endpoint.example,
        example_path=endpoint.example_path,
        example_body=endpoint.example_body,
        ready_replicas=ready,
        wanted_replicas=service.scale.wanted,
        min_replicas=service.spec.replicas.min,
        max_replicas=service.spec.replicas.max,
        floor=service.floor,
        rule=service.scale.rule,
        why=service.scale.why,
        rate=round(arrival_rate(measured, WINDOW) or 0.0, 2),
        p95_ms=round(1000 * p95, 3) if p95 is not None else None,
        failed=sum(load.failed for load in route.revisions.values()) if route else 0,
        held=route.held if route else 0,
        message=service.message or "; ".join(fault.text for fault in faults),
        created=service.created,
        follows=service.spec.follow,
        replicas=tuple(_replica(replica, route) for replica in live),
        revisions=tuple(
            RevisionView(
                revision.number,
                _serves(revision),
                revision.phase,
                revision.created,
                revision.reason,
                revision.failures,
                _batching(revision),
            )
            for revision in service.revisions
        ),
        release=release_view(service) if is_active(service.rollout) else None,
        faults=fault_views(faults),
        batching=_batching(serving),
    )


def why_service_view(record: ServiceRecord, faults: Sequence[WorkFault] = ()) -> ServiceExplanationView:
    """Return the rule that set the number of replicas, and what would change it."""
    service = record.service
    ready = sum(replica.phase is ReplicaPhase.READY for replica in record.replicas)
    scale = service.scale
    serving = _serving(service)
    return ServiceExplanationView(
        service.key.name,
        scale.wanted,
        ready,
        scale.rule,
        scale.why,
        would_change(service.spec, scale),
        service.message,
        fault_views(faults),
        _batching(serving),
        _batching_change(serving),
        release=release_view(service) if is_active(service.rollout) and service.stable else None,
    )


def services_text(view: ServiceList, now: float, page: TextPage) -> str:
    """Return a table with one line per service."""
    if not view.services:
        return "no services; `fairway serve MODEL` makes one\n"
    rows = [
        [
            service.name,
            service.phase,
            service.serves,
            f"{service.ready_replicas}/{service.wanted_replicas}",
            f"{service.rate:g}",
            _milliseconds(service.p95_ms),
            service.url,
            phrase.age(service.created, now),
        ]
        for service in view.services
    ]
    columns = (
        Column("NAME"), Column("PHASE", phase=True), Column("SERVES", loose=True), Column("READY", right=True),
        Column("REQ/S", right=True), Column("P95", right=True), Column("URL"), Column("AGE", right=True),
    )  # fmt: skip
    return table(columns, rows, page)


def service_text(view: ServiceView, now: float, page: TextPage) -> str:
    """Return the detail page of a service."""
    bounds = f"{view.min_replicas} to {view.max_replicas}" if view.min_replicas != view.max_replicas else str(view.max_replicas)
    lines = [
        ("service", f"{page.paint(view.name, 'bold')}  {page.phase(view.phase)}"),
        ("serves", view.serves + ("  (follows its model)" if view.follows else "")),
        ("url", view.url or "not yet"),
        ("router", view.router),
        ("replicas", f"{view.ready_replicas} ready, {view.wanted_replicas} wanted ({bounds} allowed): {view.why or view.rule}"),
        ("access", access_text(view.access, now)),
        *(("warning", warning) for warning in view.access.warnings),
        ("load", _load(view)),
        ("batching", view.batching),
        ("release", release_line(view.release) if view.release else ""),
        *(("guard", sentence) for sentence in (view.release.findings if view.release else ())),
        ("message", "" if view.faults else view.message),
        *(("failing", fault_line(fault, now)) for fault in view.faults),
        ("try", view.example),
        ("report", _report(view)),
    ]
    text = "".join(f"{name + ':':10}{value}\n" for name, value in lines if value)
    if view.replicas:
        text += "\n" + table(
            (
                Column("REPLICA"), Column("PHASE", phase=True), Column("FOR", right=True), Column("IN FLIGHT", right=True),
                Column("ANSWERED", right=True), Column("ADDRESS"), Column("MESSAGE", loose=True),
            ),
            [
                [
                    *(item.name, item.phase, phrase.age(item.since, now)),
                    *(str(item.in_flight), f"{item.answered:,}", item.address, item.message),
                ]
                for item in view.replicas
            ],
            page,
        )  # fmt: skip
    if len(view.revisions) > 1:
        rows = [
            [f"r{item.number}", item.serves, item.phase, phrase.age(item.created, now), item.reason]
            for item in reversed(view.revisions)
        ]
        columns = (Column("REVISION"), Column("SERVES"), Column("PHASE"), Column("AGE", right=True), Column("REASON", loose=True))
        text += "\n" + table(columns, rows, page)
    return text


def _report(view: ServiceView) -> str:
    """Return a command to paste with which a client reports the outcome of a reply."""
    if not (view.url and view.outcome_token and view.metric):
        return ""
    outcome = f"-H 'fairway-revision: {view.revision}' -H 'fairway-outcome: {view.metric}=1'"
    return f"curl -X POST -H 'Authorization: Bearer {view.outcome_token}' {outcome} {view.url}/fairway/outcome"


def why_service_text(view: ServiceExplanationView, now: float, page: TextPage) -> str:
    """Return the rule in words, and what would change the number of replicas."""
    lines = [
        f"{page.paint(view.name, 'bold')} has {view.ready} of {phrase.count(view.wanted, 'replica')} ready",
        f"why {view.wanted}: {view.why or view.rule} (rule: {view.rule})",
        f"what would change it: {view.would_change}",
    ]
    if view.message:
        lines.append(f"problem: {view.message}")
    if view.batching:
        lines.append(f"batching: {view.batching}")
    if view.batching_change:
        lines.append(f"what would change that: {view.batching_change}")
    if view.release:
        lines.append(f"release: {release_line(view.release)}")
        lines.extend(f"guard: {sentence}" for sentence in view.release.findings)
    lines.extend(fault_line(fault, now) for fault in view.faults)
    lines.extend(f"warning: {warning}" for warning in view.warnings)
    return "\n".join(lines) + "\n"


def change_sentence(before: ServiceState | None, after: ServiceState) -> str:
    """Return what an apply would do, in words."""
    name = after.key.name
    if before is None:
        return f"the service {name} would be created: {_serves(after.revisions[-1])}"
    if after == before:
        return f"the service {name} would be left alone: it is as asked for"
    if after.revisions and (not before.revisions or after.revisions[-1].number != before.revisions[-1].number):
        strategy = after.spec.rollout.strategy
        return f"the service {name} would release {_serves(after.revisions[-1])} as r{after.revisions[-1].number} ({strategy})"
    return f"the service {name} would be changed; what it serves stays"


def _fails(faults: Sequence[WorkFault], endpoint: EndpointView) -> bool:
    """Whether a fault prevents replies: the service has no port yet, or its port does not answer."""
    return any(fault.work == ANSWERING for fault in faults) or (bool(faults) and not endpoint.url)


def _phase(service: ServiceState, ready: int) -> str:
    if service.deleting:
        return "Deleting"
    if service.stable and is_active(service.rollout):
        return "Releasing" if ready else "Failing"
    if ready:
        return "Ready"
    if service.stable and not service.scale.wanted:
        return "Idle"
    return "Failing" if service.message else "Starting"


def _serves(revision: ServiceRevision) -> str:
    return revision.model or " ".join(revision.spec.command)


def _serving(service: ServiceState) -> ServiceRevision | None:
    """Return the serving revision; before any was ready, the newest."""
    return service.revision(service.stable) or (service.revisions[-1] if service.revisions else None)


def _batching(revision: ServiceRevision | None) -> str:
    return str(revision.batching) if revision is not None and revision.batching is not None else ""


def _batching_change(revision: ServiceRevision | None) -> str:
    verdict = revision.batching if revision is not None else None
    if verdict is None or verdict.basis is not BatchingBasis.UNKNOWN:
        return ""
    return "if the model computes each row independently, declare it: batching: {mode: always}, or fairway serve --batching"


def _replica(replica: ServiceReplica, route: RouteLoad | None) -> ReplicaView:
    load = route.backends.get(replica.name) if route else None
    return ReplicaView(
        replica.name,
        replica.revision,
        replica.phase,
        replica.since,
        str(replica.run),
        replica.address,
        replica.message,
        load.in_flight if load else 0,
        load.answered if load else 0,
    )


def _load(view: ServiceView) -> str:
    parts = [f"{view.rate:g} requests a second"]
    if view.p95_ms is not None:
        parts.append(f"95 of 100 within {_milliseconds(view.p95_ms)}")
    if view.failed:
        parts.append(f"{view.failed:,} failed")
    if view.held:
        parts.append(f"{phrase.count(view.held, 'request')} held")
    return ", ".join(parts)


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2g}ms" if value < 10 else quantity.show_seconds(value / 1000)
