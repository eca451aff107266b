"""Builders of services, replicas and measurements for tests, with defaults for all fields that a test does not set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairway.plan.service import service_command
from fairway.plan.service.service_plan import ServiceMeasurements, ServiceSample
from fairway.spec.service import ServiceSpec
from fairway.state.job import JobKey, SubmissionOrigin
from fairway.state.service import ReplicaPhase, RevisionPhase, RolloutPhase, ServiceKey, ServiceReplica, ServiceState
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, ReplicaLoad, RouteLoad

KEY = ServiceKey("default", "mnist")


def a_service_spec(version: object = 1, **fields: object) -> ServiceSpec:
    """Return a document for a version of the model `mnist`, with one to ten replicas."""
    return ServiceSpec.model_validate({"model": f"mnist@{version}", "replicas": {"min": 1, "max": 10}, **fields})


def apply_version(service: ServiceState | None, version: int = 1, now: float = 0.0, **fields: object) -> ServiceState:
    """Return the service after such a document was applied."""
    spec = a_service_spec(version, **fields)
    return service_command.applied(service, KEY, spec, spec.model, "onnx", SubmissionOrigin(), {}, now)


def a_service(wanted: int = 1, **fields: object) -> ServiceState:
    """Return a service whose first revision serves with `wanted` replicas."""
    spec = a_service_spec(**fields)
    service = service_command.applied(None, KEY, spec, spec.model, "onnx", SubmissionOrigin(), {}, 0.0)
    good = replace(service.revisions[0], phase=RevisionPhase.GOOD)
    rollout = replace(service.rollout, phase=RolloutPhase.DONE, finished=1.0) if service.rollout else None
    scale = replace(service.scale, wanted=wanted)
    return replace(service, stable=1, revisions=(good,), rollout=rollout, scale=scale, replicas_made=wanted)


def a_replica(
    number: int,
    revision: int = 1,
    phase: ReplicaPhase = ReplicaPhase.READY,
    since: float = 0.0,
    *,
    failed: bool = False,
    message: str = "",
    started: float | None = None,
) -> ServiceReplica:
    """Return a replica with an address."""
    return ServiceReplica(
        KEY,
        revision,
        number,
        JobKey("default", f"mnist-{number}"),
        phase=phase,
        since=since,
        started=started,
        address=f"127.0.0.1:{40000 + number}",
        message=message,
        failed=failed,
    )


def latency_bars(answers: Mapping[float, int]) -> tuple[int, ...]:
    """Return the latency histogram of a router for these answers, given as number by seconds."""
    bars = [0] * (len(LATENCY_BOUNDS) + 1)
    for seconds, count in answers.items():
        bar = next((index for index, bound in enumerate(LATENCY_BOUNDS) if bound >= seconds), len(LATENCY_BOUNDS))
        bars[bar] += count
    return tuple(bars)


def service_looks(
    seconds: float,
    rate: float,
    *,
    served: float = 10.0,
    busy: float = 0.5,
    replicas: Sequence[str] = ("r1-1",),
    start: float = 0.0,
    epoch: str = "a",
    measured: ServiceMeasurements = ServiceMeasurements(),
) -> ServiceMeasurements:
    """Return samples every two seconds with `rate` requests per second.

    Each replica is busy for the fraction `busy` of the time, and serves `served` requests per busy second.
    """
    for step in range(int(seconds / 2) + 1):
        passed = 2.0 * step
        time = start + passed
        route = RouteLoad(time, epoch=epoch, arrived=round(rate * passed), backends={name: BackendLoad() for name in replicas})
        load = ReplicaLoad(time, served=round(served * busy * passed), busy_seconds=busy * passed)
        measured = measured.add(ServiceSample(time, route, dict.fromkeys(replicas, load)))
    return measured
