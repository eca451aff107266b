"""A replica as a run: what it executes, with what, and how it is called."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairway.spec.job import Framework, JobSpec, Keep, Metrics, Replicas, Restart, Role
from fairway.spec.service import ServiceSpec, ServingRuntime
from fairway.state.job import Job, JobKey
from fairway.state.model import IN_REPLICA
from fairway.state.service import Replica, Revision, Service, ServiceKey
from fairway.units import names, quantity

OWN_NAMESPACE = ".services"
"""Follows the service's namespace in that of its replicas. No document can name one with a dot, so they never mix."""
_NAME = re.compile(r"(.+)-r\d+-\d+")
ROLE = "replica"
READY_PATH = "/v2/health/ready"
SERVICE_LABEL = "fairway.dev/service"
REVISION_LABEL = "fairway.dev/revision"
SAMPLES_LABEL = "fairway.dev/samples"
"""The dataset that gets the requests which the replica samples."""
KEPT = "7d"
"""How long logs and record of a replica stay after its end."""


def replica_key(service: ServiceKey, revision: int, number: int) -> JobKey:
    """`default.services/mnist-r3-7`."""
    return JobKey(f"{service.namespace}{OWN_NAMESPACE}", f"{service.name}-r{revision}-{number}")


def service_of(run: JobKey) -> str:
    """The service whose replica a run is; empty when it is a job."""
    if not run.namespace.endswith(OWN_NAMESPACE):
        return ""
    match = _NAME.fullmatch(run.name)
    return match[1] if match else run.name


def highest_number(service: ServiceKey, runs: Iterable[JobKey]) -> int:
    """The highest number of a replica among these runs; 0 when none is the service's.

    Runs are kept after their service is gone. One that takes its name counts on from there, or it would meet their ends.
    """
    namespace, pattern = f"{service.namespace}{OWN_NAMESPACE}", re.compile(rf"{re.escape(service.name)}-r\d+-(\d+)")
    found = [pattern.fullmatch(run.name) for run in runs if run.namespace == namespace]
    return max((int(match[1]) for match in found if match), default=0)


def new_replica(service: Service, revision: int, number: int, now: float) -> Replica:
    """A replica that is about to be made."""
    key = replica_key(service.key, revision, number)
    return Replica(service.key, revision, number, key, since=now, created=now)


def replica_run(service: Service, revision: Revision, replica: Replica, python: str) -> Job:
    """The run that is the replica. `python` is the interpreter that has Fairway's own server."""
    spec = revision.spec
    role = Role(
        replicas=Replicas(min=1, max=1),
        processes=1,
        command=spec.command or _server(revision, python),
        env={**spec.env, "FAIRWAY_PORT": "{{port}}"},
        resources=spec.resources,
        limits=spec.limits,
        placement=spec.placement,
    )
    asked = JobSpec(
        framework=Framework.COMMAND,
        code=spec.code,
        environment=spec.environment,
        secrets=spec.secrets,
        data={"model": f"model://{revision.model}"} if revision.model else {},
        roles={ROLE: role},
        grace=spec.grace,
        # A replica that ends is replaced by another; it does not start again by itself.
        restart=Restart(max=0),
        queue=spec.queue,
        priority=spec.priority,
        keep=Keep(logs=KEPT, record=KEPT),
        # What a server prints is no training.
        metrics=Metrics(auto=False),
    )
    return Job(
        key=replica.run,
        series=f"{service.key.name}-r{revision.number}",
        number=replica.number,
        spec=asked,
        origin=revision.origin,
        labels={SERVICE_LABEL: service.key.name, REVISION_LABEL: str(revision.number), **_sampled(service, spec)},
        created=replica.created,
    )


def ready_path(spec: ServiceSpec) -> str:
    """The path that answers 200 when a replica is ready."""
    return spec.ready or ("/" if spec.command else READY_PATH)


def _server(revision: Revision, python: str) -> tuple[str, ...]:
    spec = revision.spec
    name, _, version = revision.model.partition("@")
    words = [
        # -I: the copy of the runtime library that every task has on its path must not hide the whole of Fairway.
        *(python, "-I", "-m", "fairway.serving.replica"),
        *("--folder", "{{data.model}}"),
        # Requests name the model alone, whatever namespace it is of.
        *("--name", name.rpartition("/")[2]),
        *("--version", version),
        *("--format", revision.model_format),
        *("--port", "{{port}}"),
        *("--runtime", str(spec.runtime)),
        *("--max-batch", str(spec.batching.max)),
        *("--max-queue", str(spec.batching.queue)),
        *("--deadline", quantity.show_number(quantity.seconds(spec.batching.deadline))),
    ]
    if spec.batching.mode != "auto":
        # Left out where it is the default: a runtime image may hold an older server that does not know it.
        words += ["--batching", spec.batching.mode]
    if revision.model_format != IN_REPLICA:
        # Consent was given when the version was registered; the registry keeps no such version without it.
        words.append("--allow-pickle")
    if _needs_framework(revision):
        # Found on the path of the run's environment.
        words += ["--python", "python"]
    rate = quantity.percent(spec.sampling.rate)
    if rate > 0:
        words += ["--sample-folder", "{{shared_dir}}/requests", "--sample-rate", quantity.show_number(rate)]
    return tuple(words)


def _sampled(service: Service, spec: ServiceSpec) -> dict[str, str]:
    if not quantity.percent(spec.sampling.rate) or spec.command:
        return {}
    return {SAMPLES_LABEL: spec.sampling.dataset or names.suggest_name(f"{service.key.name}-requests")}


def _needs_framework(revision: Revision) -> bool:
    if revision.spec.runtime is ServingRuntime.AUTO:
        return revision.model_format != IN_REPLICA
    return revision.spec.runtime is not ServingRuntime.ONNX
