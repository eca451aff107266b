"""Routes of metric values over time, and of the datasets of experiments."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.page import page_of
from fairway.api.mlflow.parameter import MlflowParameters, run_id
from fairway.api.mlflow.response import answer, metric_json
from fairway.api.mlflow.route import Handler, speaker
from fairway.api.mlflow.run import CONTEXT_TAG
from fairway.app.tracking.run import MetricValue, TrackingUseCases
from fairway.errors import UsageError

MOST_RUNS, MOST_VALUES, MOST_SAMPLED, MOST_EXPERIMENTS, MOST_DATASETS = 100, 25_000, 2500, 20, 1000


class MetricHistoryRoutes:
    """The routes of values over time."""

    def __init__(self, tracking: TrackingUseCases) -> None:
        self._tracking = tracking

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the routes by method and path."""
        return {
            ("GET", "metrics/get-history"): self.of_run,
            ("GET", "metrics/get-history-bulk"): self.of_runs,
            ("GET", "metrics/get-history-bulk-interval"): self.sampled,
            ("POST", "experiments/search-datasets"): self.datasets,
        }

    async def of_run(self, request: Request) -> Response:
        """Return every value of one metric, in pages if the client requests pages."""
        fields = await MlflowParameters.of(request)
        values = self._values(request, run_id(fields), fields.text("metric_key"))
        page, following = page_of(values, fields, usual=max(1, len(values)), most=max(MOST_VALUES, len(values)))
        return answer({"metrics": [metric_json(value) for value in page], **following})

    async def of_runs(self, request: Request) -> Response:
        """Return every value of one metric of several runs."""
        fields = await MlflowParameters.of(request)
        runs = self._runs(fields, "run_id", "GetMetricHistoryBulk")
        if not fields.has("metric_key"):
            message = "GetMetricHistoryBulk request must specify a metric_key"
            raise UsageError(message, fix="name the metric")
        most = min(fields.number("max_results", MOST_VALUES), MOST_VALUES)
        if most < 1:
            raise fields.wrong("max_results", "It must be a positive integer")
        values = [value for run in sorted(runs) for value in self._shown(request, run, fields.text("metric_key"))]
        return answer({"metrics": values[:most]})

    async def sampled(self, request: Request) -> Response:
        """Return values of one metric of several runs at selected steps, which are the same for all runs."""
        fields = await MlflowParameters.of(request)
        if not fields.has("run_ids"):
            raise fields.missing("run_ids")
        runs = self._runs(fields, "run_ids", "GetMetricHistoryBulkInterval")
        key, most = fields.text("metric_key"), fields.number("max_results", MOST_SAMPLED)
        if not 1 <= most <= MOST_SAMPLED:
            raise fields.wrong("max_results", f"max_results must be between 1 and {MOST_SAMPLED}")
        if fields.has("start_step") != fields.has("end_step"):
            message = "If either start step or end step are specified, both must be specified"
            raise UsageError(message, fix="send start_step and end_step, or none of them")
        bounds = (fields.number("start_step"), fields.number("end_step")) if fields.has("end_step") else None
        if bounds is not None and bounds[0] > bounds[1]:
            message = f"end_step must be greater than start_step. They are {bounds[1]} and {bounds[0]}"
            raise UsageError(message, fix="swap them")
        by_run = {run: self._values(request, run, key) for run in runs}
        chosen = {run: chosen_steps(sorted({value.step for value in values}), bounds, most) for run, values in by_run.items()}
        sampled_values = [
            {**metric_json(value), "run_id": run}
            for run, values in by_run.items()
            for value in sorted(values, key=lambda value: (value.step, value.time))
            if value.step in chosen[run]
        ]
        return answer({"metrics": sampled_values[:MOST_VALUES]})

    async def datasets(self, request: Request) -> Response:
        """Return the datasets that the runs of some experiments read."""
        fields = await MlflowParameters.of(request)
        experiments = fields.texts("experiment_ids")
        if not experiments:
            message = "SearchDatasets request must specify at least one experiment_id"
            raise UsageError(message, fix="name an experiment")
        if len(experiments) > MOST_EXPERIMENTS:
            message = f"SearchDatasets request cannot specify more than {MOST_EXPERIMENTS} experiment_ids"
            raise UsageError(message, fix="ask several times")
        summaries: dict[str, dict[str, Any]] = {}
        for run in self._tracking.runs(speaker(request).namespace, experiments):
            for dataset_input in map(json.loads, run.inputs if not self._tracking.is_deleted(run) else ()):
                summary = {
                    "experiment_id": run.experiment,
                    **{key: dataset_input.get("dataset", {}).get(key, "") for key in ("name", "digest")},
                }
                context = [tag.get("value", "") for tag in dataset_input.get("tags", []) if tag.get("key") == CONTEXT_TAG]
                summary |= {"context": context[0]} if context else {}
                summaries.setdefault(json.dumps(summary), summary)
        return answer({"dataset_summaries": list(summaries.values())[:MOST_DATASETS]})

    def _runs(self, fields: MlflowParameters, name: str, request: str) -> list[str]:
        runs = list(dict.fromkeys(fields.texts(name)))
        if not runs:
            message = f"{request} request must specify at least one run_id"
            raise UsageError(message, fix="name a run")
        if len(runs) > MOST_RUNS:
            which = "cannot specify more than" if name == "run_id" else "must specify at most"
            message = (
                f"{request} request {which} {MOST_RUNS} {name}{'s' if name == 'run_id' else ''}. Received {len(runs)} of them"
            )
            raise UsageError(message, fix="ask several times")
        return runs

    def _values(self, request: Request, run: str, key: str) -> list[MetricValue]:
        values = self._tracking.history(self._tracking.run(speaker(request).namespace, run), key)
        return sorted(values, key=lambda value: (value.time, value.step))

    def _shown(self, request: Request, run: str, key: str) -> list[dict[str, Any]]:
        return [{**metric_json(value), "run_id": run} for value in self._values(request, run, key)]


def chosen_steps(steps: list[int], bounds: tuple[int, int] | None, most: int) -> set[int]:
    """Return at most `most` of the steps within the bounds, evenly spread and always including the last one."""
    within = steps[bisect_left(steps, bounds[0]) : bisect_left(steps, bounds[1] + 1)] if bounds else steps
    if len(within) <= most:
        return set(within)
    return {*(within[number * len(within) // most] for number in range(most - 1)), within[-1]}
