"""Routes of experiments."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.filter import SearchSchema, Values, ordered, read_filter
from fairway.api.mlflow.page import page_of
from fairway.api.mlflow.parameter import VIEWS, MlflowParameters, is_viewed, one_of
from fairway.api.mlflow.response import answer, experiment_json, milliseconds
from fairway.api.mlflow.route import Handler, speaker
from fairway.app.tracking.run import TrackingUseCases
from fairway.state.mlflow_record import Experiment

NAME_LIMIT, TAG_LIMIT = 500, 20_000
"""Maximum number of characters of the title of an experiment, and of the value of a tag."""
SEARCHED = SearchSchema({"name": str, "experiment_id": str, "creation_time": int, "last_update_time": int}, ("tags",))


class ExperimentRoutes:
    """The routes of experiments."""

    def __init__(self, tracking: TrackingUseCases) -> None:
        self._experiments = tracking.experiments

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the routes by method and path."""
        return {
            ("GET", "experiments/get-by-name"): self.get_by_name,
            ("GET", "experiments/get"): self.get,
            ("POST", "experiments/create"): self.create,
            ("POST", "experiments/search"): self.search,
            ("GET", "experiments/search"): self.search,
            ("POST", "experiments/update"): self.update,
            ("POST", "experiments/delete"): self.delete,
            ("POST", "experiments/restore"): self.restore,
            ("POST", "experiments/set-experiment-tag"): self.tag,
            ("POST", "experiments/delete-experiment-tag"): self.delete_tag,
        }

    async def get_by_name(self, request: Request) -> Response:
        """Return the experiment with that title."""
        fields = await MlflowParameters.of(request)
        experiment = self._experiments.titled(speaker(request).namespace, fields.text("experiment_name"))
        return answer({"experiment": experiment_json(experiment)})

    async def get(self, request: Request) -> Response:
        """Return one experiment."""
        fields = await MlflowParameters.of(request)
        experiment = self._experiments.get(speaker(request).namespace, fields.text("experiment_id"))
        return answer({"experiment": experiment_json(experiment)})

    async def create(self, request: Request) -> Response:
        """Create an experiment."""
        fields = await MlflowParameters.of(request)
        experiment = self._experiments.create(
            speaker(request),
            fields.key("name", NAME_LIMIT),
            fields.pairs("tags", value_limit=TAG_LIMIT),
            fields.value("artifact_location"),
        )
        return answer({"experiment_id": experiment.name})

    async def update(self, request: Request) -> Response:
        """Rename an experiment."""
        fields = await MlflowParameters.of(request)
        self._experiments.rename(speaker(request), fields.text("experiment_id"), fields.key("new_name", NAME_LIMIT))
        return answer()

    async def delete(self, request: Request) -> Response:
        """Mark an experiment with its runs as deleted."""
        self._experiments.delete(speaker(request), (await MlflowParameters.of(request)).text("experiment_id"))
        return answer()

    async def restore(self, request: Request) -> Response:
        """Restore an experiment and its runs."""
        self._experiments.restore(speaker(request), (await MlflowParameters.of(request)).text("experiment_id"))
        return answer()

    async def search(self, request: Request) -> Response:
        """Return experiments that match a filter."""
        fields = await MlflowParameters.of(request)
        clauses = read_filter(fields.text("filter", ""), SEARCHED)
        view = one_of(fields, "view_type", VIEWS) or VIEWS[0]
        candidates = [
            experiment for experiment in self._experiments.all(speaker(request).namespace) if is_viewed(view, experiment.deleted)
        ]
        matches = [experiment for experiment in candidates if all(clause.holds(_values(experiment)) for clause in clauses)]
        matches.sort(key=lambda experiment: -experiment.created)
        page, following = page_of(ordered(matches, fields.texts("order_by"), _values, SEARCHED), fields)
        return answer({"experiments": [experiment_json(experiment) for experiment in page], **following})

    async def tag(self, request: Request) -> Response:
        """Set a tag on an experiment."""
        fields = await MlflowParameters.of(request)
        key, value = fields.pair(TAG_LIMIT)
        self._experiments.tag(speaker(request), fields.text("experiment_id"), {key: value})
        return answer()

    async def delete_tag(self, request: Request) -> Response:
        """Remove a tag from an experiment."""
        fields = await MlflowParameters.of(request)
        self._experiments.drop_tag(speaker(request), fields.text("experiment_id"), fields.key("key"))
        return answer()


def _values(experiment: Experiment) -> Values:
    updated = milliseconds(max(experiment.created, experiment.updated))
    times = {"creation_time": milliseconds(experiment.created), "last_update_time": updated}
    return {"attributes": {"name": experiment.title, "experiment_id": experiment.name, **times}, "tags": experiment.tags}
