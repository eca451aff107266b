"""The span of a question to the model: made when it is answered, below the router's."""

from __future__ import annotations

from collections.abc import Callable

from fairway.serving.replica.model import ServedModel
from fairway.serving.replica.request_id import Headers, id_of
from fairway.serving.spans import Tracer, nanoseconds, wall_of

Phases = tuple[float, float, float]
"""Readings of `time.perf_counter`: the whole request was there, it was read, the model had run."""


class ReplicaTracer:
    """Writes spans of questions."""

    def __init__(self, tracer: Tracer, model: ServedModel, wall: Callable[[], float]) -> None:
        self._tracer = tracer
        self._wall = wall
        self._name = f"infer {model.name}"
        self._about = {"fairway.model": model.name, "fairway.version": model.version}

    def note(self, headers: Headers, status: int, began: float, ended: float, phases: Phases | None = None) -> None:
        """A question was answered. Times are readings of `time.perf_counter`."""
        values = dict(headers)
        wall = self._wall()
        begun = nanoseconds(wall_of(began, wall))
        span = self._tracer.begin(self._name, values.get(b"traceparent"), values.get(b"tracestate"), begun)
        about: dict[str, object] = {
            **self._about,
            "http.response.status_code": status,
            "fairway.request_id": id_of(headers),
        }
        if phases is not None:
            came, read, ran = phases
            about["fairway.preprocess_ms"] = 1000 * (read - came)
            about["fairway.predict_ms"] = 1000 * (ran - read)
            about["fairway.postprocess_ms"] = 1000 * (ended - ran)
        self._tracer.end(span, about, failed=status >= 500, ended=nanoseconds(wall_of(ended, wall)))

    def close(self) -> None:
        """Send what waits, for a moment."""
        self._tracer.close()
