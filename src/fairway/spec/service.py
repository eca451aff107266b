"""The service document: which model, how many replicas, how it scales, and how a new version comes in. One type a field."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fairway.spec.endpoint import Endpoint
from fairway.spec.job import Code, Environment, Metadata
from fairway.spec.model import Amount, Duration, ModelReference, Name, Percent, SpecModel, VariableName
from fairway.spec.resources import Placement, Resources
from fairway.units import quantity


class ServingRuntime(StrEnum):
    """What answers the requests."""

    AUTO = "auto"
    """By the format of the model."""
    ONNX = "onnx"
    TORCH = "torch"
    SAVEDMODEL = "savedmodel"
    PYTHON = "python"
    COMMAND = "command"


class ServiceProtocol(StrEnum):
    """What the server of a command speaks."""

    HTTP = "http"
    """HTTP/1.1, and WebSockets."""
    HTTP2 = "http2"
    """HTTP/2 without TLS, by prior knowledge."""
    GRPC = "grpc"
    """The same; ready when `grpc.health.v1.Health/Check` says so, or when the server does not know that method."""


class ServiceReplicas(SpecModel):
    """How many replicas there are; the autoscaler moves between the two."""

    min: Annotated[int, Field(ge=0, le=1000)] = 1
    """Fewer than this only when there is no room; 0 lets an idle service end all of them."""
    max: Annotated[int, Field(ge=1, le=1000)] = 1
    """More than this are made only while a new version comes in."""

    @model_validator(mode="after")
    def _ordered(self) -> ServiceReplicas:
        if self.min > self.max:
            message = f"min {self.min} is more than max {self.max}; swap them"
            raise ValueError(message)
        return self


class Objective(SpecModel):
    """What is promised to those who ask."""

    p95: Duration | None = None
    """95 of 100 requests are answered within this."""


class Scaling(SpecModel):
    """How the number of replicas follows the load."""

    utilisation: Percent = "75%"
    """How busy a replica should be. A `command` is as busy as its cores, its GPUs or its requests at once, whichever is more."""
    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Requests at once with which a replica of a `command` is wholly busy; a server of ours says itself how busy it is."""
    cpu: Percent = "90%"
    """Replicas that use more than this of their cores for half a minute get others beside them; 0%: not looked at."""
    gpu: Percent = "90%"
    """The same for their GPUs, where those are not shared."""
    memory: Percent = "90%"
    """No replica goes while those there are use more than this of their memory; 0%: not looked at."""
    hold: Duration = "5m"
    """Replicas go only when fewer would have done for this long; longer where starting one takes long."""
    idle: Duration = "5m"
    """With `min: 0`: the last replica goes after this long without a request."""
    wake: Literal["requests", "all"] = "requests"
    """With `min: 0`: what starts a replica, and keeps it. requests: what asks the model or the command for something; the router
    itself answers health probes and scrapes of metrics. all: these too."""


class Batching(SpecModel):
    """How requests are put together, and when they are turned away."""

    mode: Literal["auto", "always", "never"] = "auto"
    """Whether rows of several requests run together. auto: where a proof at the start of a replica shows that each row gives the
    same alone and together, or the model's `fairway.json` declares it. always: declares it. never: requests run one by one."""
    max: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Rows of one batch at the most, where requests are batched; 1 runs each row alone."""
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Requests that wait at a replica at the most; more are answered 429 with `Retry-After`."""
    deadline: Duration = "30s"
    """A request that would be answered later than this is refused at once."""


class Sampling(SpecModel):
    """Requests and answers kept for later evaluation."""

    rate: Percent = "0%"
    """The part of the requests that is kept."""
    dataset: Name | None = None
    """The dataset that gets them; default: `NAME-requests`."""


class ServiceLogs(SpecModel):
    """What is logged of requests."""

    access: Percent = "1%"
    """The part of the requests that gets a line in the access log. Requests that failed are in it too, up to ten a second; 0%
    writes neither."""


class HeaderRule(SpecModel):
    """Who gets the new version in an A/B release, whatever the weights."""

    header: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9-]+$")]
    """The header's name."""
    value: Annotated[str, Field(max_length=1000)]
    """Its value, exactly."""


class Traffic(SpecModel):
    """How requests find their version."""

    sticky: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9-]*$")] = ""
    """A header whose value keeps its sender on one version during a release."""
    headers: tuple[HeaderRule, ...] = ()
    """During a release: requests with one of these go to the new version."""


class RolloutStrategy(StrEnum):
    """How a new version comes in."""

    ROLLING = "rolling"
    """Traffic moves with the replicas as they become ready."""
    BLUE_GREEN = "blue-green"
    """All replicas of the new version first; then all traffic at once."""
    CANARY = "canary"
    """Traffic moves in timed steps."""
    AB = "ab"
    """A part of the traffic for a time, to compare a metric; then all or nothing."""
    SHADOW = "shadow"
    """The new version answers copies of requests; its answers are not shown until it takes over."""


class RolloutStep(SpecModel):
    """One step of a canary, an A/B or a shadow release."""

    to: Percent
    """The new version's part of the traffic; of a shadow release, the part that is copied."""
    for_: Annotated[Duration, Field(alias="for")] = "10m"
    """How long it stays there before the next step."""


class MetricGuard(SpecModel):
    """A metric of the answers, compared between both versions by a test that may be read at any time."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """What is told of answers: the header `fairway-outcome: NAME=NUMBER` of a request to `/fairway/outcome`."""
    better: Literal["higher", "lower"] = "higher"
    """Which way is better."""
    confidence: Percent = "95%"
    """How sure the test must be before it says that one is better."""


class OutputsGuard(SpecModel):
    """How the answers to copies of requests are compared with the answers that clients got."""

    differ: Percent = "1%"
    """More answers than this differ: by the names, types or shapes of their outputs, or by a value; 100%: counted and shown."""
    tolerance: Amount = "0.001"
    """Values that are this much apart are the same, as a part of the largest value of their output in the client's answer."""
    classes: Percent = "100%"
    """More answers than this name another class: another label, or another output with the highest score; 100%: counted and
    shown. For a version that was trained anew: `differ: 100%` and `classes: 5%`."""


class Guard(SpecModel):
    """What sends a release back to the last good version."""

    errors: Percent = "1%"
    """More failed answers than this, and significantly more than the old version has."""
    client_errors: Percent = "1%"
    """More answers with 4xx than this (429 does not count), and significantly more than the old version has on the same traffic;
    100%: not compared."""
    p95: Duration | None = None
    """Slower than this."""
    slower: Amount = "2"
    """The 95th percentile is this many times that of the old version's, at the same time; 0: not compared."""
    non_finite: Percent = "1%"
    """More answers with NaN or infinity in an output than this, and significantly more than the old version has; 100%: not
    compared. Servers of a `command` do not count them; a shadow release with `outputs` sees them there too."""
    leak: Percent = "10%"
    """The memory of one of its replicas grew with the answers by more than this of its limit without levelling off, and the old
    version's did not. Without a limit or a request of memory: by as much as a replica of the old version holds. 0%: not looked
    at."""
    outputs: OutputsGuard | None = None
    """For shadow: answers to copies are compared with the answers that clients got, and too many differ."""
    metric: MetricGuard | None = None
    """Significantly worse by this metric."""
    ready: Duration = "10m"
    """No replica of the new version was ready within this."""


class RolloutPolicy(SpecModel):
    """How a new version comes in, and what sends it back."""

    strategy: RolloutStrategy = RolloutStrategy.ROLLING
    """rolling, blue-green, canary, ab or shadow."""
    steps: tuple[RolloutStep, ...] = ()
    """For canary, ab and shadow; default: 5 % and 50 %, ten minutes each (ab: 50 % for an hour)."""
    requests: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Of canary, ab and shadow: a step goes on only when the new version answered this many in it, else the guards cannot tell.
    With a metric, as many reports of both versions. 0: time alone counts."""
    patience: Duration = "1h"
    """How much longer than its time a step waits for them."""
    unjudged: Literal["pause", "continue"] = "pause"
    """What happens after that: the release is held until a user says `fairway rollout resume` or `undo`, or it goes on."""
    in_place: bool = False
    """Where there is no room for one replica more: an old one ends before each new one starts, and one is missing meanwhile.
    A service of one replica has none then, and requests wait in the router."""
    allow_signature_change: bool = False
    """Whether a model version may be released whose inputs or outputs break clients: other names, types, ranks or lengths."""
    guard: Guard = Guard()
    """What sends it back."""

    @model_validator(mode="after")
    def _steps_rise(self) -> RolloutPolicy:
        parts = [quantity.percent(step.to) for step in self.steps]
        if parts != sorted(parts):
            message = "has steps that go back; let `to` rise from step to step"
            raise ValueError(message)
        if self.steps and self.strategy in (RolloutStrategy.ROLLING, RolloutStrategy.BLUE_GREEN):
            message = f"has steps, and {self.strategy} knows none; use strategy: canary, or leave the steps out"
            raise ValueError(message)
        if self.in_place and self.strategy in (RolloutStrategy.BLUE_GREEN, RolloutStrategy.SHADOW):
            message = (
                f"has in_place, and {self.strategy} keeps the old replicas beside the new ones; use strategy: rolling or canary"
            )
            raise ValueError(message)
        return self


class ServiceSpec(SpecModel):
    """Everything that a service asks for."""

    model: ModelReference = ""
    """The model version: `mnist`, `mnist@7`, `mnist@champion`. It is pinned when the document is applied."""
    follow: bool = False
    """Whether a new version behind the model's alias starts a rollout by itself."""
    runtime: ServingRuntime = ServingRuntime.AUTO
    """What runs the model; auto goes by its format."""
    command: tuple[str, ...] = ()
    """Instead of a model: any HTTP server that listens on `$FAIRWAY_PORT`."""
    ready: Annotated[str, Field(max_length=1000, pattern=r"^(/.*)?$")] = ""
    """The path that answers 200 when a replica is ready; default: `/v2/health/ready` for a model, `/` for a command."""
    protocol: ServiceProtocol = ServiceProtocol.HTTP
    """What the command's server speaks: http, http2 or grpc. Clients may speak HTTP/1.1 and HTTP/2 to the service in any case."""
    code: Code = Code()
    """Files beside the command, or none."""
    environment: Environment = Environment()
    """Interpreter, requirements or image for the command and for runtimes that need a framework."""
    env: dict[VariableName, str] = {}
    """Variables of the replicas."""
    secrets: tuple[VariableName, ...] = ()
    """Names of secrets that become variables."""
    replicas: ServiceReplicas = ServiceReplicas()
    """How many."""
    objective: Objective = Objective()
    """What is promised."""
    scaling: Scaling = Scaling()
    """How the number follows the load."""
    batching: Batching = Batching()
    """How requests are put together."""
    sampling: Sampling = Sampling()
    """Requests kept for later evaluation."""
    logs: ServiceLogs = ServiceLogs()
    """What is logged of requests."""
    metrics: Annotated[str, Field(max_length=1000, pattern=r"^(/.*)?$")] = ""
    """Of a command: the path at which its replicas show metrics for Prometheus. The page of the service adds them together."""
    resources: Resources = Resources()
    """What each replica is promised."""
    limits: Resources = Resources()
    """What each replica may not exceed."""
    placement: Placement = Placement()
    """Where replicas should or must lie."""
    traffic: Traffic = Traffic()
    """How requests find their version."""
    rollout: RolloutPolicy = RolloutPolicy()
    """How a new version comes in."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Where it listens; 0: a free one, kept from then on."""
    endpoint: Endpoint = Endpoint()
    """How it is reached from outside: address, TLS, API keys, names, other origins. The default: this machine alone, no key."""
    hold: Duration = "60s"
    """How long a request waits for the first replica of a service that has none."""
    grace: Duration = "30s"
    """How long a replica may take to finish what it has."""
    queue: Name = "default"
    """Whose part of the machines the replicas take."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 100
    """Higher goes first; above jobs unless told otherwise."""


class ModelService(SpecModel):
    """A service document in the Kubernetes spelling."""

    api_version: Literal["fairway.dev/v1alpha1"] = "fairway.dev/v1alpha1"
    """The version of this schema."""
    kind: Literal["ModelService"] = "ModelService"
    """What the document describes."""
    metadata: Metadata
    """Name and labels."""
    spec: ServiceSpec
    """What is asked."""
