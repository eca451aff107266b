"""The service document: its model, its replicas, its scaling, and the rollout of new versions. One type per field."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fairway.spec.endpoint import ServiceEndpoint
from fairway.spec.job import CodeSource, DocumentMetadata, RuntimeEnvironment
from fairway.spec.resource import PlacementConstraints, ResourceAmounts
from fairway.spec.spec_model import Amount, Duration, ModelReference, Name, Percent, SpecModel, VariableName
from fairway.units import quantity


class ServingRuntime(StrEnum):
    """The server that answers the requests."""

    AUTO = "auto"
    """Chosen by the format of the model."""
    ONNX = "onnx"
    TORCH = "torch"
    SAVEDMODEL = "savedmodel"
    PYTHON = "python"
    COMMAND = "command"


class ServiceProtocol(StrEnum):
    """The protocol of a command's server."""

    HTTP = "http"
    """HTTP/1.1, and WebSockets."""
    HTTP2 = "http2"
    """HTTP/2 without TLS, by prior knowledge."""
    GRPC = "grpc"
    """HTTP/2 without TLS, for gRPC. A replica is ready when `grpc.health.v1.Health/Check` reports so, or when the server does not
    implement that method."""


class ServiceReplicas(SpecModel):
    """Number of replicas; the autoscaler chooses a number between the two bounds."""

    min: Annotated[int, Field(ge=0, le=1000)] = 1
    """Minimum number of replicas; there are fewer only when there is no room. 0 lets the last replica of an idle service stop."""
    max: Annotated[int, Field(ge=1, le=1000)] = 1
    """Maximum number of replicas; exceeded only during a rollout."""

    @model_validator(mode="after")
    def _ordered(self) -> ServiceReplicas:
        if self.min > self.max:
            message = f"min {self.min} is more than max {self.max}; swap them"
            raise ValueError(message)
        return self


class ServiceObjective(SpecModel):
    """Service-level objective."""

    p95: Duration | None = None
    """Target latency: 95 of 100 requests are answered within this time."""


class ScalingPolicy(SpecModel):
    """How the number of replicas follows the load."""

    utilisation: Percent = "75%"
    """Target utilisation of a replica. The utilisation of a `command` is that of its cores, its GPUs or its `concurrency`,
    whichever is highest."""
    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Number of concurrent requests at which a replica of a `command` is fully utilised. Fairway's model servers report their
    utilisation themselves."""
    cpu: Percent = "90%"
    """Add replicas when the existing ones have used more than this part of their cores for half a minute; 0%: disabled."""
    gpu: Percent = "90%"
    """The same for GPUs, unless they are shared."""
    memory: Percent = "90%"
    """Remove no replica while the existing ones use more than this part of their memory; 0%: disabled."""
    hold: Duration = "5m"
    """Remove replicas only after fewer would have been enough for this long. The time is longer where a replica takes long to
    start."""
    idle: Duration = "5m"
    """With `min: 0`: stop the last replica after this long without a request."""
    wake: Literal["requests", "all"] = "requests"
    """With `min: 0`: which requests start a replica and keep it running. requests: only requests for the model or the command;
    the router answers health probes and metrics scrapes itself. all: health probes and scrapes too."""


class BatchingPolicy(SpecModel):
    """How requests are batched, and when they are rejected."""

    mode: Literal["auto", "always", "never"] = "auto"
    """Whether rows of several requests are run together. auto: if a test when the replica starts shows that each row gives the
    same result alone and in a batch, or if the model's `fairway.json` declares it. always: declare it here, without a test.
    never: run requests one by one."""
    max: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Maximum number of rows in a batch, where requests are batched; 1 runs each row alone."""
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Maximum number of requests that wait at a replica; further requests get 429 with `Retry-After`."""
    deadline: Duration = "30s"
    """Reject a request at once if it would be answered later than this."""


class SamplingPolicy(SpecModel):
    """Sampling of requests and responses for later evaluation."""

    rate: Percent = "0%"
    """Fraction of the requests that is kept."""
    dataset: Name | None = None
    """The dataset in which samples are kept; default: `NAME-requests`."""


class ServiceLogs(SpecModel):
    """Logging of requests."""

    access: Percent = "1%"
    """Fraction of the requests written to the access log. Failed requests are logged too, up to ten per second; 0% disables
    both."""


class HeaderRoute(SpecModel):
    """A header that sends requests to the new version in an A/B release, regardless of the weights."""

    header: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9-]+$")]
    """Name of the header."""
    value: Annotated[str, Field(max_length=1000)]
    """Value of the header, compared exactly."""


class TrafficPolicy(SpecModel):
    """How requests are routed to versions."""

    sticky: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9-]*$")] = ""
    """A header that identifies a client: requests with the same value go to the same version during a release."""
    headers: tuple[HeaderRoute, ...] = ()
    """During a release, requests with one of these headers go to the new version."""


class RolloutStrategy(StrEnum):
    """How a new version is rolled out."""

    ROLLING = "rolling"
    """Traffic moves with the replicas as they become ready."""
    BLUE_GREEN = "blue-green"
    """All replicas of the new version start first; then all traffic moves at once."""
    CANARY = "canary"
    """Traffic moves in timed steps."""
    AB = "ab"
    """Part of the traffic moves for a time, to compare a metric; then all of it or none."""
    SHADOW = "shadow"
    """The new version gets copies of requests; its responses are discarded until it takes over."""


class RolloutStep(SpecModel):
    """One step of a canary, A/B or shadow release."""

    to: Percent
    """Part of the traffic sent to the new version; in a shadow release, the part that is copied to it."""
    for_: Annotated[Duration, Field(alias="for")] = "10m"
    """Duration of the step."""


class MetricGuard(SpecModel):
    """A metric of responses, compared between both versions by a sequential test, which may be evaluated at any time."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the metric, reported with the header `fairway-outcome: NAME=NUMBER` of a request to `/fairway/outcome`."""
    better: Literal["higher", "lower"] = "higher"
    """Whether higher or lower values are better."""
    confidence: Percent = "95%"
    """Confidence that the test must reach before it decides that one version is better."""


class OutputsGuard(SpecModel):
    """How responses to copied requests are compared with the responses that clients got."""

    differ: Percent = "1%"
    """Roll back when more responses than this differ in the names, types or shapes of their outputs, or in a value; 100%: only
    count and show them."""
    tolerance: Amount = "0.001"
    """Maximum difference of values that count as equal, as a fraction of the largest value of the same output in the client's
    response."""
    classes: Percent = "100%"
    """Roll back when more responses than this name another class: another label, or another output with the highest score; 100%:
    only count and show them. For a retrained version: `differ: 100%` and `classes: 5%`."""


class RolloutGuard(SpecModel):
    """Conditions under which a release is rolled back to the last good version."""

    errors: Percent = "1%"
    """Roll back when more responses than this fail, and significantly more than those of the old version."""
    client_errors: Percent = "1%"
    """Roll back when more responses than this have a 4xx status (429 does not count), and significantly more than those of the
    old version on the same traffic; 100%: disabled."""
    p95: Duration | None = None
    """Roll back when the 95th percentile of the latency is higher than this."""
    slower: Amount = "2"
    """Roll back when the 95th percentile of the latency is this many times that of the old version at the same time; 0:
    disabled."""
    non_finite: Percent = "1%"
    """Roll back when more responses than this have NaN or infinity in an output, and significantly more than those of the old
    version; 100%: disabled. Servers of a `command` do not count them; a shadow release with `outputs` detects them there too."""
    leak: Percent = "10%"
    """Roll back when the memory of a replica of the new version grew with its responses by more than this part of its limit
    without levelling off, and that of the old version did not. Without a memory limit or request, the growth is compared with the
    memory that a replica of the old version uses. 0%: disabled."""
    outputs: OutputsGuard | None = None
    """For shadow releases: roll back when too many responses to copied requests differ from those that clients got."""
    metric: MetricGuard | None = None
    """Roll back when the new version is significantly worse by this metric."""
    ready: Duration = "10m"
    """Roll back when no replica of the new version was ready within this time."""


class RolloutPolicy(SpecModel):
    """How a new version is rolled out, and when it is rolled back."""

    strategy: RolloutStrategy = RolloutStrategy.ROLLING
    """rolling, blue-green, canary, ab or shadow."""
    steps: tuple[RolloutStep, ...] = ()
    """Steps of a canary, ab or shadow release; default: 5 % and 50 %, ten minutes each (ab: 50 % for an hour)."""
    requests: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """For canary, ab and shadow: a step ends only after the new version has answered this many requests in it; with fewer, the
    guards cannot judge. With a metric, both versions also need this many reports. 0: only time counts."""
    patience: Duration = "1h"
    """How much longer than its duration a step waits for these requests."""
    unjudged: Literal["pause", "continue"] = "pause"
    """What happens when `patience` is over: the release is paused until a user runs `fairway rollout resume` or `undo`, or it
    continues."""
    in_place: bool = False
    """If there is no room for an additional replica, stop an old replica before each new one starts; one replica is missing
    meanwhile. A service with one replica has none then, and requests wait in the router."""
    allow_signature_change: bool = False
    """Allow the release of a model version whose inputs or outputs break clients: other names, types, ranks or lengths."""
    guard: RolloutGuard = RolloutGuard()
    """Conditions for a rollback."""

    @model_validator(mode="after")
    def _steps_rise(self) -> RolloutPolicy:
        parts = [quantity.percent(step.to) for step in self.steps]
        if parts != sorted(parts):
            message = "has steps that go down; increase `to` from step to step"
            raise ValueError(message)
        if self.steps and self.strategy in (RolloutStrategy.ROLLING, RolloutStrategy.BLUE_GREEN):
            message = f"has steps, but {self.strategy} does not support them; use strategy: canary, or leave the steps out"
            raise ValueError(message)
        if self.in_place and self.strategy in (RolloutStrategy.BLUE_GREEN, RolloutStrategy.SHADOW):
            message = (
                f"has in_place, but {self.strategy} keeps the old replicas next to the new ones; use strategy: rolling or canary"
            )
            raise ValueError(message)
        return self


class ServiceSpec(SpecModel):
    """Specification of a service."""

    model: ModelReference = ""
    """The model version: `mnist`, `mnist@7`, `mnist@champion`. It is resolved to a fixed version when the document is applied."""
    follow: bool = False
    """Start a rollout automatically when the model's alias moves to another version."""
    runtime: ServingRuntime = ServingRuntime.AUTO
    """The server that runs the model; auto chooses by the model's format."""
    command: tuple[str, ...] = ()
    """A command instead of a model: any HTTP server that listens on `$FAIRWAY_PORT`."""
    ready: Annotated[str, Field(max_length=1000, pattern=r"^(/.*)?$")] = ""
    """Path that answers 200 when a replica is ready; default: `/v2/health/ready` for a model, `/` for a command."""
    protocol: ServiceProtocol = ServiceProtocol.HTTP
    """Protocol of the command's server: http, http2 or grpc. Clients may use HTTP/1.1 and HTTP/2 with the service in any case."""
    code: CodeSource = CodeSource()
    """Code of the command, if it needs any."""
    environment: RuntimeEnvironment = RuntimeEnvironment()
    """Interpreter, requirements or container image for the command and for runtimes that need a framework."""
    env: dict[VariableName, str] = {}
    """Environment variables of the replicas."""
    secrets: tuple[VariableName, ...] = ()
    """Names of secrets to set as environment variables."""
    replicas: ServiceReplicas = ServiceReplicas()
    """Number of replicas."""
    objective: ServiceObjective = ServiceObjective()
    """Service-level objective."""
    scaling: ScalingPolicy = ScalingPolicy()
    """How the number of replicas follows the load."""
    batching: BatchingPolicy = BatchingPolicy()
    """How requests are batched."""
    sampling: SamplingPolicy = SamplingPolicy()
    """Sampling of requests for later evaluation."""
    logs: ServiceLogs = ServiceLogs()
    """Logging of requests."""
    metrics: Annotated[str, Field(max_length=1000, pattern=r"^(/.*)?$")] = ""
    """For a command: the path at which its replicas serve metrics for Prometheus. The metrics page of the service aggregates
    them."""
    resources: ResourceAmounts = ResourceAmounts()
    """Resources reserved for each replica."""
    limits: ResourceAmounts = ResourceAmounts()
    """Maximum resources of each replica."""
    placement: PlacementConstraints = PlacementConstraints()
    """Constraints on where replicas are placed."""
    traffic: TrafficPolicy = TrafficPolicy()
    """How requests are routed to versions."""
    rollout: RolloutPolicy = RolloutPolicy()
    """How a new version is rolled out."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port to listen on; 0: a free port, kept from then on."""
    endpoint: ServiceEndpoint = ServiceEndpoint()
    """How clients reach the service: address, TLS, API keys, host names, other origins. By default it listens on this machine
    only, without keys."""
    hold: Duration = "60s"
    """How long a request waits for the first replica of a service that has none."""
    grace: Duration = "30s"
    """How long a stopping replica may take to finish its requests."""
    queue: Name = "default"
    """The queue from whose share of the machines the replicas take their resources."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 100
    """Replicas with a higher priority are placed first. The default is above that of jobs."""


class ModelService(SpecModel):
    """A service document in the Kubernetes spelling."""

    api_version: Literal["fairway.dev/v1alpha1"] = "fairway.dev/v1alpha1"
    """The version of this schema."""
    kind: Literal["ModelService"] = "ModelService"
    """What the document describes."""
    metadata: DocumentMetadata
    """Name and labels."""
    spec: ServiceSpec
    """Specification of the service."""
