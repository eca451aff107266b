"""Responses in the format of the MLflow protocol."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from fairway.app.tracking.model import DERIVED_TAGS, LINK_TAG, LOGGED, NOTE_TAG, REGISTERED, RUN_TAG, SOURCE_TAG
from fairway.app.tracking.model_version import stage_of
from fairway.app.tracking.run import MetricValue, TrackedRunView
from fairway.state.mlflow_record import Experiment, LoggedModel, RegisteredModelName
from fairway.state.model import ModelVersion

Json = dict[str, Any]


def answer(body: Mapping[str, Any] | None = None, status: int = 200) -> Response:
    """Return JSON as protocol buffers parse it."""
    return Response(json.dumps(body or {}), status, media_type="application/json")


def milliseconds(seconds: float) -> int:
    """Convert a time to its wire format."""
    return round(seconds * 1000)


def pairs(values: Mapping[str, str]) -> list[Json]:
    """Return a mapping as a list of keys and values."""
    return [{"key": key, "value": value} for key, value in values.items()]


def experiment_json(experiment: Experiment) -> Json:
    """Return one experiment."""
    return {
        "experiment_id": experiment.name,
        "name": experiment.title or experiment.name,
        # The location of a run's files is part of the run.
        "artifact_location": experiment.location or f"mlflow-artifacts:/{experiment.name}",
        "lifecycle_stage": "deleted" if experiment.deleted else "active",
        "creation_time": milliseconds(experiment.created),
        "last_update_time": milliseconds(experiment.updated or experiment.created),
        "tags": pairs(experiment.tags),
    }


def run_json(facts: TrackedRunView) -> Json:
    """Return one run with all its data."""
    run = facts.run
    info: Json = {
        "run_id": run.name,
        "run_uuid": run.name,
        "run_name": run.title or run.name,
        "experiment_id": run.experiment,
        "user_id": facts.user,
        "status": facts.status,
        "start_time": milliseconds(facts.started),
        "artifact_uri": run.location or f"mlflow-artifacts:/{run.name}",
        "lifecycle_stage": "deleted" if facts.deleted else "active",
    }
    if facts.ended is not None:
        info["end_time"] = milliseconds(facts.ended)
    tags = {"mlflow.runName": run.title or run.name, **({"fairway.job": run.job} if run.job else {}), **run.tags}
    data = {"metrics": [metric_json(item) for item in facts.metrics], "params": pairs(run.params), "tags": pairs(tags)}
    inputs = {
        "dataset_inputs": [json.loads(item) for item in run.inputs],
        "model_inputs": [{"model_id": item} for item in run.model_inputs],
    }
    outputs = {"model_outputs": [{"model_id": name, "step": step} for name, step in run.outputs.items()]}
    return {"run": {"info": info, "data": data, "inputs": inputs, "outputs": outputs}}


def metric_json(measured: MetricValue) -> Json:
    """Return one value of a metric."""
    time = milliseconds(measured.time)
    return {"key": measured.name, "value": number_json(measured.value), "timestamp": time, "step": measured.step}


def number_json(value: float) -> float | str:
    """Return a number. JSON has no representation of NaN and infinity; protocol buffers use these strings."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def logged_json(model: LoggedModel) -> Json:
    """Return a model that a run logged."""
    info = {
        "model_id": model.name,
        "experiment_id": model.experiment,
        "name": model.title,
        "creation_timestamp_ms": milliseconds(model.created),
        "last_updated_timestamp_ms": milliseconds(model.updated),
        "artifact_uri": model.location or f"mlflow-artifacts:/{LOGGED}/{model.name}",
        "status": model.status,
        "model_type": model.model_type,
        "source_run_id": model.run,
        "tags": pairs(model.tags),
    }
    metrics = [_model_metric(model, metric_key, json.loads(text)) for metric_key, text in model.metrics.items()]
    return {"model": {"info": info, "data": {"params": pairs(model.params), "metrics": metrics}}}


def _model_metric(model: LoggedModel, place: str, value: Json) -> Json:
    name, dataset, digest = json.loads(place)
    measured = MetricValue(name, float(value["value"]), value["time"], value["step"])
    about = {"dataset_name": dataset, "dataset_digest": digest} if dataset else {}
    return {**metric_json(measured), **about, "model_id": model.name, "run_id": value["run"]}


def registered_json(known: RegisteredModelName, versions: Sequence[ModelVersion], latest: Sequence[ModelVersion]) -> Json:
    """Return a model of the registry, with the newest version of each stage and its aliases."""
    times = (known.created, known.updated, *(item.created for item in versions))
    return {
        "name": known.name,
        "creation_timestamp": milliseconds(known.created),
        "last_updated_timestamp": milliseconds(max(times)),
        "description": known.description,
        "tags": pairs(known.tags),
        "latest_versions": [version_json(known, version) for version in latest],
        "aliases": [{"alias": alias, "version": str(item.version)} for item in versions for alias in item.aliases],
    }


def version_json(known: RegisteredModelName, version: ModelVersion) -> Json:
    """Return a version of a model of the registry."""
    source = source_of(known, version)
    scheme, _, rest = source.partition(":/")
    logged = rest.strip("/") if scheme == "models" and rest.lstrip("/").startswith("m-") else ""
    return {
        "name": known.name,
        "version": str(version.version),
        "creation_timestamp": milliseconds(version.created),
        "last_updated_timestamp": milliseconds(changed(known, version)),
        "current_stage": stage_of(known, version),
        "description": version.tags.get(NOTE_TAG, ""),
        "source": source,
        "run_id": run_of(version),
        "run_link": version.tags.get(LINK_TAG, ""),
        "status": "READY",
        "tags": pairs(client_tags(version)),
        "aliases": list(version.aliases),
        **({"model_id": logged} if logged else {}),
    }


def client_tags(version: ModelVersion) -> dict[str, str]:
    """Return the tags of a version that clients see."""
    return {name: value for name, value in version.tags.items() if name not in DERIVED_TAGS}


def run_of(version: ModelVersion) -> str:
    """Return the run that a version comes from; empty if unknown."""
    return version.tags.get(RUN_TAG) or version.lineage.run.rpartition("/")[2]


def source_of(known: RegisteredModelName, version: ModelVersion) -> str:
    """Return the source of a version, as its client gave it."""
    return version.tags.get(SOURCE_TAG) or version_uri(known, version)


def changed(known: RegisteredModelName, version: ModelVersion) -> float:
    """Return the time of a version's last change."""
    return max(version.created, known.touched.get(str(version.version), 0.0))


def version_uri(known: RegisteredModelName, version: ModelVersion) -> str:
    """Return the URI of a version's files."""
    return f"mlflow-artifacts:/{REGISTERED}/{known.model}/{version.version}"
