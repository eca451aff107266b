"""Routes about runs: what is said of them, and what is asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.answers import answer, metric_json, milliseconds, run_json
from fairway.api.mlflow.fields import Fields, one_of, run_id
from fairway.api.mlflow.filter import Values, ordered, read_filter
from fairway.api.mlflow.paging import page_of
from fairway.api.mlflow.routing import Handler, speaker
from fairway.app.tracking import Measured, RunFacts, Tracking
from fairway.state.tracking import TrackedRun

STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
VIEWS = ("ACTIVE_ONLY", "DELETED_ONLY", "ALL")
_AT_ONCE = 20
_HISTORY_TAG = "mlflow.log-model.history"


class Runs:
    """The routes about runs."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def routes(self) -> dict[tuple[str, str], Handler]:
        """By method and path."""
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
            ("GET", "metrics/get-history"): self.history,
        }

    async def create(self, request: Request) -> Response:
        """A run to log to: the first that a job asks for is its own."""
        fields = await Fields.of(request)
        made = self._tracking.create_run(
            speaker(request),
            fields.text("experiment_id", "") or "0",
            fields.value("run_name"),
            fields.seconds("start_time"),
            fields.pairs("tags"),
        )
        return answer(run_json(self._tracking.facts(made)))

    async def update(self, request: Request) -> Response:
        """How it stands."""
        fields = await Fields.of(request)
        ended = fields.seconds("end_time") if fields.has("end_time") else None
        status = one_of(fields, "status", STATUSES)
        changed = self._tracking.update_run(speaker(request), self._run(request, fields), status, ended, fields.value("run_name"))
        return answer({"run_info": run_json(self._tracking.facts(changed))["run"]["info"]})

    async def get(self, request: Request) -> Response:
        """One run with all that was said of it."""
        fields = await Fields.of(request)
        return answer(run_json(self._tracking.facts(self._run(request, fields))))

    async def search(self, request: Request) -> Response:
        """Runs of some experiments that a filter lets through."""
        fields = await Fields.of(request)
        clauses, orders = read_filter(fields.text("filter", "")), fields.texts("order_by")
        view = one_of(fields, "run_view_type", VIEWS) or VIEWS[0]
        known = self._tracking.runs(speaker(request).namespace, fields.texts("experiment_ids"))
        chosen = [run for run in known if view == "ALL" or run.deleted == (view == "DELETED_ONLY")]
        if not clauses and not orders:
            # Nothing needs to be known of those that are not shown.
            page, following = page_of(chosen, fields)
            shown = await self._facts(page)
        else:
            found = [each for each in await self._facts(chosen) if all(clause.holds(_values(each)) for clause in clauses)]
            shown, following = page_of(ordered(found, orders, _values), fields)
        return answer({"runs": [run_json(each)["run"] for each in shown], **following})

    async def delete(self, request: Request) -> Response:
        """Hide a run."""
        self._tracking.delete_run(speaker(request), self._run(request, await Fields.of(request)))
        return answer()

    async def restore(self, request: Request) -> Response:
        """Show a run again."""
        self._tracking.restore_run(speaker(request), self._run(request, await Fields.of(request)))
        return answer()

    async def log_parameter(self, request: Request) -> Response:
        """One parameter."""
        fields = await Fields.of(request)
        await self._tracking.log(speaker(request), self._run(request, fields), params=dict([fields.pair()]))
        return answer()

    async def log_metric(self, request: Request) -> Response:
        """One value of one metric."""
        fields = await Fields.of(request)
        await self._tracking.log(speaker(request), self._run(request, fields), metrics=[self._measured(fields)])
        return answer()

    async def log_batch(self, request: Request) -> Response:
        """Many values, parameters and tags; all or none."""
        fields = await Fields.of(request)
        await self._tracking.log(
            speaker(request),
            self._run(request, fields),
            [self._measured(each) for each in fields.parts("metrics")],
            fields.pairs("params"),
            fields.pairs("tags"),
        )
        return answer()

    async def set_tag(self, request: Request) -> Response:
        """One tag."""
        fields = await Fields.of(request)
        await self._tracking.log(speaker(request), self._run(request, fields), tags=dict([fields.pair()]))
        return answer()

    async def delete_tag(self, request: Request) -> Response:
        """Take a tag off."""
        fields = await Fields.of(request)
        self._tracking.drop_tag(speaker(request), self._run(request, fields), fields.key("key"))
        return answer()

    async def log_inputs(self, request: Request) -> Response:
        """Which datasets it read."""
        fields = await Fields.of(request)
        inputs = [json.dumps(each.plain(), sort_keys=True) for each in fields.parts("datasets")]
        self._tracking.note(speaker(request), self._run(request, fields), {}, inputs)
        return answer()

    async def log_outputs(self, request: Request) -> Response:
        """Which models it logged."""
        fields = await Fields.of(request)
        outputs = {each.text("model_id"): each.number("step") for each in fields.parts("models")}
        self._tracking.note(speaker(request), self._run(request, fields), outputs, [])
        return answer()

    async def log_model(self, request: Request) -> Response:
        """That it logged a model, as older clients tell it: a tag in which they look for it."""
        fields = await Fields.of(request)
        run = self._run(request, fields)
        said = _read_models(run.tags.get(_HISTORY_TAG, "[]"))
        said.append(Fields({"model": _read_json(fields.text("model_json"))}).part("model").plain())
        await self._tracking.log(speaker(request), run, tags={_HISTORY_TAG: json.dumps(said)})
        return answer()

    async def history(self, request: Request) -> Response:
        """Every value of one metric."""
        fields = await Fields.of(request)
        found = self._tracking.history(self._run(request, fields), fields.text("metric_key"))
        shown, following = page_of(found, fields, usual=len(found) or 1)
        return answer({"metrics": [metric_json(each) for each in shown], **following})

    async def _facts(self, runs: list[TrackedRun]) -> list[RunFacts]:
        """What is known of each. Others are answered in between: there may be many."""
        found = []
        for run in runs:
            found.append(self._tracking.facts(run))
            if len(found) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    def _run(self, request: Request, fields: Fields) -> TrackedRun:
        return self._tracking.run(speaker(request).namespace, run_id(fields))

    def _measured(self, fields: Fields) -> Measured:
        time = fields.seconds("timestamp") or self._tracking.clock.now()
        return Measured(fields.key("key"), fields.real("value"), time, fields.number("step"))


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _read_models(text: str) -> list[Any]:
    found = _read_json(text)
    return found if isinstance(found, list) else []


def _values(facts: RunFacts) -> Values:
    run = facts.run
    known: dict[str, Any] = {
        "run_id": run.name,
        "run_name": run.title or run.name,
        "status": facts.status,
        "user_id": facts.user,
        "start_time": milliseconds(facts.started),
        "end_time": None if facts.ended is None else milliseconds(facts.ended),
        "artifact_uri": f"mlflow-artifacts:/{run.name}",
    }
    metrics = {each.name: each.value for each in facts.metrics}
    tags = {"mlflow.runName": run.title or run.name, "fairway.job": run.job or None, **run.tags}
    return {"attributes": known, "metrics": metrics, "params": run.params, "tags": tags}
