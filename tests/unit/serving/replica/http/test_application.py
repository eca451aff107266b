"""The application: every path, every format, every error, without a socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from small_models import Told, app_of, ask, doubler, lookup, signature

from fairway.serving.replica.http.request_body import BodyLimits
from fairway.serving.replica.protocols.grpc.message_frame import frame, unframed
from fairway.serving.replica.protocols.grpc.proto_definition import definitions
from fairway.serving.replica.runtimes.onnx_runtime import OnnxRuntime


def infer(value: float, rows: int = 1) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 3], "data": [value] * 3 * rows}]}


async def test_an_onnx_model_answers_in_both_protocols(tmp_path: Path) -> None:
    doubler(tmp_path)
    app = app_of(OnnxRuntime(tmp_path / "model.onnx"), labels=("champion",))
    for path in ("/v2/models/m/infer", "/v2/models/m/versions/7/infer"):
        status, answer, _ = await ask(app, "POST", path, infer(1.5, rows=2))
        assert status == 200
        assert answer["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [3.0] * 6}]
    for base in ("/v1/models/m", "/v1/models/m/versions/7", "/v1/models/m/labels/champion"):
        status, answer, _ = await ask(app, "POST", f"{base}:predict", {"instances": [[1, 2, 3]]})
        assert (status, answer) == (200, {"predictions": [[2, 4, 6]]})


async def test_one_bad_input_of_a_real_model_fails_alone(tmp_path: Path) -> None:
    lookup(tmp_path)
    app = app_of(OnnxRuntime(tmp_path / "model.onnx"))
    rows = [{"instances": [[index]]} for index in (0, 99, 3)]
    results = await asyncio.gather(*(ask(app, "POST", "/v1/models/m:predict", row) for row in rows))
    assert [status for status, _, _ in results] == [200, 400, 200]
    assert "out of" in results[1][1]["error"]
    assert results[2][1] == {"predictions": [[3.0]]}


def told_app(**more: Any) -> Any:
    return app_of(Told(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3])), lambda inputs: inputs), **more)


async def test_pages() -> None:
    app = told_app()
    assert (await ask(app, "GET", "/v2"))[1]["name"] == "fairway"
    assert (await ask(app, "GET", "/v2/health/live"))[0] == 200
    assert (await ask(app, "GET", "/v2/models"))[1] == {"models": ["m"]}
    assert (await ask(app, "POST", "/v2/repository/index", {}))[1][0]["state"] == "READY"
    for path in ("/v2/models/m", "/v2/models/m/versions/7"):
        assert (await ask(app, "GET", path))[1]["versions"] == ["7"]
        assert (await ask(app, "GET", f"{path}/ready"))[0] == 200
    assert (await ask(app, "GET", "/v1/models/m"))[1]["id"] == "m"


async def test_log_settings_are_the_same_over_rest_and_grpc() -> None:
    app = told_app()
    status, over_rest, _ = await ask(app, "GET", "/v2/logging")
    assert status == 200
    schema = definitions().schema
    message = frame(schema.encode("inference.LogSettingsRequest", {}))
    headers = {"content-type": "application/grpc"}
    status, answer, _ = await ask(app, "POST", "/inference.GRPCInferenceService/LogSettings", message, headers)
    assert status == 200
    settings = schema.decode("inference.LogSettingsResponse", unframed(answer, 1 << 16))["settings"]
    over_grpc = {name: next(iter(value.values())) for name, value in settings.items()}
    assert over_grpc == over_rest
    assert {name for name, value in settings.items() if "bool_param" in value} == {"log_info", "log_warning", "log_error"}
    assert list(settings["log_verbose_level"]) == ["uint32_param"]


async def test_readiness_goes_at_once_and_answers_say_close() -> None:
    app = told_app()
    app.draining = True
    for path in ("/v2/health/ready", "/v2/models/m/ready"):
        status, _, headers = await ask(app, "GET", path)
        assert (status, headers["connection"]) == (503, "close")
    assert (await ask(app, "GET", "/v2/health/live"))[0] == 200
    status, _, headers = await ask(app, "POST", "/v2/models/m/infer", infer(1.0))
    assert (status, headers["connection"]) == (200, "close")


async def test_what_is_counted() -> None:
    app = told_app()
    await ask(app, "POST", "/v2/models/m/infer", infer(1.0))
    await ask(app, "POST", "/v2/models/m/infer", b"{")
    await ask(app, "GET", "/v2/models/m")
    load = (await ask(app, "GET", "/fairway/load"))[1]
    counters = ("served", "failed", "refused", "client_errors", "queue", "in_flight", "batches", "batch_rows")
    assert {name: load[name] for name in counters} == {
        "served": 2, "failed": 0, "refused": 0, "client_errors": 1, "queue": 0, "in_flight": 0, "batches": 1, "batch_rows": 1,
    }  # fmt: skip
    assert load["uptime"] >= 0.0
    text = (await ask(app, "GET", "/metrics"))[1].decode()
    assert 'fairway_requests_total{model="m",version="7",code="400"} 1' in text
    assert 'fairway_request_seconds_count{model="m",version="7"} 2' in text
    assert 'fairway_batch_rows_bucket{model="m",version="7",le="1"} 1' in text


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/v2/models/other", 404, "no model 'other'"),
        ("POST", "/v1/models/other:predict", 404, "no model 'other'"),
        ("POST", "/v2/models/m/versions/8/infer", 404, "no version '8'"),
        ("POST", "/v1/models/m/labels/x:predict", 404, "no label 'x'"),
        ("GET", "/v2/models/../m", 404, "no model '..'"),
        ("GET", "/nothing", 404, "unknown path /nothing"),
        ("PUT", "/v2/models/m/infer", 405, "use POST"),
        ("POST", "/v2/models/m", 405, "use GET"),
    ],
)
async def test_what_is_not_there(method: str, path: str, status: int, words: str) -> None:
    found, answer, _ = await ask(told_app(), method, path)
    assert found == status
    assert words in answer["error"]


async def test_bodies_that_are_not_taken() -> None:
    app = told_app(bodies=BodyLimits(size=100))
    assert (await ask(app, "POST", "/v2/models/m/infer", b" " * 101))[0] == 413
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", b"{}", {"content-encoding": "br"})
    assert (status, "'br'" in answer["error"]) == (415, True)


async def test_a_mistake_of_ours_is_a_500_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(Told(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3])), lambda inputs: []))
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", infer(1.0))
    assert (status, "internal server error" in answer["error"]) == (500, True)
    assert "could not be answered" in caplog.text
    assert (await ask(app, "GET", "/v2/health/ready"))[0] == 200


async def test_a_client_that_goes_away_is_no_error() -> None:
    app = told_app()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": "/v2/models/m/infer", "headers": []}, receive, send)
    assert sent == []
    assert json.loads(json.dumps((await ask(app, "GET", "/fairway/load"))[1]))["in_flight"] == 0


async def test_a_replica_without_its_model_sends_requests_elsewhere() -> None:
    app = told_app()
    app.gone = app.draining = True
    status, answer, headers = await ask(app, "POST", "/v2/models/m/infer", infer(1.0))
    assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
    assert "the model's process has ended" in answer["error"]
