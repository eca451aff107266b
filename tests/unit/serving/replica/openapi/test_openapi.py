"""The OpenAPI description of a replica is valid and complete, and its examples are accepted as they are."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openapi_spec_validator import validate

sys.path.insert(0, str(Path(__file__).parent.parent))
from small_models import Told, app_of, ask, signature

from fairway.serving.replica.model.datatype import DTYPES, of_texts
from fairway.serving.replica.model.served_model import ServedModel
from fairway.serving.replica.openapi.document import document
from fairway.serving.replica.openapi.page import docs
from fairway.serving.replica.runtimes.runtime import takes_batches

ODD = {f"out_{name}": ("FP32", shape) for name, shape in {"y": [-1, 2]}.items()}


def echo(of: Any) -> Any:
    """Return a model of this signature that returns zeros."""

    def work(inputs: list[Any]) -> list[Any]:
        rows = len(inputs[0]) if inputs[0].ndim else 1
        found = []
        for spec in of.outputs:
            shape = tuple(rows if length < 0 else length for length in spec.shape)
            size = int(np.prod(shape))
            found.append(
                of_texts([b""] * size).reshape(shape) if spec.datatype == "BYTES" else np.zeros(shape, DTYPES[spec.datatype])
            )
        return found

    return app_of(Told(of, work))


MODELS = [signature(x=(word, [-1, 3]), **ODD) for word in DTYPES] + [
    signature(x=("BYTES", [-1, 1]), out_y=("BYTES", [-1, 1])),
    signature(x=("FP32", [-1, 3]), z=("INT64", [-1]), **ODD),
    signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 1])),
    signature(x=("FP32", [2, 3]), out_y=("FP32", [2, 3])),
    signature(x=("FP32", [-1, 3, 224, 224]), **ODD),
    signature(x=("FP32", [-1]), out_y=("FP32", [-1]), out_z=("INT64", [-1])),
    signature(**{'odd "name" <b>': ("FP32", [-1, 2])}, **ODD),
]


@pytest.mark.parametrize("of", MODELS, ids=lambda of: "-".join(f"{spec.datatype}{list(spec.shape)}" for spec in of.inputs))
async def test_the_document_is_valid_and_its_examples_are_accepted(of: Any) -> None:
    app = echo(of)
    status, found, _ = await ask(app, "GET", "/openapi.json")
    assert status == 200
    validate(found)
    sent = 0
    for path, methods in found["paths"].items():
        if "get" in methods and path != "/metrics":
            assert (await ask(app, "GET", path))[0] == 200, path
        example = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            status, answer, _ = await ask(app, "POST", path, example)
            assert status == 200, (path, answer)
            sent += 1
    large = int(np.prod([max(1, length) for length in of.inputs[0].shape])) > 4096
    assert bool(sent) is not large
    assert len({method["operationId"] for methods in found["paths"].values() for method in methods.values()}) == sum(
        map(len, found["paths"].values())
    )


def test_a_model_that_generates_is_described_by_its_routes() -> None:
    of = signature()
    model = ServedModel("words", "1", "python", of, takes_batches(of), generates=True, embeds=True)
    questions = {"/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/openai/v1/completions", "/invocations"}
    found = document(model, {"/v1/models", "/openai/v1/models/words", "/v2"}, questions)
    validate(found)
    assert {path for path, methods in found["paths"].items() if "post" in methods} == questions


async def test_each_operation_is_described_by_what_it_does() -> None:
    _, found, _ = await ask(echo(MODELS[0]), "GET", "/openapi.json")
    summaries = {path: method["summary"] for path, methods in found["paths"].items() for method in methods.values()}
    assert [path for path, summary in summaries.items() if summary == path] == []
    assert [path for path in summaries if "GRPCInferenceService" in path or "PredictionService" in path] == []
    assert "`inference.GRPCInferenceService`, `tensorflow.serving.PredictionService`" in found["info"]["description"]
    (name,) = {path.split("/")[3] for path in summaries if path.endswith("/config") and "/versions/" not in path}
    model = f"/v2/models/{name}"
    shown = [summaries[path] for path in (model, f"{model}/config", f"{model}/stats", f"{model}/ready", "/v2/models/stats")]
    assert len(set(shown)) == len(shown)
    for path in ("/metrics", "/monitoring/prometheus/metrics", "/version"):
        assert list(found["paths"][path]["get"]["responses"]["200"]["content"]) == ["text/plain"], path


async def test_the_page_needs_no_other_host() -> None:
    text, policy = docs()
    assert not re.search(rb"(src|href)=\"?(https?:)?//|@import|\burl\(", text)
    assert b"innerHTML" not in text
    assert b"connect-src 'self'" in policy
    assert b"unsafe" not in policy
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = echo(MODELS[0])
    await app({"type": "http", "method": "GET", "path": "/docs", "headers": []}, None, send)
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/html")
    assert headers[b"content-security-policy"] == policy
    assert sent[1]["body"] == text
