"""The span of an inference request: created when it is answered, as a child of the router's."""

from __future__ import annotations

from collections.abc import Callable

from fairway.serving.replica.model.served_model import ServedModel
from fairway.serving.replica.request_id import Headers, id_of
from fairway.serving.span_tracer import SpanTracer, nanoseconds, wall_of

Phases = tuple[float, float, float]
"""Readings of `time.perf_counter`: when the request had arrived, when it was parsed, when the model had run."""


class ReplicaTracer:
    """Creates the spans of inference requests."""

    def __init__(self, tracer: SpanTracer, model: ServedModel, wall: Callable[[], float]) -> None:
        self._tracer = tracer
        self._wall = wall
        self._name = f"infer {model.name}"
        self._about = {"fairway.model": model.name, "fairway.version": model.version}

    def note(self, headers: Headers, status: int, began: float, ended: float, phases: Phases | None = None) -> None:
        """Record an answered request. Times are readings of `time.perf_counter`."""
        values = dict(headers)
        wall = self._wall()
        start_time = nanoseconds(wall_of(began, wall))
        span = self._tracer.begin(self._name, values.get(b"traceparent"), values.get(b"tracestate"), start_time)
        attributes: dict[str, object] = {
            **self._about,
            "http.response.status_code": status,
            "fairway.request_id": id_of(headers),
        }
        if phases is not None:
            arrived, parsed, ran = phases
            attributes["fairway.preprocess_ms"] = 1000 * (parsed - arrived)
            attributes["fairway.predict_ms"] = 1000 * (ran - parsed)
            attributes["fairway.postprocess_ms"] = 1000 * (ended - ran)
        self._tracer.end(span, attributes, failed=status >= 500, ended=nanoseconds(wall_of(ended, wall)))

    def close(self) -> None:
        """Flush the queue, for a limited time."""
        self._tracer.close()
