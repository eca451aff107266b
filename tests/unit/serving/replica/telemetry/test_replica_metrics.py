"""The metrics of a replica, under our names, KServe's and Triton's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from small_models import Told, app_of, ask, signature

from fairway.serving.exposition.metric_family import MetricFamily
from fairway.serving.replica.telemetry import gpu_metrics
from fairway.serving.replica.telemetry.replica_metrics import LATENCY_BOUNDS, PHASES, PrometheusHistogram, ReplicaMetrics


def told_app() -> Any:
    return app_of(Told(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3])), lambda inputs: inputs))


async def page(app: Any, accept: bytes = b"") -> tuple[bytes, str]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"x"), (b"accept", accept)] if accept else [(b"host", b"x")]
    await app({"type": "http", "method": "GET", "path": "/metrics", "headers": headers}, None, send)
    return dict(sent[0]["headers"])[b"content-type"], sent[1]["body"].decode()


def values(text: str, read: Any) -> dict[str, float]:
    return {
        sample.name: sample.value for family in read(text) for sample in family.samples if not sample.name.endswith("_bucket")
    }


async def test_questions_are_counted_by_all_three_names() -> None:
    app = told_app()
    for rows in (1, 2):
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 3], "data": [1.0] * 3 * rows}]}
        assert (await ask(app, "POST", "/v2/models/m/infer", body))[0] == 200
    assert (await ask(app, "POST", "/v2/models/m/infer", {"inputs": []}))[0] == 400
    kind, text = await page(app)
    assert kind.startswith(b"text/plain; version=0.0.4")
    found = values(text, read_text)
    expected = {
        "nv_inference_request_success_total": 2, "nv_inference_count_total": 3, "nv_inference_exec_count_total": 2,
        "nv_inference_pending_request_count": 0, "request_preprocess_seconds_count": 2, "request_predict_seconds_count": 2,
        "request_postprocess_seconds_count": 2, "request_explain_seconds_count": 0, "fairway_request_seconds_count": 3,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert 'nv_inference_request_failure{model="m",version="7",reason="OTHER"} 1' in text
    assert 'nv_inference_request_success{model="m",version="7"} 2' in text
    assert 'request_predict_seconds_count{model_name="m"} 2' in text
    parts = sum(found[f"request_{phase}_seconds_sum"] for phase in PHASES)
    assert 0 < parts <= found["fairway_request_seconds_sum"]


async def test_openmetrics_for_those_who_ask() -> None:
    kind, text = await page(told_app(), b"application/openmetrics-text; version=1.0.0; q=0.9")
    assert kind.startswith(b"application/openmetrics-text")
    assert values(text, read_openmetrics)["nv_inference_request_success"] == 0


@pytest.mark.parametrize("count", [1, 5000])
def test_phases_are_the_histograms_that_single_values_would_give(count: int) -> None:
    seen = np.random.default_rng(7).exponential(0.01, (count, 4))
    metrics, expected = ReplicaMetrics(), tuple(PrometheusHistogram(LATENCY_BOUNDS) for _ in range(4))
    for waited, read, ran, written in seen.tolist():
        at = [0.0]
        for seconds in (waited, read, ran, written):
            at.append(at[-1] + seconds)
        metrics.asked(200, at[0], (at[1], at[2]), at[3], at[4])
        for histogram, value in zip(expected, (at[4], at[2] - at[1], at[3] - at[2], at[4] - at[3]), strict=True):
            histogram.add(value)
    for found, wanted in zip(metrics.times.histograms(), expected, strict=True):
        assert found.counts == wanted.counts
        assert found.total == pytest.approx(wanted.total)


def test_gpus_by_the_names_of_triton() -> None:
    class Nvml:
        @staticmethod
        def nvmlDeviceGetUtilizationRates(_handle: str) -> Any:  # noqa: N802
            return SimpleNamespace(gpu=50)

        @staticmethod
        def nvmlDeviceGetMemoryInfo(_handle: str) -> Any:  # noqa: N802
            return SimpleNamespace(used=5, total=10)

        @staticmethod
        def nvmlDeviceGetPowerUsage(_handle: str) -> Any:  # noqa: N802
            raise RuntimeError

    found = gpu_metrics.families(Nvml, {"GPU-1": "one"})
    assert {family.name: family.samples[0][2] for family in found} == {
        "nv_gpu_utilization": 0.5, "nv_gpu_memory_used_bytes": 5, "nv_gpu_memory_total_bytes": 10,
    }  # fmt: skip
    assert gpu_metrics.of_environment({}) is None
    assert gpu_metrics.of_environment({gpu_metrics.VISIBLE: "0"}) is None
    metrics = ReplicaMetrics()
    metrics.gpus = lambda: [MetricFamily("nv_gpu_utilization", "gauge")]
