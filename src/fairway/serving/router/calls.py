"""The status of gRPC calls as the router counts them."""

from __future__ import annotations

from fairway.serving.http2.grpc import to_http
from fairway.serving.router.head import AnswerHead


def outcome_of(head: AnswerHead) -> int:
    """Return the status that a finished response counts as: that of HTTP, or the equivalent of its gRPC status."""
    if head.status != 200:
        return head.status
    status = head.value_of(b"grpc-status")
    return 200 if status is None else to_http(status)
