"""A replica as a run: its command, resources and name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairway.spec.job import JobSpec, MetricSource, RestartPolicy, RetentionPolicy, RoleReplicas, TaskRole, TrainingFramework
from fairway.spec.service import ServiceSpec, ServingRuntime
from fairway.state.job import JobKey, JobState
from fairway.state.model import IN_REPLICA
from fairway.state.service import ServiceKey, ServiceReplica, ServiceRevision, ServiceState
from fairway.units import names, quantity

OWN_NAMESPACE = ".services"
"""Suffix of the service's namespace for its replicas' runs. Documents cannot name a namespace with a dot, so they never mix."""
_NAME = re.compile(r"(.+)-r\d+-\d+")
ROLE = "replica"
READY_PATH = "/v2/health/ready"
SERVICE_LABEL = "fairway.dev/service"
REVISION_LABEL = "fairway.dev/revision"
SAMPLES_LABEL = "fairway.dev/samples"
"""The dataset that receives the requests sampled by the replica."""
KEPT = "7d"
"""Retention of a replica's logs and record after its end."""


def replica_key(service: ServiceKey, revision: int, number: int) -> JobKey:
    """Return the key of a replica's run, `default.services/mnist-r3-7`."""
    return JobKey(f"{service.namespace}{OWN_NAMESPACE}", f"{service.name}-r{revision}-{number}")


def service_of(run: JobKey) -> str:
    """Return the service of a replica's run; empty when the run is a job."""
    if not run.namespace.endswith(OWN_NAMESPACE):
        return ""
    match = _NAME.fullmatch(run.name)
    return match[1] if match else run.name


def highest_number(service: ServiceKey, runs: Iterable[JobKey]) -> int:
    """Return the highest replica number among these runs; 0 when none belongs to the service.

    Runs are kept after their service is deleted. A new service of the same name continues the numbers, so that it does not
    collide with finished runs.
    """
    namespace, pattern = f"{service.namespace}{OWN_NAMESPACE}", re.compile(rf"{re.escape(service.name)}-r\d+-(\d+)")
    matches = [pattern.fullmatch(run.name) for run in runs if run.namespace == namespace]
    return max((int(match[1]) for match in matches if match), default=0)


def new_replica(service: ServiceState, revision: int, number: int, now: float) -> ServiceReplica:
    """Return a new replica that has not been started yet."""
    key = replica_key(service.key, revision, number)
    return ServiceReplica(service.key, revision, number, key, since=now, created=now)


def replica_run(service: ServiceState, revision: ServiceRevision, replica: ServiceReplica, python: str) -> JobState:
    """Return the run of a replica. `python` is the interpreter in which Fairway's server is installed."""
    spec = revision.spec
    role = TaskRole(
        replicas=RoleReplicas(min=1, max=1),
        processes=1,
        command=spec.command or _server(revision, python),
        env={**spec.env, "FAIRWAY_PORT": "{{port}}"},
        resources=spec.resources,
        limits=spec.limits,
        placement=spec.placement,
    )
    spec_of_run = JobSpec(
        framework=TrainingFramework.COMMAND,
        code=spec.code,
        environment=spec.environment,
        secrets=spec.secrets,
        data={"model": f"model://{revision.model}"} if revision.model else {},
        roles={ROLE: role},
        grace=spec.grace,
        # A replica that ends is replaced by a new one; its run is not restarted.
        restart=RestartPolicy(max=0),
        queue=spec.queue,
        priority=spec.priority,
        keep=RetentionPolicy(logs=KEPT, record=KEPT),
        # The output of a server contains no training metrics.
        metrics=MetricSource(auto=False),
    )
    return JobState(
        key=replica.run,
        series=f"{service.key.name}-r{revision.number}",
        number=replica.number,
        spec=spec_of_run,
        origin=revision.origin,
        labels={SERVICE_LABEL: service.key.name, REVISION_LABEL: str(revision.number), **_sampled(service, spec)},
        created=replica.created,
    )


def ready_path(spec: ServiceSpec) -> str:
    """Return the path that responds with 200 when a replica is ready."""
    return spec.ready or ("/" if spec.command else READY_PATH)


def _server(revision: ServiceRevision, python: str) -> tuple[str, ...]:
    spec = revision.spec
    name, _, version = revision.model.partition("@")
    words = [
        # -I: the copy of the runtime library on every task's path must not shadow the full Fairway package.
        *(python, "-I", "-m", "fairway.serving.replica"),
        *("--folder", "{{data.model}}"),
        # Requests use the model's name without its namespace.
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
        # Left out where it is the default: a runtime image may contain an older server without this option.
        words += ["--batching", spec.batching.mode]
    if revision.model_format != IN_REPLICA:
        # The user consented when the version was registered; the registry accepts no such version otherwise.
        words.append("--allow-pickle")
    if _needs_framework(revision):
        # Resolved on the PATH of the run's environment.
        words += ["--python", "python"]
    rate = quantity.percent(spec.sampling.rate)
    if rate > 0:
        words += ["--sample-folder", "{{shared_dir}}/requests", "--sample-rate", quantity.show_number(rate)]
    return tuple(words)


def _sampled(service: ServiceState, spec: ServiceSpec) -> dict[str, str]:
    if not quantity.percent(spec.sampling.rate) or spec.command:
        return {}
    return {SAMPLES_LABEL: spec.sampling.dataset or names.suggest_name(f"{service.key.name}-requests")}


def _needs_framework(revision: ServiceRevision) -> bool:
    if revision.spec.runtime is ServingRuntime.AUTO:
        return revision.model_format != IN_REPLICA
    return revision.spec.runtime is not ServingRuntime.ONNX
