"""What a router tells those that observe its requests, and what they may ask of a request."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from fairway.serving.router.head import RequestHead
from fairway.state.route import RoutePlan

_MOST_SHOWN = 500


class ObservedRequest(Protocol):
    """A request under way, as far as observers may touch it."""

    head: RequestHead
    over: bool

    def reply(self, status: int, body: bytes, content_type: bytes, more: bytes = b"") -> None:
        """Answer in place of a replica. `more`: further lines of the head, each with its end."""
        ...


class Observer(Protocol):
    """Answers what is asked of the router itself. It sees GET and HEAD alone."""

    def put(self, plan: RoutePlan) -> None:
        """This plan is in force."""
        ...

    def takes(self, request: ObservedRequest) -> bool:
        """Whether it answers this request, now or later."""
        ...

    def is_probe(self, head: RequestHead) -> bool:
        """Whether the request only looks whether the service is there: it counts nowhere, and wakes no replica."""
        ...

    def stand_in(self, request: ObservedRequest) -> None:
        """Answer a probe for which there is no replica."""
        ...

    def sweep(self) -> None:
        """A second has passed."""
        ...


class RequestRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the access log. It holds no query and no header that may carry a secret."""

    time: str
    """When the request came, in UTC."""
    request_id: str
    method: str = ""
    path: str = ""
    """Without the query."""
    status: int = 0
    """499: the client left before the answer."""
    revision: int = 0
    """0: the router answered itself."""
    replica: str = ""
    bytes_in: int = 0
    """Of the body."""
    bytes_out: int = 0
    """Of the answer with its head."""
    held_ms: float = 0.0
    """Until it went to a replica."""
    upstream_ms: float = 0.0
    """From the last byte of the request to the end of the answer."""
    total_ms: float = 0.0
    client: str = ""
    forwarded_for: str = ""
    key: str = ""
    """The name of the API key."""
    trace_id: str = ""
    agent: str = ""
    tries: int = 0
    """How often it was sent again."""
    error: str = ""
    """Why the router answered itself."""
    grpc_status: int | None = None
    """How a call of gRPC ended; `status` is what it counts as."""


class RequestTracer(Protocol):
    """The spans of requests."""

    def begin(self, head: RequestHead) -> Any:
        """Begin a span, and let the head name it."""
        ...

    def end(self, span: Any, record: RequestRecord) -> None:
        """End it."""
        ...


class AccessLog(Protocol):
    """The log of requests."""

    written: int
    dropped: int

    def wants(self, status: int) -> bool:
        """Whether a request that was answered so gets a line."""
        ...

    def time_of(self, ago: float) -> str:
        """The time so many seconds ago."""
        ...

    def note(self, record: RequestRecord) -> None:
        """Write a line, soon."""
        ...

    def sweep(self) -> None:
        """A second has passed."""
        ...


def refused_record(
    time: str, request_id: bytes, status: int, reason: str, peer: bytes, head: RequestHead | None
) -> RequestRecord:
    """The line of a request that was refused before it was looked at. `head`: where it could be read."""
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
    """Bytes of a head in a log: bounded."""
    return text[:_MOST_SHOWN].decode("latin-1")


def milliseconds(seconds: float) -> float:
    """To a microsecond."""
    return round(1000 * max(seconds, 0.0), 3)
