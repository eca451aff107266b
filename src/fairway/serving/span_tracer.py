"""OpenTelemetry spans of routers and replicas. The SDK is an extra (`fairway[otel]`), loaded only when tracing is enabled.

The standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER` ...) control what is exported, and where to. Spans go
to a bounded queue, and a thread sends them to the collector: if the collector is slow or unreachable, spans are lost, but
requests are not delayed.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from fairway.serving.trace_context import parse

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OFF = "OTEL_SDK_DISABLED"
_END_SECONDS = 2.0
"""Flush timeout at the end of a process, in seconds."""
_MOST_STATE = 512
"""Maximum length of a `tracestate`, in bytes."""

log = logging.getLogger("fairway.trace")


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the standard variables enable tracing."""
    if environment.get(_OFF, "").lower() == "true":
        return False
    named = environment.get(_EXPORTERS, "").strip().lower()
    return named == "otlp" if named else any(environment.get(name) for name in _ENDPOINTS)


def tracer_of(environment: Mapping[str, str], service: str) -> SpanTracer | None:
    """Return a tracer for this process, or None when tracing is disabled or fails to start, which is logged."""
    if not is_wanted(environment):
        return None
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "http/protobuf")
    kind = "grpc" if protocol == "grpc" else "http"
    try:
        exporter = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter").OTLPSpanExporter()
        return SpanTracer(exporter, service, environment)
    except ImportError as error:
        log.warning("the OTEL variables request traces over %s, but %s: pip install 'fairway[otel]'", protocol, error)
    except Exception:  # invalid variables must not stop a service from answering
        log.exception("tracing is disabled: the exporter of the OTEL variables cannot be created")
    return None


class SpanTracer:
    """Starts and ends spans. Its methods do not block."""

    def __init__(self, exporter: Any, service: str, environment: Mapping[str, str]) -> None:
        sdk, resources = (importlib.import_module(f"opentelemetry.sdk.{name}") for name in ("trace", "resources"))
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        self._trace = importlib.import_module("opentelemetry.trace")
        propagation = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
        attributes = {} if named else {"service.name": service}
        # `close` shuts it down within a timeout; the SDK's own exit hook may wait for an unreachable collector.
        self._provider = sdk.TracerProvider(resource=resources.Resource.create(attributes), shutdown_on_exit=False)
        self._provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("fairway")
        self._context = propagation.TraceContextTextMapPropagator()
        self._kinds = {"server": self._trace.SpanKind.SERVER, "internal": self._trace.SpanKind.INTERNAL}

    def begin(self, name: str, parent: bytes | None, state: bytes | None, begun: int | None = None) -> Any:
        """Start a child span of the one in `traceparent` and `tracestate`. A malformed `traceparent` is ignored."""
        trace_parent = parse(parent)
        carrier = {"traceparent": str(trace_parent)} if trace_parent is not None else {}
        if trace_parent is not None and state is not None and len(state) <= _MOST_STATE:
            carrier["tracestate"] = state.decode("latin-1")
        # An empty context: other spans of this thread do not belong to the request.
        context = self._context.extract(carrier, context=importlib.import_module("opentelemetry.context").Context())
        return self._tracer.start_span(name, context=context, kind=self._kinds["server"], start_time=begun)

    def lines(self, span: Any) -> list[bytes]:
        """Return the header lines that make later spans children of this one."""
        carrier: dict[str, str] = {}
        self._context.inject(carrier, context=self._trace.set_span_in_context(span))
        return [f"{name}: {value}".encode("latin-1") for name, value in carrier.items()]

    def end(self, span: Any, attributes: Mapping[str, Any], *, failed: bool, ended: int | None = None) -> None:
        """End a span, with its attributes and status."""
        if span.is_recording():
            for name, value in attributes.items():
                span.set_attribute(name, value)
            if failed:
                span.set_status(self._trace.StatusCode.ERROR)
        span.end(end_time=ended)

    def close(self) -> None:
        """Flush the queue, for at most `_END_SECONDS`."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(_END_SECONDS)


def nanoseconds(wall: float) -> int:
    """Convert a wall-clock time in seconds to the nanoseconds that spans use."""
    return int(wall * 1e9)


def wall_of(perf: float, wall: float) -> float:
    """Convert a reading of `time.perf_counter` to wall-clock time. `wall`: the wall-clock time now."""
    return wall - (time.perf_counter() - perf)
