"""The status of gRPC calls as the router counts them."""

from __future__ import annotations

from fairway.serving.http2.grpc_status import to_http
from fairway.serving.router.message_head import ResponseHead


def outcome_of(head: ResponseHead) -> int:
    """Return the status that a finished response counts as: that of HTTP, or the equivalent of its gRPC status."""
    if head.status != 200:
        return head.status
    status = head.value_of(b"grpc-status")
    return 200 if status is None else to_http(status)
