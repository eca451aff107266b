"""Where requests to a service go: the one value that every router understands."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256

from fairway.state.access import Access

WHOLE = 10_000
"""Weights are parts of this."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A replica that takes requests."""

    name: str
    """The replica's name, unique in the service for ever."""
    revision: int
    address: str
    """`127.0.0.1:40123`."""
    protocol: str = ""
    """What a server of the user's speaks: `http` (HTTP/1.1, WebSockets), `http2` or `grpc` (HTTP/2 without TLS). Empty: a replica
    of ours, which takes calls of gRPC over HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class HeaderMatch:
    """Requests with this header go to this revision, whatever the weights."""

    header: str
    value: str
    revision: int


@dataclass(frozen=True, slots=True)
class Mirror:
    """A copy of some requests goes to another revision; its answers are measured and thrown away."""

    revision: int
    share: int = WHOLE
    """Parts of `WHOLE`."""
    tolerance: float | None = None
    """Its answers are compared with those that clients got, and values that are this much apart are the same; None: they are
    only measured."""


@dataclass(frozen=True, slots=True)
class RouteObservation:
    """What a router shows of its service, and which requests are probes."""

    model: str = ""
    """The name of the model; empty for a command."""
    version: str = ""
    """Its version in the revision that serves."""
    ready: str = ""
    """The path that answers 200 when a replica of a command is ready."""
    metrics: str = ""
    """Where replicas show their metrics; empty: nowhere."""
    probes_wake: bool = False
    """Whether health probes and scrapes count as requests, so that they wake a service at zero."""
    asleep: bool = False
    """The service has no replica because nothing asks for one. A request starts one and waits for it."""
    access: int = 0
    """The part of the requests in the access log, in parts of `WHOLE`. Failures are in it in any case."""


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """Routes of one service."""

    service: str
    """`default/mnist`."""
    backends: tuple[Backend, ...] = ()
    """Only those that may get new requests; one that is gone from here finishes what it has."""
    weights: tuple[tuple[int, int], ...] = ()
    """(revision, parts of `WHOLE`). A revision without a backend gives its part to the others."""
    matches: tuple[HeaderMatch, ...] = ()
    """Looked at first, in order. One whose revision has no backend does not count."""
    sticky: str = ""
    """A header whose value keeps its sender on one revision while the weights stay; growing a revision's part moves only
    those who must move."""
    mirror: Mirror | None = None
    port: int = 0
    """Where to listen; 0: any, kept from the first time on."""
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    """Names by which clients may ask, beside those of loopback, where it listens on loopback; `*`: any."""
    hold_seconds: float = 60.0
    """How long a request waits when there is no backend at all."""
    hold_limit: int = 1_000
    """How many may wait so; more are answered 503 with `Retry-After`."""
    retry_statuses: tuple[int, ...] = (502, 503)
    """Answers of a backend that are tried once more on another, for requests that are safe to repeat."""
    observed: RouteObservation = RouteObservation()
    """What the router shows of the service."""
    access: Access | None = None
    """Who may ask, and by which certificate; None: everybody who reaches the port, without TLS."""


@dataclass(frozen=True, slots=True)
class RouteTrouble:
    """What is wrong with the processes or the socket of a service's router."""

    message: str
    answers: bool
    """Whether requests are answered nevertheless."""
    lacks_process: bool = True
    """Whether a process has ended that the next `put` of the plan starts again."""


def outcome_token(secret: str) -> str:
    """The token for reports of outcomes, made of what only the router and its operator know. It opens nothing else."""
    return hmac.new(secret.encode(), b"fairway-outcome", sha256).hexdigest()[:40]
