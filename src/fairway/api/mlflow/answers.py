"""What is answered, in the words of the protocol."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from fairway.app.tracking import Measured, RunFacts
from fairway.app.tracking_models import LOGGED, MAKER_TAG, NOTE_TAG, REGISTERED, RUN_TAG, SOURCE_TAG
from fairway.state.model import ModelVersion
from fairway.state.tracking import Experiment, LoggedModel, RegisteredName

Json = dict[str, Any]


def answer(body: Mapping[str, Any] | None = None, status: int = 200) -> Response:
    """JSON, as protocol buffers read it."""
    return Response(json.dumps(body or {}), status, media_type="application/json")


def milliseconds(seconds: float) -> int:
    """A moment on the wire."""
    return round(seconds * 1000)


def pairs(values: Mapping[str, str]) -> list[Json]:
    """A mapping as a list of keys and values."""
    return [{"key": key, "value": value} for key, value in values.items()]


def experiment_json(experiment: Experiment) -> Json:
    """One experiment."""
    return {
        "experiment_id": experiment.name,
        "name": experiment.title or experiment.name,
        # Runs say themselves where their files are.
        "artifact_location": f"mlflow-artifacts:/{experiment.name}",
        "lifecycle_stage": "active",
        "creation_time": milliseconds(experiment.created),
        "last_update_time": milliseconds(experiment.created),
        "tags": pairs(experiment.tags),
    }


def run_json(facts: RunFacts) -> Json:
    """One run with all that was said of it."""
    run = facts.run
    info: Json = {
        "run_id": run.name,
        "run_uuid": run.name,
        "run_name": run.title or run.name,
        "experiment_id": run.experiment,
        "user_id": facts.user,
        "status": facts.status,
        "start_time": milliseconds(facts.started),
        "artifact_uri": f"mlflow-artifacts:/{run.name}",
        "lifecycle_stage": "deleted" if run.deleted else "active",
    }
    if facts.ended is not None:
        info["end_time"] = milliseconds(facts.ended)
    tags = {"mlflow.runName": run.title or run.name, **({"fairway.job": run.job} if run.job else {}), **run.tags}
    data = {"metrics": [metric_json(each) for each in facts.metrics], "params": pairs(run.params), "tags": pairs(tags)}
    inputs = {"dataset_inputs": [json.loads(each) for each in run.inputs]}
    outputs = {"model_outputs": [{"model_id": name, "step": step} for name, step in run.outputs.items()]}
    return {"run": {"info": info, "data": data, "inputs": inputs, "outputs": outputs}}


def metric_json(measured: Measured) -> Json:
    """One value. JSON has no word for what is no number; protocol buffers do."""
    value: float | str = measured.value
    if math.isnan(measured.value):
        value = "NaN"
    elif math.isinf(measured.value):
        value = "Infinity" if measured.value > 0 else "-Infinity"
    return {"key": measured.name, "value": value, "timestamp": milliseconds(measured.time), "step": measured.step}


def logged_json(model: LoggedModel) -> Json:
    """A model that a run logged."""
    info = {
        "model_id": model.name,
        "experiment_id": model.experiment,
        "name": model.title,
        "creation_timestamp_ms": milliseconds(model.created),
        "last_updated_timestamp_ms": milliseconds(model.updated),
        "artifact_uri": f"mlflow-artifacts:/{LOGGED}/{model.name}",
        "status": model.status,
        "model_type": model.model_type,
        "source_run_id": model.run,
        "tags": pairs(model.tags),
    }
    return {"model": {"info": info, "data": {"params": pairs(model.params), "metrics": []}}}


def registered_json(known: RegisteredName, versions: list[ModelVersion]) -> Json:
    """A model of the registry, with its newest version and its aliases."""
    return {
        "name": known.name,
        "creation_timestamp": milliseconds(known.created),
        "last_updated_timestamp": milliseconds(versions[-1].created if versions else known.created),
        "description": known.description,
        "tags": pairs(known.tags),
        "latest_versions": [version_json(known, version) for version in versions[-1:]],
        "aliases": [{"alias": alias, "version": str(each.version)} for each in versions for alias in each.aliases],
    }


def version_json(known: RegisteredName, version: ModelVersion) -> Json:
    """A version of a model of the registry."""
    ours = (SOURCE_TAG, RUN_TAG, NOTE_TAG, MAKER_TAG)
    run = version.tags.get(RUN_TAG) or version.lineage.run.rpartition("/")[2]
    return {
        "name": known.name,
        "version": str(version.version),
        "creation_timestamp": milliseconds(version.created),
        "last_updated_timestamp": milliseconds(version.created),
        "current_stage": "None",
        "description": version.tags.get(NOTE_TAG, ""),
        "source": version.tags.get(SOURCE_TAG) or version_uri(known, version),
        "run_id": run,
        "status": "READY",
        "tags": pairs({name: value for name, value in version.tags.items() if name not in ours}),
        "aliases": list(version.aliases),
    }


def version_uri(known: RegisteredName, version: ModelVersion) -> str:
    """Where the files of a version can be read."""
    return f"mlflow-artifacts:/{REGISTERED}/{known.model}/{version.version}"
