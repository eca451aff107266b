"""The interfaces of a router's observers, access log and tracer, and what these may use of a request."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from fairway.serving.router.message_head import RequestHead
from fairway.state.serving.route import RoutePlan

_MOST_SHOWN = 500


class ObservedRequest(Protocol):
    """A request in flight, as far as observers may use it."""

    head: RequestHead
    over: bool

    def reply(self, status: int, body: bytes, content_type: bytes, more: bytes = b"") -> None:
        """Answer in place of a replica. `more`: additional header lines, each with its line end."""
        ...


class RouterObserver(Protocol):
    """Answers requests for the router itself. It sees only GET and HEAD."""

    def put(self, plan: RoutePlan) -> None:
        """Take the plan that has come into force."""
        ...

    def takes(self, request: ObservedRequest) -> bool:
        """Return whether the observer answers this request, now or later."""
        ...

    def is_probe(self, head: RequestHead) -> bool:
        """Return whether the request is a health probe: it is not counted and wakes no replica."""
        ...

    def stand_in(self, request: ObservedRequest) -> None:
        """Answer a probe while there is no replica."""
        ...

    def sweep(self) -> None:
        """Run the periodic work; called every second."""
        ...


class RequestRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the access log. It contains no query and no header that may carry a secret."""

    time: str
    """When the request arrived, in UTC."""
    request_id: str
    method: str = ""
    path: str = ""
    """Without the query."""
    status: int = 0
    """499: the client left before the response."""
    revision: int = 0
    """0: the router itself answered."""
    replica: str = ""
    bytes_in: int = 0
    """Of the request's body."""
    bytes_out: int = 0
    """Of the response, including its head."""
    held_ms: float = 0.0
    """Until the request was sent to a replica."""
    upstream_ms: float = 0.0
    """From the last byte of the request to the end of the response."""
    total_ms: float = 0.0
    client: str = ""
    forwarded_for: str = ""
    key: str = ""
    """The name of the API key."""
    trace_id: str = ""
    agent: str = ""
    tries: int = 0
    """Number of retries."""
    error: str = ""
    """Why the router itself answered."""
    grpc_status: int | None = None
    """The status of a gRPC call; `status` is what it counts as."""


class RequestTracer(Protocol):
    """Creates the spans of requests."""

    def begin(self, head: RequestHead) -> Any:
        """Begin a span and write its context to the head."""
        ...

    def end(self, span: Any, record: RequestRecord) -> None:
        """End the span."""
        ...


class AccessLog(Protocol):
    """The access log."""

    written: int
    dropped: int

    def wants(self, status: int) -> bool:
        """Return whether a request that was answered with this status is logged."""
        ...

    def time_of(self, ago: float) -> str:
        """Return the time this many seconds ago, as text."""
        ...

    def note(self, record: RequestRecord) -> None:
        """Write a line, soon."""
        ...

    def sweep(self) -> None:
        """Run the periodic work; called every second."""
        ...


def refused_record(
    time: str, request_id: bytes, status: int, reason: str, peer: bytes, head: RequestHead | None
) -> RequestRecord:
    """Return the line of a request that was refused before it was processed. `head` is given if it could be parsed."""
    return RequestRecord(
        time,
        request_id.decode("latin-1"),
        method=shown(head.method) if head is not None else "",
        path=shown(head.target.partition(b"?")[0]) if head is not None else "",
        status=status,
        client=shown(peer),
        error=reason,
    )


def shown(text: bytes) -> str:
    """Return bytes of a head as text for a log, with limited length."""
    return text[:_MOST_SHOWN].decode("latin-1")


def milliseconds(seconds: float) -> float:
    """Convert to milliseconds, rounded to a microsecond."""
    return round(1000 * max(seconds, 0.0), 3)
