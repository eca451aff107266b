"""Routes about models that runs logged."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairway.api.mlflow.answers import answer, logged_json, milliseconds
from fairway.api.mlflow.fields import Fields, one_of
from fairway.api.mlflow.filter import Values, ordered, read_filter
from fairway.api.mlflow.paging import page_of
from fairway.api.mlflow.routing import Handler, speaker
from fairway.app.tracking_models import TrackedModels
from fairway.state.tracking import LoggedModel

STATUSES = ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")


class LoggedModels:
    """The routes about models that runs logged."""

    def __init__(self, models: TrackedModels) -> None:
        self._models = models

    def routes(self) -> dict[tuple[str, str], Handler]:
        """By method and path."""
        return {
            ("POST", "logged-models"): self.create,
            ("POST", "logged-models/search"): self.search,
            ("GET", "logged-models/{model}"): self.get,
            ("PATCH", "logged-models/{model}"): self.finish,
            ("POST", "logged-models/{model}/params"): self.log_params,
            ("PATCH", "logged-models/{model}/tags"): self.set_tags,
            ("DELETE", "logged-models/{model}/tags/{tag}"): self.delete_tag,
        }

    async def create(self, request: Request) -> Response:
        """A new one; its files follow."""
        fields = await Fields.of(request)
        draft = LoggedModel(
            speaker(request).namespace,
            "",
            title=fields.value("name"),
            experiment=fields.text("experiment_id", "") or "0",
            run=fields.text("source_run_id", ""),
            model_type=fields.value("model_type"),
            params=fields.pairs("params"),
            tags=fields.pairs("tags"),
        )
        return answer(logged_json(self._models.log_model(speaker(request), draft)))

    async def get(self, request: Request) -> Response:
        """One of them."""
        return answer(logged_json(self._models.logged(speaker(request).namespace, _name(request))))

    async def search(self, request: Request) -> Response:
        """Those of some experiments that a filter lets through."""
        fields = await Fields.of(request)
        clauses = read_filter(fields.text("filter", ""))
        known = self._models.all_logged(speaker(request).namespace, fields.texts("experiment_ids"))
        found = [each for each in known if all(clause.holds(_values(each)) for clause in clauses)]
        orders = [f"{each.text('field_name')} {'ASC' if each.flag('ascending') else 'DESC'}" for each in fields.parts("order_by")]
        shown, following = page_of(ordered(found, orders, _values), fields)
        return answer({"models": [logged_json(each)["model"] for each in shown], **following})

    async def finish(self, request: Request) -> Response:
        """Its files are there, or never will be."""
        fields = await Fields.of(request)
        status = one_of(fields, "status", STATUSES)
        return answer(logged_json(self._models.change_logged(speaker(request), _name(request), status=status)))

    async def log_params(self, request: Request) -> Response:
        """Its parameters."""
        fields = await Fields.of(request)
        self._models.change_logged(speaker(request), _name(request), params=fields.pairs("params"))
        return answer()

    async def set_tags(self, request: Request) -> Response:
        """Its tags."""
        fields = await Fields.of(request)
        changed = self._models.change_logged(speaker(request), _name(request), tags=fields.pairs("tags"))
        return answer(logged_json(changed))

    async def delete_tag(self, request: Request) -> Response:
        """Take a tag off."""
        self._models.change_logged(speaker(request), _name(request), tags={str(request.path_params["tag"]): None})
        return answer()


def _name(request: Request) -> str:
    return str(request.path_params["model"])


def _values(model: LoggedModel) -> Values:
    known = {
        "model_id": model.name,
        "name": model.title,
        "status": model.status.removeprefix("LOGGED_MODEL_"),
        "source_run_id": model.run,
        "model_type": model.model_type,
        "experiment_id": model.experiment,
        "creation_timestamp": milliseconds(model.created),
        "creation_time": milliseconds(model.created),
        "last_updated_timestamp": milliseconds(model.updated),
    }
    return {"attributes": known, "params": model.params, "tags": model.tags}
