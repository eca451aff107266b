"""Routes of a service: the value that every router implementation understands."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256

from fairway.state.serving.access import AccessRules

WHOLE = 10_000
"""Sum of all weights; weights are parts of this number."""


@dataclass(frozen=True, slots=True)
class RouteBackend:
    """A replica that accepts requests."""

    name: str
    """Name of the replica, never reused within the service."""
    revision: int
    address: str
    """`127.0.0.1:40123`."""
    protocol: str = ""
    """Protocol of a user's own server: `http` (HTTP/1.1, WebSockets), `http2` or `grpc` (HTTP/2 without TLS). Empty: a Fairway
    replica, which accepts gRPC calls over HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class RouteHeaderMatch:
    """Sends requests with this header to a revision, regardless of the weights."""

    header: str
    value: str
    revision: int


@dataclass(frozen=True, slots=True)
class RouteMirror:
    """Sends copies of some requests to another revision; its answers are measured and discarded."""

    revision: int
    share: int = WHOLE
    """Part of the requests that is copied, in parts of `WHOLE`."""
    tolerance: float | None = None
    """Maximum difference of values that count as equal when its answers are compared with those that clients got. None: answers
    are not compared, only measured."""


@dataclass(frozen=True, slots=True)
class RouteObservation:
    """What a router reports about its service, and which requests count as probes."""

    model: str = ""
    """Name of the model; empty for a command."""
    version: str = ""
    """Version of the model in the serving revision."""
    ready: str = ""
    """Path that answers 200 when a replica of a command is ready."""
    metrics: str = ""
    """Path of the replicas' metrics; empty: none."""
    probes_wake: bool = False
    """Whether health probes and metrics scrapes count as requests, so that they start a replica of a service scaled to zero."""
    asleep: bool = False
    """Whether the service has no replica because it gets no requests. A request starts a replica and waits for it."""
    access: int = 0
    """Part of the requests written to the access log, in parts of `WHOLE`. Failed requests are always logged."""


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """Routes of one service."""

    service: str
    """`default/mnist`."""
    backends: tuple[RouteBackend, ...] = ()
    """Backends that may get new requests. A backend removed from here finishes its requests."""
    weights: tuple[tuple[int, int], ...] = ()
    """(revision, parts of `WHOLE`). The part of a revision without a backend goes to the others."""
    matches: tuple[RouteHeaderMatch, ...] = ()
    """Checked first, in order. A match whose revision has no backend is ignored."""
    sticky: str = ""
    """A header that identifies a client: while the weights stay, requests with the same value go to the same revision. When a
    revision's part grows, only the clients needed for its new part move."""
    mirror: RouteMirror | None = None
    port: int = 0
    """Port to listen on; 0: any free port, kept from then on."""
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    """Host names that clients may use, in addition to those of loopback when it listens on loopback; `*`: any."""
    hold_seconds: float = 60.0
    """How long a request waits when there is no backend."""
    hold_limit: int = 1_000
    """Maximum number of held requests; further requests get 503 with `Retry-After`."""
    retry_statuses: tuple[int, ...] = (502, 503)
    """Statuses after which a request that is safe to repeat is tried once more on another backend."""
    observed: RouteObservation = RouteObservation()
    """What the router reports about the service."""
    access: AccessRules | None = None
    """Access rules and certificate; None: every client that reaches the port is allowed, without TLS."""


@dataclass(frozen=True, slots=True)
class RouterFault:
    """A problem with the processes or the socket of a service's router."""

    message: str
    answers: bool
    """Whether requests are still answered."""
    lacks_process: bool = True
    """Whether a process has ended that the next `put` of the plan will restart."""


def outcome_token(secret: str) -> str:
    """Return the token for outcome reports.

    It is derived from a secret that only the router and its operator have, and grants no other access.
    """
    return hmac.new(secret.encode(), b"fairway-outcome", sha256).hexdigest()[:40]
