"""Calls of gRPC as the router counts them."""

from __future__ import annotations

from fairway.serving.http2.grpc import to_http
from fairway.serving.router.head import AnswerHead


def outcome_of(head: AnswerHead) -> int:
    """The status that an answer counts as, once it is over: that of HTTP, or what the status of gRPC stands for."""
    if head.status != 200:
        return head.status
    status = head.value_of(b"grpc-status")
    return 200 if status is None else to_http(status)
