"""Routes of runs: logging and queries."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.filter import SearchSchema, Values, ordered, read_filter
from fairway.api.mlflow.page import page_of
from fairway.api.mlflow.parameter import VIEWS, MlflowParameters, is_viewed, one_of, run_id
from fairway.api.mlflow.response import answer, milliseconds, run_json
from fairway.api.mlflow.route import Handler, speaker
from fairway.app.tracking.model import TrackedModelUseCases
from fairway.app.tracking.run import MetricValue, TrackedRunView
from fairway.errors import UsageError
from fairway.state.mlflow_record import TrackedRun

STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
TEXTS = ("run_id", "run_name", "status", "user_id", "artifact_uri")
SEARCHED = SearchSchema(
    {**dict.fromkeys(TEXTS, str), "start_time": int, "end_time": int}, ("metrics", "params", "tags", "datasets")
)
BATCH, BATCH_OF_TEXTS = 1000, 100
"""Maximum number of entries of one request: in total, and of parameters and of tags each."""
_AT_ONCE = 20
_HISTORY_TAG = "mlflow.log-model.history"
CONTEXT_TAG = "mlflow.data.context"
_DATASET_LIMITS = {
    "name": 500, "digest": 36, "source_type": 36, "source": 65_535, "schema": 1_048_575, "profile": 16_777_215
}  # fmt: skip


class TrackedRunRoutes:
    """The routes of runs."""

    def __init__(self, models: TrackedModelUseCases) -> None:
        self._models = models
        self._tracking = models.tracking

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the routes by method and path."""
        return {
            ("POST", "runs/create"): self.create,
            ("POST", "runs/update"): self.update,
            ("GET", "runs/get"): self.get,
            ("POST", "runs/search"): self.search,
            ("POST", "runs/delete"): self.delete,
            ("POST", "runs/restore"): self.restore,
            ("POST", "runs/log-parameter"): self.log_parameter,
            ("POST", "runs/log-metric"): self.log_metric,
            ("POST", "runs/log-batch"): self.log_batch,
            ("POST", "runs/set-tag"): self.set_tag,
            ("POST", "runs/delete-tag"): self.delete_tag,
            ("POST", "runs/log-inputs"): self.log_inputs,
            ("POST", "runs/outputs"): self.log_outputs,
            ("POST", "runs/log-model"): self.log_model,
        }

    async def create(self, request: Request) -> Response:
        """Create a run; the first one that a job creates is the job's own run."""
        fields = await MlflowParameters.of(request)
        run = self._tracking.create_run(
            speaker(request),
            fields.text("experiment_id", "") or "0",
            fields.value("run_name"),
            fields.seconds("start_time"),
            _with_user(fields),
        )
        return answer(run_json(self._tracking.facts(run)))

    async def update(self, request: Request) -> Response:
        """Change the status."""
        fields = await MlflowParameters.of(request)
        ended = fields.seconds("end_time") if fields.has("end_time") else None
        status = one_of(fields, "status", STATUSES)
        changed = self._tracking.update_run(speaker(request), self._run(request, fields), status, ended, fields.value("run_name"))
        return answer({"run_info": run_json(self._tracking.facts(changed))["run"]["info"]})

    async def get(self, request: Request) -> Response:
        """Return one run with all its data."""
        fields = await MlflowParameters.of(request)
        return answer(run_json(self._tracking.facts(self._run(request, fields))))

    async def search(self, request: Request) -> Response:
        """Return runs of some experiments that match a filter."""
        fields = await MlflowParameters.of(request)
        clauses, orders = read_filter(fields.text("filter", ""), SEARCHED), fields.texts("order_by")
        view = one_of(fields, "run_view_type", VIEWS) or VIEWS[0]
        candidates = self._tracking.runs(speaker(request).namespace, fields.texts("experiment_ids"))
        chosen = [run for run in candidates if is_viewed(view, self._tracking.is_deleted(run))]
        if not clauses and not orders:
            # Only the runs of the page need their facts.
            page, following = page_of(chosen, fields)
            shown = await self._facts(page)
        else:
            matches = [facts for facts in await self._facts(chosen) if all(clause.holds(_values(facts)) for clause in clauses)]
            matches.sort(key=lambda facts: (-facts.started, facts.run.name))
            shown, following = page_of(ordered(matches, orders, _values, SEARCHED), fields)
        return answer({"runs": [run_json(facts)["run"] for facts in shown], **following})

    async def delete(self, request: Request) -> Response:
        """Mark a run as deleted."""
        self._tracking.delete_run(speaker(request), self._run(request, await MlflowParameters.of(request)))
        return answer()

    async def restore(self, request: Request) -> Response:
        """Restore a run."""
        self._tracking.restore_run(speaker(request), self._run(request, await MlflowParameters.of(request)))
        return answer()

    async def log_parameter(self, request: Request) -> Response:
        """Store one parameter."""
        fields = await MlflowParameters.of(request)
        await self._tracking.log(speaker(request), self._run(request, fields), params=dict([fields.pair()]))
        return answer()

    async def log_metric(self, request: Request) -> Response:
        """Store one value of one metric."""
        fields = await MlflowParameters.of(request)
        run, measured = self._run(request, fields), self._measured(fields)
        of_models = self._of_models(request, [fields])
        await self._tracking.log(speaker(request), run, metrics=[measured])
        self._measure_models(request, run, of_models)
        return answer()

    async def log_batch(self, request: Request) -> Response:
        """Store many values, parameters and tags; all or none."""
        fields = await MlflowParameters.of(request)
        run = self._run(request, fields)
        metrics, params = fields.parts("metrics", BATCH), fields.parts("params", BATCH_OF_TEXTS)
        tags = fields.pairs("tags", BATCH_OF_TEXTS)
        if len(metrics) + len(params) + len(tags) > BATCH:
            message = f"a batch logging request can contain at most {BATCH} metrics, params, and tags together"
            raise UsageError(message, fix="send them in several requests")
        pairs = [item.pair() for item in params]
        if len(dict(pairs)) < len(pairs):
            duplicates = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            message = f"Duplicate parameter keys have been submitted: {', '.join(duplicates)[:200]}"
            raise UsageError(message, fix="send one value of each parameter")
        measured, of_models = [self._measured(item) for item in metrics], self._of_models(request, metrics)
        await self._tracking.log(speaker(request), run, measured, dict(pairs), tags)
        self._measure_models(request, run, of_models)
        return answer()

    async def set_tag(self, request: Request) -> Response:
        """Set one tag."""
        fields = await MlflowParameters.of(request)
        await self._tracking.log(speaker(request), self._run(request, fields), tags=dict([fields.pair()]))
        return answer()

    async def delete_tag(self, request: Request) -> Response:
        """Remove a tag."""
        fields = await MlflowParameters.of(request)
        self._tracking.drop_tag(speaker(request), self._run(request, fields), fields.key("key"))
        return answer()

    async def log_inputs(self, request: Request) -> Response:
        """Record the datasets that the run read."""
        fields = await MlflowParameters.of(request)
        run = self._run(request, fields)
        if not fields.has("datasets") and not fields.has("models"):
            raise fields.missing("datasets")
        inputs = [_dataset_input(item) for item in fields.parts("datasets")]
        models = [item.text("model_id") for item in fields.parts("models")]
        self._tracking.note(speaker(request), run, {}, inputs, models)
        return answer()

    async def log_outputs(self, request: Request) -> Response:
        """Record the models that the run logged."""
        fields = await MlflowParameters.of(request)
        outputs = {item.text("model_id"): item.number("step") for item in fields.parts("models")}
        self._tracking.note(speaker(request), self._run(request, fields), outputs, [])
        return answer()

    async def log_model(self, request: Request) -> Response:
        """Record a logged model in the way of older clients: in a tag in which they look for it."""
        fields = await MlflowParameters.of(request)
        run = self._run(request, fields)
        models = _read_models(run.tags.get(_HISTORY_TAG, "[]"))
        models.append(MlflowParameters({"model": _read_json(fields.text("model_json"))}).part("model").plain())
        await self._tracking.log(speaker(request), run, tags={_HISTORY_TAG: json.dumps(models)})
        return answer()

    async def _facts(self, runs: list[TrackedRun]) -> list[TrackedRunView]:
        """Return the data of each run. Other requests are served in between, because there may be many runs."""
        facts = []
        for run in runs:
            facts.append(self._tracking.facts(run))
            if len(facts) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return facts

    def _run(self, request: Request, fields: MlflowParameters) -> TrackedRun:
        return self._tracking.run(speaker(request).namespace, run_id(fields))

    def _measured(self, fields: MlflowParameters) -> MetricValue:
        key, value = fields.entity("key"), fields.real("value")
        return MetricValue(key, value, fields.moment("timestamp"), fields.number("step"))

    def _of_models(self, request: Request, metrics: Sequence[MlflowParameters]) -> list[tuple[str, MetricValue, tuple[str, str]]]:
        """Return the metrics that also belong to a logged model; raise if there is no such model."""
        measured = []
        for item in metrics:
            if model := item.text("model_id", ""):
                self._models.logged(speaker(request).namespace, model)
                measured.append((model, self._measured(item), (item.value("dataset_name"), item.value("dataset_digest"))))
        return measured

    def _measure_models(
        self, request: Request, run: TrackedRun, metrics: Sequence[tuple[str, MetricValue, tuple[str, str]]]
    ) -> None:
        for model, measured, dataset in metrics:
            self._models.measure_logged(speaker(request), model, run.name, measured, dataset)


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _read_models(text: str) -> list[Any]:
    models = _read_json(text)
    return models if isinstance(models, list) else []


def _with_user(fields: MlflowParameters) -> dict[str, str]:
    """Return the tags of a new run; older clients send its user in a separate field."""
    tags, user = fields.pairs("tags"), fields.value("user_id")
    return {"mlflow.user": user, **tags} if user and user != "unknown" else tags


def _dataset_input(fields: MlflowParameters) -> str:
    """Return a dataset that a run read, in its stored form."""
    dataset = fields.part("dataset")
    for name, limit in _DATASET_LIMITS.items():
        dataset.value(name, limit)
    dataset.text("name")
    for tag in fields.parts("tags"):
        tag.key("key", 255)
        tag.value("value", 500)
    return json.dumps(fields.plain(), sort_keys=True)


def _datasets(run: TrackedRun) -> dict[str, list[str]]:
    """Return names, digests and contexts of the datasets that a run read, for filters."""
    inputs = [json.loads(item) for item in run.inputs]
    contexts = [tag.get("value", "") for item in inputs for tag in item.get("tags", []) if tag.get("key") == CONTEXT_TAG]
    datasets = [item.get("dataset", {}) for item in inputs]
    return {
        "name": [item.get("name", "") for item in datasets],
        "digest": [item.get("digest", "") for item in datasets],
        "context": contexts,
    }


def _values(facts: TrackedRunView) -> Values:
    run = facts.run
    attributes: dict[str, Any] = {
        "run_id": run.name,
        "run_name": run.title or run.name,
        "status": facts.status,
        "user_id": facts.user,
        "start_time": milliseconds(facts.started),
        "end_time": None if facts.ended is None else milliseconds(facts.ended),
        "artifact_uri": run.location or f"mlflow-artifacts:/{run.name}",
    }
    metrics = {metric.name: metric.value for metric in facts.metrics}
    tags = {"mlflow.runName": run.title or run.name, "fairway.job": run.job or None, **run.tags}
    return {"attributes": attributes, "metrics": metrics, "params": run.params, "tags": tags, "datasets": _datasets(run)}
