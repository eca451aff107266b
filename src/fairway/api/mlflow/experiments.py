"""Routes about experiments."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.answers import answer, experiment_json, milliseconds
from fairway.api.mlflow.fields import VIEWS, Fields, is_viewed, one_of
from fairway.api.mlflow.filter import Searched, Values, ordered, read_filter
from fairway.api.mlflow.paging import page_of
from fairway.api.mlflow.routing import Handler, speaker
from fairway.app.tracking import Tracking
from fairway.state.tracking import Experiment

NAME_LIMIT, TAG_LIMIT = 500, 20_000
"""Characters of the title of an experiment, and of the value of a tag."""
SEARCHED = Searched({"name": str, "experiment_id": str, "creation_time": int, "last_update_time": int}, ("tags",))


class Experiments:
    """The routes about experiments."""

    def __init__(self, tracking: Tracking) -> None:
        self._experiments = tracking.experiments

    def routes(self) -> dict[tuple[str, str], Handler]:
        """By method and path."""
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
        """The experiment that people call so."""
        fields = await Fields.of(request)
        found = self._experiments.titled(speaker(request).namespace, fields.text("experiment_name"))
        return answer({"experiment": experiment_json(found)})

    async def get(self, request: Request) -> Response:
        """One experiment."""
        fields = await Fields.of(request)
        found = self._experiments.get(speaker(request).namespace, fields.text("experiment_id"))
        return answer({"experiment": experiment_json(found)})

    async def create(self, request: Request) -> Response:
        """A new experiment."""
        fields = await Fields.of(request)
        made = self._experiments.create(
            speaker(request),
            fields.key("name", NAME_LIMIT),
            fields.pairs("tags", value_limit=TAG_LIMIT),
            fields.value("artifact_location"),
        )
        return answer({"experiment_id": made.name})

    async def update(self, request: Request) -> Response:
        """Give an experiment another title."""
        fields = await Fields.of(request)
        self._experiments.rename(speaker(request), fields.text("experiment_id"), fields.key("new_name", NAME_LIMIT))
        return answer()

    async def delete(self, request: Request) -> Response:
        """Hide an experiment with its runs."""
        self._experiments.delete(speaker(request), (await Fields.of(request)).text("experiment_id"))
        return answer()

    async def restore(self, request: Request) -> Response:
        """Show an experiment and its runs again."""
        self._experiments.restore(speaker(request), (await Fields.of(request)).text("experiment_id"))
        return answer()

    async def search(self, request: Request) -> Response:
        """Experiments that a filter lets through."""
        fields = await Fields.of(request)
        clauses = read_filter(fields.text("filter", ""), SEARCHED)
        view = one_of(fields, "view_type", VIEWS) or VIEWS[0]
        known = [each for each in self._experiments.all(speaker(request).namespace) if is_viewed(view, each.deleted)]
        found = [each for each in known if all(clause.holds(_values(each)) for clause in clauses)]
        found.sort(key=lambda each: -each.created)
        shown, following = page_of(ordered(found, fields.texts("order_by"), _values, SEARCHED), fields)
        return answer({"experiments": [experiment_json(each) for each in shown], **following})

    async def tag(self, request: Request) -> Response:
        """Put a tag on an experiment."""
        fields = await Fields.of(request)
        key, value = fields.pair(TAG_LIMIT)
        self._experiments.tag(speaker(request), fields.text("experiment_id"), {key: value})
        return answer()

    async def delete_tag(self, request: Request) -> Response:
        """Take a tag off an experiment."""
        fields = await Fields.of(request)
        self._experiments.drop_tag(speaker(request), fields.text("experiment_id"), fields.key("key"))
        return answer()


def _values(experiment: Experiment) -> Values:
    updated = milliseconds(max(experiment.created, experiment.updated))
    times = {"creation_time": milliseconds(experiment.created), "last_update_time": updated}
    return {"attributes": {"name": experiment.title, "experiment_id": experiment.name, **times}, "tags": experiment.tags}
