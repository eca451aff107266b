"""What a run's token may do at every route, with objects of its own run and of others.

`TABLE` has a row for every route. A route without a row fails `test_every_route_has_a_verdict`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairway.api.mlflow.asgi import all_routes
from fairway.state.mlflow_record import KINDS, TrackedRun
from fairway.testing.builder.model_file import onnx_file

OWN, CHILD, FOREIGN, OUTSIDE = "own", "child", "foreign", "outside"
"""Owners of an object: the run itself, a nested run, another job, the namespace's owner outside of any job."""
WHOSE = (OWN, CHILD, FOREIGN, OUTSIDE)
OK, DENIED = 200, 403


@dataclass(frozen=True)
class Row:
    """The request for one route (`{run}`, `{model}` ... are placeholders for objects), and the status for each owner of these."""

    body: dict[str, Any] | bytes = field(default_factory=dict)
    own: int = OK
    foreign: int = OK

    def status(self, whose: str) -> int:
        return self.own if whose in (OWN, CHILD) else self.foreign


def reads(**body: Any) -> Row:
    """Return a row for a route that reads: a run may read all of its namespace."""
    return Row(body)


def changes(**body: Any) -> Row:
    """Return a row for a route that changes: a run may change only what it made."""
    return Row(body, OK, DENIED)


A_TAG = {"key": "k", "value": "v"}
ROOT = "mlflow-artifacts/artifacts"
TABLE: dict[tuple[str, str], Row] = {
    ("GET", "mlflow/experiments/get-by-name"): reads(experiment_name="{experiment}"),
    ("GET", "mlflow/experiments/get"): reads(experiment_id="{experiment}"),
    ("POST", "mlflow/experiments/create"): reads(name="new-{whose}"),
    ("POST", "mlflow/experiments/search"): reads(max_results=9),
    ("GET", "mlflow/experiments/search"): reads(max_results=9),
    ("POST", "mlflow/experiments/set-experiment-tag"): changes(experiment_id="{experiment}", **A_TAG),
    ("POST", "mlflow/experiments/delete-experiment-tag"): changes(experiment_id="{group}", key="there"),
    ("POST", "mlflow/experiments/update"): changes(experiment_id="{group}", new_name="renamed-{whose}"),
    ("POST", "mlflow/experiments/delete"): changes(experiment_id="{group}"),
    ("POST", "mlflow/experiments/restore"): changes(experiment_id="{group}"),
    ("POST", "mlflow/experiments/search-datasets"): reads(experiment_ids=["{experiment}"]),
    # A run may be created in any experiment and below any run: only the new run is written.
    ("POST", "mlflow/runs/create"): reads(
        experiment_id="{experiment}", start_time=1, tags=[{"key": "mlflow.parentRunId", "value": "{run}"}]
    ),
    ("POST", "mlflow/runs/update"): changes(run_id="{run}", status="FINISHED", run_name="taken"),
    ("GET", "mlflow/runs/get"): reads(run_id="{run}"),
    ("POST", "mlflow/runs/search"): reads(experiment_ids=["{experiment}"]),
    ("POST", "mlflow/runs/delete"): changes(run_id="{spare}"),
    ("POST", "mlflow/runs/restore"): changes(run_id="{spare}"),
    ("POST", "mlflow/runs/log-parameter"): changes(run_id="{run}", **A_TAG),
    ("POST", "mlflow/runs/log-metric"): changes(run_id="{run}", key="loss", value=0.1, timestamp=1, step=1),
    ("POST", "mlflow/runs/log-batch"): changes(run_id="{run}", tags=[A_TAG], params=[{"key": "p", "value": "1"}]),
    ("POST", "mlflow/runs/set-tag"): changes(run_id="{run}", **A_TAG),
    ("POST", "mlflow/runs/delete-tag"): changes(run_id="{run}", key="there"),
    ("POST", "mlflow/runs/log-inputs"): changes(run_id="{run}", datasets=[{"dataset": {"name": "d"}}]),
    ("POST", "mlflow/runs/outputs"): changes(run_id="{run}", models=[{"model_id": "m-1", "step": 1}]),
    ("POST", "mlflow/runs/log-model"): changes(run_id="{run}", model_json="{{}}"),
    ("GET", "mlflow/metrics/get-history"): reads(run_id="{run}", metric_key="loss"),
    ("GET", "mlflow/metrics/get-history-bulk"): reads(run_id="{run}", metric_key="loss"),
    ("GET", "mlflow/metrics/get-history-bulk-interval"): reads(run_ids="{run}", metric_key="loss"),
    ("POST", "mlflow/logged-models"): changes(experiment_id="mnist", name="net", source_run_id="{run}"),
    ("POST", "mlflow/logged-models/search"): reads(experiment_ids=["{experiment}"]),
    ("GET", "mlflow/logged-models/{model}"): reads(),
    ("PATCH", "mlflow/logged-models/{model}"): changes(status="LOGGED_MODEL_READY"),
    ("DELETE", "mlflow/logged-models/{model}"): changes(),
    ("POST", "mlflow/logged-models/{model}/params"): changes(params=[A_TAG]),
    ("PATCH", "mlflow/logged-models/{model}/tags"): changes(tags=[A_TAG]),
    ("DELETE", "mlflow/logged-models/{model}/tags/{tag}"): changes(),
    ("GET", "mlflow/logged-models/{model}/artifacts/directories"): reads(),
    ("POST", "mlflow/registered-models/create"): reads(name="fresh-{whose}"),
    ("GET", "mlflow/registered-models/get"): reads(name="{registered}"),
    ("PATCH", "mlflow/registered-models/update"): changes(name="{registered}", description="taken"),
    ("POST", "mlflow/registered-models/rename"): changes(name="{registered}", new_name="renamed-{whose}"),
    ("DELETE", "mlflow/registered-models/delete"): changes(name="{plain}"),
    ("DELETE", "mlflow/registered-models/delete-tag"): changes(name="{registered}", key="k"),
    ("GET", "mlflow/registered-models/search"): reads(max_results=9),
    ("POST", "mlflow/registered-models/set-tag"): changes(name="{registered}", **A_TAG),
    ("POST", "mlflow/registered-models/get-latest-versions"): reads(name="{registered}"),
    ("GET", "mlflow/registered-models/get-latest-versions"): reads(name="{registered}"),
    ("POST", "mlflow/registered-models/alias"): changes(name="{registered}", alias="champion", version="2"),
    ("GET", "mlflow/registered-models/alias"): reads(name="{registered}", alias="champion"),
    ("DELETE", "mlflow/registered-models/alias"): changes(name="{registered}", alias="champion"),
    # A run may create its own version of any model, from anything that it may read; this changes nothing of others.
    ("POST", "mlflow/model-versions/create"): reads(name="{registered}", source="models:/{model}"),
    ("GET", "mlflow/model-versions/get"): reads(name="{registered}", version="1"),
    ("GET", "mlflow/model-versions/search"): reads(max_results=9),
    ("PATCH", "mlflow/model-versions/update"): changes(name="{registered}", version="1", description="taken"),
    ("DELETE", "mlflow/model-versions/delete"): changes(name="{registered}", version="2"),
    ("POST", "mlflow/model-versions/set-tag"): changes(name="{registered}", version="1", **A_TAG),
    ("DELETE", "mlflow/model-versions/delete-tag"): changes(name="{registered}", version="1", key="k"),
    ("POST", "mlflow/model-versions/transition-stage"): changes(
        name="{registered}", version="2", stage="Production", archive_existing_versions=True
    ),
    ("GET", "mlflow/model-versions/get-download-uri"): reads(name="{registered}", version="1"),
    ("GET", ROOT): reads(path="{run}"),
    ("GET", f"{ROOT}/{{path:path}}"): reads(),
    ("PUT", f"{ROOT}/{{path:path}}"): Row(b"taken", OK, DENIED),
    ("DELETE", f"{ROOT}/{{path:path}}"): changes(),
    ("GET", "mlflow/artifacts/list"): reads(run_id="{run}"),
}  # fmt: skip


async def made_by(call: Any, run: str, experiment: str, registered: str) -> dict[str, str]:
    """Create one object of each kind with this token: a run with a tag and a file, a logged model, two registered versions."""
    await call.post("runs/set-tag", run_id=run, key="there", value="x")
    assert (await call.put_file(f"{run}/notes.txt", b"first")).status == OK
    spare = (await call.post("runs/create", experiment_id="0", tags=[{"key": "mlflow.parentRunId", "value": run}]))["run"]["info"]
    answer = await call.post("logged-models", experiment_id="0", name="net", source_run_id=run, tags=[{"key": "t", "value": "x"}])
    model = answer["model"]["info"]["model_id"]
    await call.post("registered-models/create", name=registered)
    for weights in ((), ("w",)):
        assert (await call.put_file(f"models/{model}/model.onnx", onnx_file(weights=weights))).status == OK
        await call.post("model-versions/create", name=registered, source=f"models:/{model}", run_id=run)
    await call.post("registered-models/alias", name=registered, alias="champion", version="1")
    await call.post("registered-models/create", name=f"plain-{registered}")
    group = await call.post("experiments/create", name=f"group-{registered}", tags=[{"key": "there", "value": "x"}])
    things = {"run": run, "experiment": experiment, "spare": spare["run_id"], "model": model, "registered": registered}
    things |= {"plain": f"plain-{registered}", "group": group["experiment_id"]}
    return {**things, "tag": "t", "path:path": f"{run}/notes.txt"}


async def things(place: Any) -> dict[str, dict[str, str]]:
    """Objects of each owner; `mnist-1` sends the requests."""
    await place.submit()
    await place.submit("other")
    mine, other, owner = place.speak("mnist-1"), place.speak("other-1"), place.speak()
    await mine.post("experiments/create", name="own-experiment")
    await owner.post("experiments/create", name="outside-experiment")
    parent = [{"key": "mlflow.parentRunId", "value": "mnist-1"}]
    child = (await mine.post("runs/create", experiment_id="0", tags=parent))["run"]["info"]["run_id"]
    outside = (await owner.post("runs/create", experiment_id="0"))["run"]["info"]["run_id"]
    return {
        OWN: await made_by(mine, "mnist-1", "mnist", "net-own"),
        CHILD: await made_by(mine, child, "own-experiment", "net-child"),
        FOREIGN: await made_by(other, "other-1", "other", "net-foreign"),
        OUTSIDE: await made_by(owner, outside, "outside-experiment", "net-outside"),
    }


def filled(value: Any, known: dict[str, str]) -> Any:
    """Return the request with its placeholders filled in."""
    if isinstance(value, str):
        return value.format_map({**known, "path:path": ""})
    if isinstance(value, dict):
        return {key: filled(each, known) for key, each in value.items()}
    return [filled(each, known) for each in value] if isinstance(value, list) else value


def path_of(path: str, known: dict[str, str]) -> str:
    for name, thing in known.items():
        path = path.replace(f"{{{name}}}", thing)
    return f"/api/2.0/{path}"


async def kept(place: Any, things: dict[str, dict[str, str]]) -> str:
    """Return everything that is stored about the objects of others."""
    theirs = {name for whose in (FOREIGN, OUTSIDE) for name in things[whose].values()}
    records = [each for kind in KINDS for each in place.app.store.all_tracked(kind, "default") if each.name in theirs]
    versions = [each for each in await place.app.models.list() if each.name in theirs]
    files = [(await place.speak().get_file(things[whose]["path:path"])).body.decode() for whose in (FOREIGN, OUTSIDE)]
    return json.dumps([sorted(map(str, records)), sorted(map(str, versions)), [str(each.aliases) for each in versions], files])


async def ask(place: Any, route: tuple[str, str], whose: str, known: dict[str, str]) -> Any:
    method, path = route
    row = TABLE[route]
    body = row.body if isinstance(row.body, bytes) else filled(row.body, {**known, "whose": whose})
    call = place.speak("mnist-1")
    if path == "mlflow/runs/restore" and row.status(whose) == OK:
        await call("POST", "runs/delete", {"run_id": known["spare"]})
    if path == "mlflow/experiments/restore" and row.status(whose) == OK:
        await call("POST", "experiments/delete", {"experiment_id": known["group"]})
    return await call(method, path_of(path, known), body)


async def test_every_route_has_a_verdict(place: Any) -> None:
    assert set(all_routes(place.models)) == set(TABLE)


@pytest.mark.parametrize("route", TABLE, ids=lambda route: " ".join(route))
async def test_a_run_changes_only_what_it_made(place: Any, route: tuple[str, str]) -> None:
    known, row = await things(place), TABLE[route]
    before = await kept(place, known)
    for whose in WHOSE:
        answer = await ask(place, route, whose, known[whose])
        assert answer.status == row.status(whose), (whose, answer.body)
        if answer.status == DENIED:
            assert answer.error == "PERMISSION_DENIED"
            assert "mnist-1 may not" in answer.json["message"]
    if row.foreign == DENIED:
        assert await kept(place, known) == before


@pytest.mark.parametrize("route", TABLE, ids=lambda route: " ".join(route))
async def test_the_owner_changes_everything(place: Any, route: tuple[str, str]) -> None:
    known, (method, path) = await things(place), route
    body = TABLE[route].body
    body = body if isinstance(body, bytes) else filled(body, {**known[FOREIGN], "whose": "owner"})
    if path == "mlflow/runs/restore":
        await place.speak().post("runs/delete", run_id=known[FOREIGN]["spare"])
    if path == "mlflow/experiments/restore":
        await place.speak().post("experiments/delete", experiment_id=known[FOREIGN]["group"])
    assert (await place.speak()(method, path_of(path, known[FOREIGN]), body)).status == OK


async def test_an_alias_moves_to_a_version_of_ones_own_unless_it_was_anothers(place: Any) -> None:
    known = await things(place)
    call, foreign = place.speak("mnist-1"), known[FOREIGN]["registered"]
    answer = await call.post("model-versions/create", name=foreign, source=f"models:/{known[OWN]['model']}")
    number = answer["model_version"]["version"]
    await call.post("registered-models/alias", name=foreign, alias="trial", version=number)
    assert (await place.app.models.get(f"{foreign}@trial")).version == int(number)
    refused = await call("POST", "registered-models/alias", {"name": foreign, "alias": "champion", "version": number})
    assert (refused.status, refused.error) == (403, "PERMISSION_DENIED")
    assert f"fairway model promote {foreign}@{number} champion" in refused.json["message"]
    assert (await place.app.models.get(f"{foreign}@champion")).version == 1
    assert (await call("DELETE", "registered-models/alias", {"name": foreign, "alias": "trial"})).status == OK


async def test_a_client_does_not_choose_who_made_a_version(place: Any) -> None:
    known = await things(place)
    call, foreign = place.speak("mnist-1"), place.speak("other-1")
    forged = [{"key": "fairway.run", "value": "default/other-1"}]
    answer = await call.post("model-versions/create", name="net-own", source=f"models:/{known[OWN]['model']}", tags=forged)
    assert answer["model_version"]["tags"] == []
    number = answer["model_version"]["version"]
    assert (await place.app.models.get(f"net-own@{number}")).tags["fairway.run"] == "default/mnist-1"
    refused = await foreign("POST", "registered-models/alias", {"name": "net-own", "alias": "new", "version": number})
    assert refused.error == "PERMISSION_DENIED"


async def test_a_version_does_not_claim_to_come_from_a_run_that_did_not_log_it(place: Any) -> None:
    known = await things(place)
    call = place.speak("mnist-1")
    body = {"name": "net-own", "source": f"models:/{known[OWN]['model']}", "run_id": "other-1"}
    refused = await call("POST", "model-versions/create", body)
    assert (refused.status, refused.error) == (403, "PERMISSION_DENIED")
    assert "other-1" in refused.json["message"]
    # A model logged by another run keeps that run as its source, also when this run registers it; the other run's record
    # stays unchanged.
    before = place.app.store.tracked(TrackedRun, "default", "other-1")
    body = {"name": "net-own", "source": f"models:/{known[FOREIGN]['model']}", "run_id": "other-1"}
    made = (await call("POST", "model-versions/create", body)).json["model_version"]
    assert made["run_id"] == "other-1"
    assert place.app.store.tracked(TrackedRun, "default", "other-1") == before
    assert f"net-own@{made['version']}" in place.app.store.tracked(TrackedRun, "default", "mnist-1").versions
