"""The span of a request in the router, the parent of its replica's span."""

from __future__ import annotations

from typing import Any

from fairway.serving.router.message_head import RequestHead
from fairway.serving.router.observation_port import RequestRecord
from fairway.serving.span_tracer import SpanTracer

_CONTEXT = frozenset({b"traceparent", b"tracestate"})


class RequestSpanTracer:
    """Implements `RequestTracer`."""

    def __init__(self, tracer: SpanTracer) -> None:
        self._tracer = tracer
        self.service = ""
        """The service's name, which is part of the names of the spans."""

    def begin(self, head: RequestHead) -> Any:
        """Begin a span and write its context to the head, so that the replica's span joins it."""
        span = self._tracer.begin(
            f"{head.method.decode('latin-1')} {self.service}", head.value_of(b"traceparent"), head.value_of(b"tracestate")
        )
        head.lines = [line for line in head.lines if line.partition(b":")[0].lower() not in _CONTEXT]
        head.lines += self._tracer.lines(span)
        return span

    def end(self, span: Any, record: RequestRecord) -> None:
        """End the span with the values of the request's access log line."""
        attributes: dict[str, Any] = {
            "http.request.method": record.method,
            "url.path": record.path,
            "http.response.status_code": record.status,
            "client.address": record.client,
            "user_agent.original": record.agent,
            "http.request.body.size": record.bytes_in,
            "http.request.resend_count": record.tries,
            "fairway.request_id": record.request_id,
            "fairway.service": self.service,
            "fairway.revision": record.revision,
            "fairway.replica": record.replica,
            "fairway.held_ms": record.held_ms,
            "fairway.upstream_ms": record.upstream_ms,
        }
        if record.error:
            attributes["error.type"] = str(record.status)
        self._tracer.end(span, attributes, failed=record.status >= 500)

    def close(self) -> None:
        """Send pending spans, within a short time."""
        self._tracer.close()
