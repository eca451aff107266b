"""Routes about experiments."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.answers import answer, experiment_json
from fairway.api.mlflow.fields import Fields
from fairway.api.mlflow.filter import Values, ordered, read_filter
from fairway.api.mlflow.paging import page_of
from fairway.api.mlflow.routing import Handler, speaker
from fairway.app.tracking import Tracking
from fairway.state.tracking import Experiment


class Experiments:
    """The routes about experiments."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def routes(self) -> dict[tuple[str, str], Handler]:
        """By method and path."""
        return {
            ("GET", "experiments/get-by-name"): self.get_by_name,
            ("GET", "experiments/get"): self.get,
            ("POST", "experiments/create"): self.create,
            ("POST", "experiments/search"): self.search,
            ("GET", "experiments/search"): self.search,
            ("POST", "experiments/set-experiment-tag"): self.tag,
        }

    async def get_by_name(self, request: Request) -> Response:
        """The experiment that people call so."""
        fields = await Fields.of(request)
        found = self._tracking.experiment_titled(speaker(request).namespace, fields.text("experiment_name"))
        return answer({"experiment": experiment_json(found)})

    async def get(self, request: Request) -> Response:
        """One experiment."""
        fields = await Fields.of(request)
        found = self._tracking.experiment(speaker(request).namespace, fields.text("experiment_id"))
        return answer({"experiment": experiment_json(found)})

    async def create(self, request: Request) -> Response:
        """A new experiment."""
        fields = await Fields.of(request)
        made = self._tracking.create_experiment(speaker(request), fields.key("name"), fields.pairs("tags"))
        return answer({"experiment_id": made.name})

    async def search(self, request: Request) -> Response:
        """Experiments that a filter lets through."""
        fields = await Fields.of(request)
        clauses = read_filter(fields.text("filter", ""))
        known = self._tracking.experiments(speaker(request).namespace)
        found = [each for each in known if all(clause.holds(_values(each)) for clause in clauses)]
        shown, following = page_of(ordered(found, fields.texts("order_by"), _values), fields)
        return answer({"experiments": [experiment_json(each) for each in shown], **following})

    async def tag(self, request: Request) -> Response:
        """Put a tag on an experiment."""
        fields = await Fields.of(request)
        key, value = fields.pair()
        self._tracking.tag_experiment(speaker(request), fields.text("experiment_id"), {key: value})
        return answer()


def _values(experiment: Experiment) -> Values:
    times = {"creation_time": experiment.created * 1000, "last_update_time": experiment.created * 1000}
    return {"attributes": {"name": experiment.title, "experiment_id": experiment.name, **times}, "tags": experiment.tags}
