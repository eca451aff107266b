"""Routes of models that runs logged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.filter import SearchSchema, Values, ordered, read_filter
from fairway.api.mlflow.page import page_of
from fairway.api.mlflow.parameter import MlflowParameters, one_of
from fairway.api.mlflow.response import answer, logged_json, milliseconds
from fairway.api.mlflow.route import Handler, speaker
from fairway.app.tracking.model import TrackedModelUseCases
from fairway.state.mlflow_record import LoggedModel

TEXTS = ("model_id", "model_name", "name", "status", "source_run_id", "model_type", "experiment_id")
TIMES = ("creation_timestamp", "creation_timestamp_ms", "creation_time", "last_updated_timestamp", "last_updated_timestamp_ms")
SEARCHED = SearchSchema({**dict.fromkeys(TEXTS, str), **dict.fromkeys(TIMES, int)}, ("metrics", "params", "tags"))
STATUSES = ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")


class LoggedModelRoutes:
    """The routes of models that runs logged."""

    def __init__(self, models: TrackedModelUseCases) -> None:
        self._models = models

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the routes by method and path."""
        return {
            ("POST", "logged-models"): self.create,
            ("POST", "logged-models/search"): self.search,
            ("GET", "logged-models/{model}"): self.get,
            ("PATCH", "logged-models/{model}"): self.finish,
            ("DELETE", "logged-models/{model}"): self.delete,
            ("POST", "logged-models/{model}/params"): self.log_params,
            ("PATCH", "logged-models/{model}/tags"): self.set_tags,
            ("DELETE", "logged-models/{model}/tags/{tag}"): self.delete_tag,
        }

    async def create(self, request: Request) -> Response:
        """Create a logged model; its files are uploaded later."""
        fields = await MlflowParameters.of(request)
        draft = LoggedModel(
            speaker(request).namespace,
            "",
            title=_title(fields),
            experiment=fields.text("experiment_id", "") or "0",
            run=fields.text("source_run_id", ""),
            model_type=fields.value("model_type"),
            params=fields.pairs("params"),
            tags=fields.pairs("tags"),
        )
        return answer(logged_json(self._models.log_model(speaker(request), draft)))

    async def get(self, request: Request) -> Response:
        """Return one logged model."""
        return answer(logged_json(self._models.logged(speaker(request).namespace, _name(request))))

    async def search(self, request: Request) -> Response:
        """Return logged models of some experiments that match a filter."""
        fields = await MlflowParameters.of(request)
        clauses = read_filter(fields.text("filter", ""), SEARCHED)
        candidates = self._models.all_logged(speaker(request).namespace, fields.texts("experiment_ids"))
        datasets = [(item.text("dataset_name"), item.text("dataset_digest", "")) for item in fields.parts("datasets")]

        def values(model: LoggedModel) -> Values:
            return _values(model, datasets)

        matches = [item for item in candidates if all(clause.holds(values(item)) for clause in clauses)]
        matches.sort(key=lambda item: (-item.created, item.name))
        for order in reversed(fields.parts("order_by")):
            of = [(order.text("dataset_name"), order.text("dataset_digest", ""))] if order.has("dataset_name") else []
            rising = order.flag("ascending") or not order.has("ascending")
            text = f"{order.text('field_name')} {'ASC' if rising else 'DESC'}"
            matches = ordered(matches, [text], partial(_values, datasets=of), SEARCHED)
        page, following = page_of(matches, fields, usual=100)
        return answer({"models": [logged_json(item)["model"] for item in page], **following})

    async def finish(self, request: Request) -> Response:
        """Set the final status: its files are complete, or their upload has failed."""
        fields = await MlflowParameters.of(request)
        status = one_of(fields, "status", STATUSES)
        return answer(logged_json(self._models.change_logged(speaker(request), _name(request), status=status)))

    async def delete(self, request: Request) -> Response:
        """Mark a logged model as deleted."""
        self._models.delete_logged(speaker(request), _name(request))
        return answer()

    async def log_params(self, request: Request) -> Response:
        """Set parameters."""
        fields = await MlflowParameters.of(request)
        self._models.change_logged(speaker(request), _name(request), params=fields.pairs("params"))
        return answer()

    async def set_tags(self, request: Request) -> Response:
        """Set tags."""
        fields = await MlflowParameters.of(request)
        changed = self._models.change_logged(speaker(request), _name(request), tags=fields.pairs("tags"))
        return answer(logged_json(changed))

    async def delete_tag(self, request: Request) -> Response:
        """Remove a tag."""
        self._models.drop_logged_tag(speaker(request), _name(request), str(request.path_params["tag"]))
        return answer()


def _name(request: Request) -> str:
    return str(request.path_params["model"])


def _title(fields: MlflowParameters) -> str:
    """Return the name of a new logged model, which must be usable in a path and a URI."""
    title = fields.value("name")
    if any(mark in title for mark in "/:.%\"'"):
        raise fields.wrong("name", "it must not contain any of / : . % and quotes")
    return title


def _values(model: LoggedModel, datasets: Sequence[tuple[str, str]] = ()) -> Values:
    attributes = {
        "model_id": model.name,
        "name": model.title,
        "model_name": model.title,
        "status": model.status.removeprefix("LOGGED_MODEL_"),
        "source_run_id": model.run,
        "model_type": model.model_type,
        "experiment_id": model.experiment,
        "creation_timestamp": milliseconds(model.created),
        "creation_time": milliseconds(model.created),
        "last_updated_timestamp": milliseconds(model.updated),
        "last_updated_timestamp_ms": milliseconds(model.updated),
        "creation_timestamp_ms": milliseconds(model.created),
    }
    metrics: dict[str, list[float]] = {}
    for metric_key, text in model.metrics.items():
        name, dataset, digest = json.loads(metric_key)
        if not datasets or any(dataset == dataset_name and of in ("", digest) for dataset_name, of in datasets):
            metrics.setdefault(name, []).append(float(json.loads(text)["value"]))
    return {"attributes": attributes, "metrics": metrics, "params": model.params, "tags": model.tags}
