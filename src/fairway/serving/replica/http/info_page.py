"""The informational paths of a replica: all paths that are not inference."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import msgspec

from fairway.serving.exposition.metric_family import OPENMETRICS, TEXT, accepts_openmetrics, render
from fairway.serving.replica.batching.batcher import Batcher
from fairway.serving.replica.http.request_body import Scope
from fairway.serving.replica.http.unknown_path import expects_openai, unknown
from fairway.serving.replica.model.served_model import ReplicaResponse, ServedModel, listed
from fairway.serving.replica.protocols import open_inference, tfserving
from fairway.serving.replica.protocols.mlflow import version_page
from fairway.serving.replica.protocols.triton_extension import EXTENSIONS, Control, TritonPages
from fairway.serving.replica.request_error import RequestError
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.version import __version__

METRICS = "/metrics"
_TF_METRICS = "/monitoring/prometheus/metrics"
_ALIVE = {"status": "alive"}
"""The answer that KServe's clients expect at `/`."""
_INDEX = "/v2/repository/index"
"""A page requested with POST; its body is ignored."""


class InfoPages:
    """The informational pages of one replica.

    Promises: every path gets an answer, as JSON when it is an error; readiness is false while the replica drains.
    """

    def __init__(
        self,
        model: ServedModel,
        batcher: Batcher,
        metrics: ReplicaMetrics,
        now: Callable[[], float],
        draining: Callable[[], bool],
        questions: Collection[str],
    ) -> None:
        self._model = model
        self._batcher = batcher
        self._metrics = metrics
        self._draining = draining
        self._questions = questions
        """Paths that accept POST for inference."""
        self._created = int(now())
        self._began = time.monotonic()
        self._triton = TritonPages(model, batcher, metrics, now)
        self._pages: dict[str, Callable[[], ReplicaResponse]] = {
            **self._openinference(),
            **self._triton.pages(),
            **self._tfserving(),
            **self._others(),
        }

    def control(self, scope: Scope) -> Control | None:
        """Return the handler of a POST that is not inference; it takes the body."""
        return self._triton.control(scope["path"]) if scope["method"] == "POST" else None

    def answer(self, scope: Scope) -> ReplicaResponse:
        """Return the page of a path."""
        path, method = scope["path"], scope["method"]
        page = self._pages.get(path)
        if page is not None and (method in ("GET", "HEAD") or path == _INDEX):
            return self._prometheus(scope) if path in (METRICS, _TF_METRICS) else page()
        if method in ("GET", "HEAD") and (answer := self._triton.page(path)) is not None:
            return answer
        if page is not None or path in self._questions:
            allowed = "GET" if page is not None else "POST"
            message = f"{path} does not accept {method}"
            error = RequestError(405, message, fix=f"use {allowed}", headers=((b"allow", allowed.encode()),))
            return self._form_at(path)(error)
        return self._form_at(path)(unknown(self._model, path))

    def _form_at(self, path: str) -> Callable[[RequestError], ReplicaResponse]:
        """Return the error writer for the clients of a path."""
        if expects_openai(path, talks=self._model.generates or self._model.embeds):
            from fairway.serving.replica.protocols import openai  # noqa: PLC0415  # most replicas do not need it

            return openai.write_error
        return refusal

    def _openinference(self) -> dict[str, Callable[[], ReplicaResponse]]:
        model = self._model
        server = {"name": "fairway", "version": __version__, "extensions": EXTENSIONS}
        entry = {"name": model.name, "version": model.version, "state": "READY", "reason": ""}
        pages = {
            "/v2": lambda: told(server),
            "/v2/health/live": lambda: told({"live": True}),
            "/v2/health/ready": lambda: self._ready({"ready": True}),
            _INDEX: lambda: told([entry]),
            "/v2/models": lambda: told({"models": [model.name]}),
        }
        for base in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/{model.version}"):
            pages |= {base: self._metadata, f"{base}/ready": lambda: self._ready({"name": model.name, "ready": True})}
        return pages

    def _tfserving(self) -> dict[str, Callable[[], ReplicaResponse]]:
        """Return the pages of TensorFlow Serving.

        Some paths are used by OpenAI's and KServe's clients as well: their answer has the keys of all.
        """
        model = self._model
        models = {"object": "list", "data": [listed(model, self._created)]}
        pages: dict[str, Callable[[], ReplicaResponse]] = {"/v1/models": lambda: told({**models, "models": [model.name]})}
        bases = [f"/v1/models/{model.name}", f"/v1/models/{model.name}/versions/{model.version}"]
        for base in [*bases, *(f"/v1/models/{model.name}/labels/{label}" for label in model.labels)]:
            pages[base] = lambda: told({**tfserving.status(model), **listed(model, self._created), **self._readiness()})
            pages[f"{base}/metadata"] = lambda: told(tfserving.metadata(model))
        if model.generates or model.embeds:
            pages["/openai/v1/models"] = lambda: told(models)
            pages[f"/openai/v1/models/{model.name}"] = lambda: told(listed(model, self._created))
        return pages

    def _others(self) -> dict[str, Callable[[], ReplicaResponse]]:
        return {
            "/": lambda: told(_ALIVE),
            "/ping": lambda: self._ready({"ready": True}),  # for MLflow, like the next two
            "/health": lambda: self._ready({"ready": True}),
            "/version": version_page,
            "/fairway/load": self._load,
            METRICS: self._prometheus,
            _TF_METRICS: self._prometheus,
            "/openapi.json": self._openapi,
            "/docs": _docs,
        }

    def _readiness(self) -> dict[str, object]:
        """Return the readiness for KServe's clients of the V1 protocol."""
        return {"name": self._model.name, "ready": not self._draining()}

    def _ready(self, ready: dict[str, object]) -> ReplicaResponse:
        if self._draining():
            return refusal(RequestError(503, "this replica is shutting down"))
        return told(ready)

    def _metadata(self) -> ReplicaResponse:
        return told(open_inference.metadata(self._model, self._batcher.verdict))

    def _openapi(self) -> ReplicaResponse:
        from fairway.serving.replica.openapi.document import document  # noqa: PLC0415  # loaded on first request

        return told(document(self._model, self._pages.keys(), self._questions))

    def _load(self) -> ReplicaResponse:
        return told(self._metrics.load(self._batcher.waiting, time.monotonic() - self._began, self._batcher.verdict))

    def _prometheus(self, scope: Scope | None = None) -> ReplicaResponse:
        model, batcher = self._model, self._batcher
        accept = next((value for name, value in scope["headers"] if name == b"accept"), None) if scope else None
        families = self._metrics.families(model.name, model.version, batcher.waiting, batcher.verdict)
        openmetrics = accepts_openmetrics(accept)
        return ReplicaResponse(render(families, openmetrics=openmetrics), content_type=OPENMETRICS if openmetrics else TEXT)


def _docs() -> ReplicaResponse:
    from fairway.serving.replica.openapi.page import docs_page  # noqa: PLC0415  # loaded on first request

    return docs_page()


def told(value: object) -> ReplicaResponse:
    """Return a JSON answer."""
    return ReplicaResponse(msgspec.json.encode(value))


def refusal(error: RequestError) -> ReplicaResponse:
    """Return an error in the default format of the protocols."""
    headers = list(error.headers)
    if error.retry_after:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    return ReplicaResponse(msgspec.json.encode({"error": error.words}), error.status, headers)
