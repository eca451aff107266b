"""What a router tells those that observe its requests, and what they may ask of a request."""

from __future__ import annotations

from typing import Protocol

from fairway.serving.router.head import RequestHead
from fairway.state.route import RoutePlan


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


class AccessLog(Protocol):
    """The log of requests."""

    written: int
    dropped: int
