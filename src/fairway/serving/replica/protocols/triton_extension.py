"""Triton's extensions of the Open Inference Protocol: configuration, statistics, repository, settings, shared memory.

A replica serves one version of one model for its whole lifetime, so changes are refused, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from fairway.serving.replica.batching.batcher import Batcher
from fairway.serving.replica.model.served_model import ReplicaResponse, ServedModel
from fairway.serving.replica.protocols.json_tensor import read_json
from fairway.serving.replica.request_error import RequestError, bad
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.state.model import TensorSpec

Control = Callable[[bytes], ReplicaResponse]
"""Handles the body of a POST that is not inference."""

_TYPES = {"BYTES": "TYPE_STRING"}
_OFF = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": "",
        "trace_mode": "triton"}  # fmt: skip
LOGGING = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
"""The log settings that REST and gRPC report; clients cannot change them."""
_REGIONS = re.compile(r"/v2/(system|cuda)sharedmemory(?:/region/([^/]+))?/(status|register|unregister)")
_REPOSITORY = re.compile(r"/v2/repository/models/([^/]+)/(load|unload)")
_OBJECT = msgspec.json.Decoder(dict[str, Any])
EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "statistics",
    "trace",
    "logging",
]
"""The extensions that `GET /v2` lists."""


class TritonPages:
    """The requests of Triton's clients other than inference."""

    def __init__(self, model: ServedModel, batcher: Batcher, metrics: ReplicaMetrics, now: Callable[[], float]) -> None:
        self._model = model
        self._batcher = batcher
        self._metrics = metrics
        self._now = now

    def pages(self) -> dict[str, Callable[[], ReplicaResponse]]:
        """Return the handlers of GET by path."""
        handlers: dict[str, Callable[[], ReplicaResponse]] = {
            "/v2/models/stats": self._statistics,
            "/v2/logging": lambda: _told(LOGGING),
            "/v2/trace/setting": lambda: _told(_OFF),
            f"/v2/models/{self._model.name}/trace/setting": lambda: _told(_OFF),
        }
        for base in (f"/v2/models/{self._model.name}", f"/v2/models/{self._model.name}/versions/{self._model.version}"):
            handlers[f"{base}/config"] = lambda: _told(configuration(self._model, self._batcher))
            handlers[f"{base}/stats"] = self._statistics
        for kind in ("system", "cuda"):
            handlers[f"/v2/{kind}sharedmemory/status"] = lambda: _told([])
        return handlers

    def page(self, path: str) -> ReplicaResponse | None:
        """Answer a GET of a path that contains a name."""
        region = _REGIONS.fullmatch(path)
        if region is None or region[3] != "status":
            return None
        message = f"no region {region[2][:100]!r} of {region[1]} shared memory is registered"
        raise bad(message, "send tensors as binary data")

    def control(self, path: str) -> Control | None:
        """Return the handler of a POST to a path."""
        if path == "/v2/logging":
            return lambda body: _settings(body, LOGGING, "log", "log settings are fixed while the replica runs")
        if path in ("/v2/trace/setting", f"/v2/models/{self._model.name}/trace/setting"):
            return lambda body: _settings(body, _OFF, "trace", "tracing is configured for the whole service, not by its clients")
        if (repository := _REPOSITORY.fullmatch(path)) is not None:
            name, verb = repository.groups()
            return lambda body: self._load(name, body) if verb == "load" else self._unload(name)
        if (region := _REGIONS.fullmatch(path)) is not None and region[3] != "status":
            return lambda _: _no_shared_memory(region[1], region[2] or "", region[3])
        return None

    def _load(self, name: str, body: bytes) -> ReplicaResponse:
        self._check(name)
        request: dict[str, Any] = read_json(_OBJECT, body) if body.strip() else {}
        parameters = request.get("parameters") or {}
        if parameters:
            listed = ", ".join(sorted(map(str, parameters)))[:200]
            message = f"model {name!r} is already loaded; it cannot be reloaded with {listed}"
            raise bad(message, "register another version of the model, and roll it out with `fairway rollout start`")
        return _told({"name": name, "load": True})  # read by KServe's clients, not by Triton's

    def _unload(self, name: str) -> ReplicaResponse:
        self._check(name)
        message = f"this replica serves only model {name!r}, and cannot unload it"
        raise bad(message, "scale or delete the service: `fairway scale`, `fairway delete`")

    def _check(self, name: str) -> None:
        if name != self._model.name:
            message = f"no model {name[:200]!r} here"
            raise RequestError(
                404, message, fix=f"{self._model.name!r} is served; `fairway serve` starts a service for another model"
            )

    def _statistics(self) -> ReplicaResponse:
        return _told({"model_stats": [statistics(self._model, self._metrics, self._now())]})


def _told(value: object) -> ReplicaResponse:
    return ReplicaResponse(msgspec.json.encode(value))


def _settings(body: bytes, current: dict[str, Any], kind: str, fix: str) -> ReplicaResponse:
    """Handle settings that cannot be changed: current values, and null for the default, are accepted."""
    request: dict[str, Any] = read_json(_OBJECT, body) if body.strip() else {}
    for name, value in request.items():
        if name not in current:
            message = f"unknown {kind} setting {name[:100]!r}"
            raise bad(message, f"the settings are: {', '.join(current)}")
        if value is not None and _plain(value) != _plain(current[name]):
            message = f"the {kind} setting {name!r} is {current[name]!r} and cannot be changed"
            raise bad(message, fix)
    return _told(current)


def _plain(value: Any) -> Any:
    """Normalise a setting: clients send numbers as text, and a single level with or without a list."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _no_shared_memory(kind: str, name: str, verb: str) -> ReplicaResponse:
    if verb == "unregister":
        return _told({})  # nothing is registered: as in Triton, this is not an error
    message = f"{kind} shared memory is not supported, so {name[:100]!r} is not registered"
    raise bad(message, "send tensors as binary data, which is not larger than the tensor and needs no decoding")


def configuration(model: ServedModel, batcher: Batcher) -> dict[str, Any]:
    """Return the model's configuration in Triton's JSON."""
    limit = batcher.limits.max_batch if model.batches else 0
    number = model.version
    versions = {"specific": {"versions": [int(number)]}} if number.isdigit() else {"latest": {"num_versions": 1}}
    config: dict[str, Any] = {
        "name": model.name,
        "platform": model.platform,
        "backend": model.platform.partition("_")[0],
        "version_policy": versions,
        "max_batch_size": limit,
        "input": [{**_tensor(spec, limit), "format": "FORMAT_NONE", "allow_ragged_batch": False, "optional": False,
                   "is_shape_tensor": False} for spec in model.signature.inputs],
        "output": [{**_tensor(spec, limit), "label_filename": "", "is_shape_tensor": False} for spec in model.signature.outputs],
        "instance_group": [{"name": model.name, "kind": "KIND_AUTO", "count": 1, "gpus": [], "passive": False}],
        "default_model_filename": "",
        "parameters": {"batching": {"string_value": str(batcher.verdict)}},
    }  # fmt: skip
    if batcher.verdict.batched:
        rows = min(limit, batcher.verdict.rows or limit)
        config["dynamic_batching"] = {
            "preferred_batch_size": [rows],
            "max_queue_delay_microseconds": 0,
            "preserve_ordering": True,
        }
    return config


def _tensor(spec: TensorSpec, most: int) -> dict[str, Any]:
    """Return a tensor's configuration, whose dimensions exclude the batch if the model is batched."""
    dims = list(spec.shape[1:] if most else spec.shape)
    return {"name": spec.name, "data_type": _TYPES.get(spec.datatype, f"TYPE_{spec.datatype}"), "dims": dims}


def statistics(model: ServedModel, metrics: ReplicaMetrics, now: float) -> dict[str, Any]:
    """Return the statistics since the start in Triton's format.

    Requests are counted with their total time, and with queueing and running separately. Decoding and encoding are part of the
    total time and are not measured: they are reported with their counts and no time.
    """
    failed = sum(count for code, count in metrics.codes.items() if code >= 400)  # HTTP
    done = sum(metrics.codes.values()) - failed
    runs = metrics.runs
    count = sum(run.count for run in runs.values())
    rows = sum(run.rows for run in runs.values())
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(1000 * now - 1000 * metrics.since_last()) if count else 0,
        "inference_count": rows,
        "execution_count": count,
        "inference_stats": {
            "success": _duration(done, metrics.times.histograms()[0].total - metrics.failed_seconds),
            "fail": _duration(failed, metrics.failed_seconds),
            "queue": _duration(metrics.queued, metrics.queue_seconds),
            "compute_input": _duration(done, 0.0),
            "compute_infer": _duration(count, metrics.busy_seconds),
            "compute_output": _duration(done, 0.0),
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _duration(run.count, 0.0),
                "compute_infer": _duration(run.count, run.seconds),
                "compute_output": _duration(run.count, 0.0),
            }
            for size, run in sorted(runs.items())
        ],
        "memory_usage": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(1e9 * max(0.0, seconds))}
