"""The OpenAPI 3.1 document of a replica: only the paths that it serves, with its own tensors. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fairway.serving.replica.model.served_model import ServedModel
from fairway.serving.replica.openapi import example, schema
from fairway.serving.replica.openapi.operation import OpenApiOperation, page, question
from fairway.version import __version__

DOCUMENT = "/openapi.json"
DOCS = "/docs"

_PAGES = {
    "/v2": ("Health", "The server: its name, its version and its extensions"),
    "/v2/health/live": ("Health", "Whether the server is alive"),
    "/v2/health/ready": ("Health", "Whether the server is ready; 503 while the replica is shutting down"),
    "/v2/models": ("Open Inference Protocol", "The models that are served"),
    "/v2/models/stats": ("Open Inference Protocol", "Counts and times of the requests to all models"),
    "/v2/logging": ("Open Inference Protocol", "Log settings, for Triton's clients"),
    "/v2/trace/setting": ("Open Inference Protocol", "Trace settings, for Triton's clients"),
    "/": ("Health", "Whether the server is alive, for KServe's clients"),
    "/health": ("Health", "Whether the server is ready, as in MLServer and vLLM"),
    "/ping": ("Health", "Whether the server is ready, as in MLflow and SageMaker"),
    "/version": ("Health", "The version of the server, as in MLflow"),
    "/metrics": ("Observability", "Metrics for Prometheus, of all replicas together behind the service's router"),
    "/monitoring/prometheus/metrics": ("Observability", "The same metrics, at the path of TensorFlow Serving"),
    "/v1/models": ("OpenAI", "The models that are served"),
    "/openai/v1/models": ("OpenAI", "The models that are served"),
}
_ENDS = {
    "/ready": "Whether the model is ready",
    "/config": "The configuration of the model, as in Triton",
    "/stats": "Counts and times of the requests to the model",
    "/trace/setting": "Trace settings of the model, for Triton's clients",
    "sharedmemory/status": "Registered shared memory regions: always none",
}
"""Descriptions of pages below `/v2/`, by the end of their path; others describe the model."""
_TEXT = frozenset({"/metrics", "/monitoring/prometheus/metrics", "/version"})
_GRPC = ("/inference.", "/tensorflow.")
"""Prefixes of the paths of gRPC methods, which OpenAPI cannot describe."""
_TAGS = ("Open Inference Protocol", "OpenAI", "TensorFlow Serving", "MLflow", "Health", "Observability", "Other")
_FIRST = (":predict", "/infer", "/chat/completions", "/completions")
_HIDDEN = frozenset({"/fairway/load", "/v2/repository/index", DOCUMENT, DOCS})


def document(model: ServedModel, pages: Collection[str], questions: Collection[str]) -> dict[str, Any]:
    """Build the document. `pages`: paths that accept GET; `questions`: paths that accept POST for inference."""
    paths: dict[str, dict[str, Any]] = {}
    operation_ids: set[str] = set()
    for path in sorted((path for path in questions if _fits(model, path)), key=_rank):
        paths.setdefault(path, {})["post"] = _question(model, path).render(path, "post", operation_ids)
    for path in sorted(set(pages) - _HIDDEN, key=_rank):
        paths.setdefault(path, {})["get"] = _page(path).render(path, "get", operation_ids)
    if "/v2/repository/index" in pages:
        index = page("Open Inference Protocol", "The models of the repository, and their state")
        paths["/v2/repository/index"] = {"post": index.render("/v2/repository/index", "post", operation_ids)}
    used = {operation["tags"][0] for methods in paths.values() for operation in methods.values()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": model.name,
            "version": model.version,
            "description": _description(model, questions),
        },
        # Relative, so that the same document is valid behind a router, a proxy or a gateway.
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in _TAGS if name in used],
        "paths": paths,
        "components": {"schemas": schema.components(model)},
    }


def _description(model: ServedModel, questions: Collection[str]) -> str:
    summary = f"Version {model.version} of {model.name} ({model.platform}), served by Fairway {__version__}."
    services = sorted({path.split("/")[1] for path in questions if path.startswith(_GRPC)})
    return f"{summary} gRPC on the same port: {', '.join(f'`{service}`' for service in services)}." if services else summary


def _page(path: str) -> OpenApiOperation:
    if path in _PAGES:
        return page(*_PAGES[path], text=path in _TEXT)
    if path.startswith("/v2/"):
        descriptions = (description for end, description in _ENDS.items() if path.endswith(end))
        return page("Open Inference Protocol", next(descriptions, "Names, datatypes and shapes of inputs and outputs"))
    if path.endswith("/metadata"):
        return page("TensorFlow Serving", "Names, types and shapes of inputs and outputs")
    if path.startswith("/openai/"):
        return page("OpenAI", "The model")
    if path.startswith("/v1/"):
        return page("TensorFlow Serving", "The state of the model, with the members of OpenAI's model object")
    return page("Other", path)


def _question(model: ServedModel, path: str) -> OpenApiOperation:
    signature = model.signature
    has_example = example.has_example(signature)
    if path.endswith("/infer"):
        body = example.infer(signature) if has_example else None
        return question("Open Inference Protocol", "Run inference", "InferRequest", "InferAnswer", body, binary=True)
    if path.endswith(":predict"):
        body = example.predict(signature, batches=model.batches) if has_example else None
        return question("TensorFlow Serving", "Run inference on rows or columns", "PredictRequest", "PredictAnswer", body)
    if path.endswith((":classify", ":regress")):
        summary = "Labels with scores" if path.endswith(":classify") else "One number for each example"
        return question(
            "TensorFlow Serving", summary, "ExamplesRequest", "ResultAnswer", example.examples(signature) if has_example else None
        )
    if path.endswith("/chat/completions"):
        messages = [{"role": "user", "content": "Hello"}]
        return question(
            "OpenAI", "Chat completion", "Object", "Object", {"model": model.name, "messages": messages, "max_tokens": 5}
        )
    if path.endswith("/completions"):
        return question(
            "OpenAI", "Text completion", "Object", "Object", {"model": model.name, "prompt": "Hello", "max_tokens": 5}
        )
    if path.endswith("/embeddings"):
        return question("OpenAI", "Embeddings of texts", "Object", "Object", {"model": model.name, "input": ["Hello"]})
    if path.endswith("/invocations"):
        body = example.predict(signature, batches=model.batches) if has_example else None
        return question("MLflow", "Run inference, as in MLflow", "Object", "Object", body)
    return question("Other", path, "Object", "Object", None)


def _fits(model: ServedModel, path: str) -> bool:
    """Whether the path takes JSON, and the model's outputs permit any answer but 400."""
    if path.startswith(_GRPC):
        return False
    if path.endswith(":classify"):
        return model.batches and _classifies(model)
    return not path.endswith(":regress") or (model.batches and _regresses(model))


def _rank(path: str) -> tuple[bool, bool, str]:
    """Sort key of paths: the most used ones first, those with a version or label last."""
    return "/versions/" in path or "/labels/" in path, not path.endswith(_FIRST), path


def _classifies(model: ServedModel) -> bool:
    outputs = model.signature.outputs
    scores = [spec for spec in outputs if spec.datatype.startswith(("FP", "BF")) and len(spec.shape) == 2]
    return len(outputs) == len(scores) == 1


def _regresses(model: ServedModel) -> bool:
    outputs = model.signature.outputs
    return len(outputs) == 1 and outputs[0].datatype.startswith("FP") and outputs[0].shape in ((-1,), (-1, 1))
