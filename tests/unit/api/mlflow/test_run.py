"""Experiments and runs, as MLflow clients request them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.state.mlflow_record import TrackedRun
from fairway.state.phase import JobPhase


def data(run: Any, what: str) -> dict[str, Any]:
    return {each["key"]: each["value"] for each in run["run"]["data"].get(what, [])}


async def test_the_first_run_that_a_job_asks_for_is_its_own(place: Any) -> None:
    job = await place.submit()
    call = place.speak("mnist-1")
    first = await call.post("runs/create", experiment_id="mnist", run_name="try", tags=[{"key": "team", "value": "nlp"}])
    info = first["run"]["info"]
    assert (info["run_id"], info["run_name"], info["experiment_id"], info["status"]) == ("mnist-1", "try", "mnist", "RUNNING")
    assert info["user_id"] == "ana"
    assert data(first, "tags")["team"] == "nlp"
    nested = await call.post("runs/create", experiment_id="mnist", tags=[{"key": "mlflow.parentRunId", "value": "mnist-1"}])
    second = await call.post("runs/create", experiment_id="mnist")
    others = {nested["run"]["info"]["run_id"], second["run"]["info"]["run_id"]}
    assert len(others | {"mnist-1"}) == 3
    place.start_again(job)
    again = await call.post("runs/create", experiment_id="mnist")
    assert again["run"]["info"]["run_id"] == "mnist-1"
    assert data(again, "tags")["team"] == "nlp"


async def test_a_nested_run_before_any_other_is_not_the_jobs_own(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    tags = [{"key": "mlflow.parentRunId", "value": "x"}]
    assert (await call.post("runs/create", experiment_id="0", tags=tags))["run"]["info"]["run_id"] != "mnist-1"
    assert (await call.post("runs/create", experiment_id="0"))["run"]["info"]["run_id"] == "mnist-1"


async def test_who_knows_the_name_of_the_run_takes_it_up(place: Any) -> None:
    """A client with MLFLOW_RUN_ID does not create a run; the next run created is another one."""
    await place.submit()
    call = place.speak("mnist-1")
    assert (await call.get("runs/get", run_id="mnist-1"))["run"]["info"]["status"] == "RUNNING"
    await call.post("runs/update", run_id="mnist-1", status="RUNNING")
    assert (await call.post("runs/create", experiment_id="mnist"))["run"]["info"]["run_id"] != "mnist-1"


async def test_metrics_are_points_of_the_job_and_stop_it(place: Any) -> None:
    job = await place.submit(stop={"when": "accuracy >= 0.9"})
    call = place.speak("mnist-1")
    metrics = [
        {"key": "loss", "value": 0.5, "timestamp": 1_700_000_001_000, "step": 1},
        {"key": "accuracy", "value": 0.8, "timestamp": "1700000001000", "step": "1"},
        {"key": "loss", "value": 0.4, "timestamp": 1_700_000_002_000, "step": 2},
    ]
    await call.post("runs/log-batch", run_id="mnist-1", metrics=metrics)
    points = place.app.points(job)
    assert [(point.step, point.metrics, point.source) for point in points] == [
        (1, {"loss": 0.5, "accuracy": 0.8}, "mlflow"),
        (2, {"loss": 0.4}, "mlflow"),
    ]
    assert place.job(job).progress.step == 2
    assert place.job(job).progress.metrics == {"loss": 0.4, "accuracy": 0.8}
    await place.turn()
    assert place.job(job).phase is JobPhase.RUNNING
    await call.post("runs/log-metric", run_id="mnist-1", key="accuracy", value=0.95, timestamp=1_700_000_003_000)
    assert place.job(job).progress.step == 2, "a step that nobody named says nothing"
    await place.turn()
    assert place.job(job).outcome.reason == "StopCondition"


async def test_what_is_said_of_a_run_is_told(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    await call.post("runs/log-parameter", run_id="mnist-1", key="lr", value="0.1")
    await call.post("runs/set-tag", run_id="mnist-1", key="team", value="nlp")
    for value in (1.0, "NaN", "Infinity", "-Infinity"):
        await call.post("runs/log-metric", run_id="mnist-1", key="loss", value=value, timestamp=1, step=3)
    answer = await call.get("runs/get", run_id="mnist-1")
    assert data(answer, "params") == {"lr": "0.1"}
    assert data(answer, "tags")["team"] == "nlp"
    assert data(answer, "metrics") == {"loss": "-Infinity"}
    history = await call.get("metrics/get-history", run_id="mnist-1", metric_key="loss")
    assert [each["value"] for each in history["metrics"]] == [1.0, "NaN", "Infinity", "-Infinity"]
    paged = await call.get("metrics/get-history", run_id="mnist-1", metric_key="loss", max_results=3)
    rest = await call.get("metrics/get-history", run_id="mnist-1", metric_key="loss", page_token=paged["next_page_token"])
    assert len(paged["metrics"] + rest["metrics"]) == 4
    await call.post("runs/delete-tag", run_id="mnist-1", key="team")
    assert "team" not in data(await call.get("runs/get", run_id="mnist-1"), "tags")


async def test_a_parameter_keeps_its_value_unless_the_job_started_again(place: Any) -> None:
    job = await place.submit()
    call = place.speak("mnist-1")
    await call.post("runs/create", experiment_id="mnist")
    await call.post("runs/log-parameter", run_id="mnist-1", key="seed", value="1")
    await call.post("runs/log-parameter", run_id="mnist-1", key="seed", value="1")
    other = await call("POST", "runs/log-parameter", {"run_id": "mnist-1", "key": "seed", "value": "2"})
    assert (other.status, other.error) == (400, "INVALID_PARAMETER_VALUE")
    assert "'1'" in other.json["message"]
    place.start_again(job)
    await call.post("runs/create", experiment_id="mnist")
    await call.post("runs/log-parameter", run_id="mnist-1", key="seed", value="2")
    assert data(await call.get("runs/get", run_id="mnist-1"), "params") == {"seed": "2"}


BAD_NUMBERS: list[tuple[str, str, str]] = [
    ("step", "9223372036854775808", "not a 64-bit integer"),
    ("step", '"9223372036854775808"', "not a 64-bit integer"),
    ("step", "1.5", "not a 64-bit integer"),
    ("step", "1e300", "not a 64-bit integer"),
    ("step", "true", "not a 64-bit integer"),
    ("step", "[1]", "not a 64-bit integer"),
    ("step", '"' + "9" * 5000 + '"', "not a 64-bit integer"),
    ("value", "true", "not a number"),
    ("value", "{}", "not a number"),
    ("value", '"loss"', "not a number"),
    ("timestamp", "-1", "not a time in milliseconds"),
    ("timestamp", "1700000000000000000", "not a time in milliseconds"),
]


@pytest.mark.parametrize(("field", "text", "reason"), BAD_NUMBERS)
async def test_a_number_that_cannot_be_kept_is_refused_by_name(place: Any, field: str, text: str, reason: str) -> None:
    job = await place.submit()
    good = {"run_id": '"mnist-1"', "key": '"loss"', "value": "1.0", "timestamp": "1", "step": "1"}
    body = ",".join(f'"{name}":{value}' for name, value in {**good, field: text}.items())
    refused = await place.speak("mnist-1")("POST", "runs/log-metric", f"{{{body}}}".encode())
    assert (refused.status, refused.error) == (400, "INVALID_PARAMETER_VALUE")
    assert field in refused.json["message"]
    assert reason in refused.json["message"]
    assert place.app.points(job) == []


@pytest.mark.parametrize("text", ["1e400", "9" * 5000])
async def test_a_number_that_no_reader_of_json_takes_is_refused_or_infinite(place: Any, text: str) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    answer = await call("POST", "runs/log-metric", f'{{"run_id":"mnist-1","key":"loss","value":{text},"step":1}}'.encode())
    assert answer.status in (200, 400)
    step = await call("POST", "runs/log-metric", f'{{"run_id":"mnist-1","key":"loss","value":1,"step":{text}}}'.encode())
    assert step.status == 400
    await place.turn()


async def test_a_batch_is_kept_whole_or_not_at_all(place: Any) -> None:
    job = await place.submit()
    call = place.speak("mnist-1")
    good = {"key": "loss", "value": 1.0, "timestamp": 1, "step": 1}
    for bad in (
        {"metrics": [good, {**good, "value": "many"}]},
        {"metrics": [good], "params": [{"key": "", "value": "1"}]},
        {"metrics": [good], "params": [{"key": "a", "value": "x" * 9000}]},
        {"metrics": [good], "tags": [{"key": "a" * 300, "value": "1"}]},
        {"metrics": [good] * 1001},
        {"metrics": [good], "params": [{"key": f"p{number}", "value": "1"} for number in range(1000)] + [{"value": "1"}]},
    ):
        refused = await call("POST", "runs/log-batch", {"run_id": "mnist-1", **bad})
        assert (refused.status, refused.error) == (400, "INVALID_PARAMETER_VALUE"), bad
    assert place.app.points(job) == []
    assert place.app.store.tracked(TrackedRun, "default", "mnist-1") is None


async def test_a_run_outside_of_a_job_is_one_of_its_own(place: Any) -> None:
    call = place.speak()
    answer = await call.post("runs/create", experiment_id="0", start_time=1_600_000_000_000, run_name="alone")
    run = answer["run"]["info"]["run_id"]
    await call.post("runs/log-batch", run_id=run, metrics=[{"key": "loss", "value": 1.5, "timestamp": 1, "step": 0}])
    ended = await call.post("runs/update", run_id=run, status="FINISHED", end_time=1_600_000_009_000, run_name="done")
    assert (ended["run_info"]["status"], ended["run_info"]["end_time"]) == ("FINISHED", 1_600_000_009_000)
    found = await call.get("runs/get", run_uuid=run)
    assert data(found, "metrics") == {"loss": 1.5}
    assert (found["run"]["info"]["start_time"], found["run"]["info"]["run_name"]) == (1_600_000_000_000, "done")
    await call.post("runs/delete", run_id=run)
    assert (await call("POST", "runs/log-metric", {"run_id": run, "key": "a", "value": 1})).error == "INVALID_PARAMETER_VALUE"
    assert (await call.post("runs/search", experiment_ids=["0"]))["runs"] == []
    assert len((await call.post("runs/search", experiment_ids=["0"], run_view_type="DELETED_ONLY"))["runs"]) == 1
    await call.post("runs/restore", run_id=run)
    assert len((await call.post("runs/search", experiment_ids=["0"]))["runs"]) == 1


async def test_the_run_of_a_job_is_not_deleted_from_here(place: Any) -> None:
    await place.submit()
    refused = await place.speak()("POST", "runs/delete", {"run_id": "mnist-1"})
    assert "fairway delete mnist-1" in refused.json["message"]


async def test_a_job_speaks_for_itself_alone(place: Any) -> None:
    await place.submit("mnist")
    await place.submit("other")
    inside = await place.speak("other-1").post(
        "runs/create", experiment_id="0", tags=[{"key": "mlflow.parentRunId", "value": "x"}]
    )
    for run in ("other-1", inside["run"]["info"]["run_id"]):
        for path, body in (
            ("runs/log-metric", {"key": "loss", "value": 1, "timestamp": 1}),
            ("runs/log-parameter", {"key": "a", "value": "b"}),
            ("runs/set-tag", {"key": "a", "value": "b"}),
            ("runs/update", {"status": "FAILED"}),
            ("runs/delete", {}),
            ("runs/outputs", {"models": []}),
        ):
            refused = await place.speak("mnist-1")("POST", path, {"run_id": run, **body})
            assert (refused.status, refused.error) == (403, "PERMISSION_DENIED"), path
    assert (await place.speak("mnist-1").get("runs/get", run_id="other-1"))["run"]["info"]["run_id"] == "other-1"
    await place.speak().post("runs/set-tag", run_id="other-1", key="a", value="b")


async def test_namespaces_do_not_see_each_other(place: Any) -> None:
    await place.submit()
    assert (await place.speak(namespace="team")("GET", "runs/get", {"run_id": "mnist-1"})).error == "RESOURCE_DOES_NOT_EXIST"


@pytest.mark.parametrize("token", [None, "", "x", "default/mnist-1.", "default/mnist-1." + "0" * 64, "default/." + "0" * 64])
async def test_nobody_comes_in_without_a_token(place: Any, token: str | None) -> None:
    await place.submit()
    caller = type(place.speak())(place.api, token)
    for method, path in (("GET", "experiments/get"), ("POST", "runs/create"), ("GET", "/"), ("GET", "/v1/jobs")):
        refused = await caller(method, path)
        assert (refused.status, refused.error) == (401, "UNAUTHENTICATED")


async def test_the_token_of_a_run_that_is_gone_opens_nothing(place: Any) -> None:
    job = await place.submit()
    call = place.speak("mnist-1")
    await call.get("runs/get", run_id="mnist-1")
    place.end(job, JobPhase.SUCCEEDED)
    await call.get("runs/get", run_id="mnist-1")
    await place.app.delete(job.key)
    assert (await call("GET", "runs/get", {"run_id": "mnist-1"})).status == 401


async def test_only_these_routes_are_there(place: Any) -> None:
    call = place.speak()
    for method, path in (("GET", "/v1/jobs"), ("GET", "/"), ("DELETE", "runs/get"), ("POST", "experiments/forget")):
        assert (await call(method, path)).error == "ENDPOINT_NOT_FOUND"


async def test_series_are_experiments(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    experiment = (await call.get("experiments/get-by-name", experiment_name="mnist"))["experiment"]
    assert (experiment["experiment_id"], experiment["name"], experiment["lifecycle_stage"]) == ("mnist", "mnist", "active")
    assert (await call.get("experiments/get", experiment_id="0"))["experiment"]["name"] == "Default"
    missing = await call("GET", "experiments/get-by-name", {"experiment_name": "Was ist das?"})
    assert (missing.status, missing.error) == (404, "RESOURCE_DOES_NOT_EXIST")
    answer = await call.post("experiments/create", name="Was ist das?", tags=[{"key": "a", "value": "b"}])
    named = (await call.get("experiments/get-by-name", experiment_name="Was ist das?"))["experiment"]
    assert (named["experiment_id"], named["tags"]) == (answer["experiment_id"], [{"key": "a", "value": "b"}])
    for name in ("Was ist das?", "mnist", "Default"):
        assert (await call("POST", "experiments/create", {"name": name})).error == "RESOURCE_ALREADY_EXISTS"
    await call.post("experiments/set-experiment-tag", experiment_id="mnist", key="k", value="v")
    assert (await call.get("experiments/get", experiment_id="mnist"))["experiment"]["tags"] == [{"key": "k", "value": "v"}]
    known = await call.post("experiments/search", max_results=10)
    assert {each["name"] for each in known["experiments"]} == {"Was ist das?", "mnist", "Default"}
    some = await call.post("experiments/search", max_results=10, filter="name LIKE 'mn%'")
    assert [each["name"] for each in some["experiments"]] == ["mnist"]


async def test_a_run_lies_in_the_experiment_that_its_program_names(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    experiment = (await call.post("experiments/create", name="My Study"))["experiment_id"]
    run = await call.post("runs/create", experiment_id=experiment)
    assert run["run"]["info"]["run_id"] == "mnist-1"
    assert [each["info"]["run_id"] for each in (await call.post("runs/search", experiment_ids=[experiment]))["runs"]] == [
        "mnist-1"
    ]
    assert (await call.post("runs/search", experiment_ids=["mnist"]))["runs"] == []
    assert (await call("POST", "runs/create", {"experiment_id": "nothing"})).error == "RESOURCE_DOES_NOT_EXIST"


async def test_runs_are_searched(place: Any) -> None:
    for number in (1, 2, 3):
        place.clock.time += 1
        await place.submit()
        call = place.speak(f"mnist-{number}")
        await call.post(
            "runs/log-batch", run_id=f"mnist-{number}", metrics=[{"key": "loss", "value": number, "timestamp": 1, "step": 1}]
        )
        await call.post("runs/log-parameter", run_id=f"mnist-{number}", key="lr", value=f"0.{number}")
    place.clock.time += 1
    await place.submit()

    async def search(filter: str = "", *orders: str, **more: Any) -> list[str]:
        found = await place.speak().post("runs/search", experiment_ids=["mnist"], filter=filter, order_by=list(orders), **more)
        return [each["info"]["run_id"] for each in found["runs"]]

    assert await search() == ["mnist-4", "mnist-3", "mnist-2", "mnist-1"]
    assert await search("metrics.loss < 3", "metrics.loss ASC") == ["mnist-1", "mnist-2"]
    assert await search("params.lr = '0.2'") == ["mnist-2"]
    assert await search("attributes.status = 'RUNNING' and metrics.loss >= 2", "metrics.loss DESC") == ["mnist-3", "mnist-2"]
    assert await search("", "metrics.loss", max_results=2) == ["mnist-1", "mnist-2"]
    assert await search("", "metrics.loss", max_results=2, page_token="2") == ["mnist-3", "mnist-4"]
    refused = await place.speak()("POST", "runs/search", {"experiment_ids": ["mnist"], "filter": "loss <"})
    assert refused.error == "INVALID_PARAMETER_VALUE"


async def test_how_a_jobs_run_stands_the_job_says(place: Any) -> None:
    job = await place.submit()
    call = place.speak("mnist-1")
    ended = await call.post("runs/update", run_id="mnist-1", status="FINISHED", end_time=1)
    assert ended["run_info"]["status"] == "RUNNING"
    place.end(job, JobPhase.STOPPED)
    assert (await call.get("runs/get", run_id="mnist-1"))["run"]["info"]["status"] == "KILLED"
    await call.post("runs/log-metric", run_id="mnist-1", key="late", value=1.0, timestamp=5)
    assert [point.metrics for point in place.app.points(job)] == [{"late": 1.0}]


async def test_datasets_and_logged_models_are_noted(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    dataset = {"dataset": {"name": "digits", "digest": "1", "source_type": "local", "source": "{}"}, "tags": []}
    await call.post("runs/log-inputs", run_id="mnist-1", datasets=[dataset])
    await call.post("runs/outputs", run_id="mnist-1", models=[{"model_id": "m-1", "step": 4}])
    await call.post("runs/log-model", run_id="mnist-1", model_json='{"artifact_path": "model"}')
    await call.post("runs/log-model", run_id="mnist-1", model_json='{"artifact_path": "other"}')
    answer = await call.get("runs/get", run_id="mnist-1")
    assert answer["run"]["inputs"]["dataset_inputs"] == [dataset]
    assert answer["run"]["outputs"]["model_outputs"] == [{"model_id": "m-1", "step": 4}]
    assert data(answer, "tags")["mlflow.log-model.history"] == '[{"artifact_path": "model"}, {"artifact_path": "other"}]'


BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["run_id", "key", "value", "metrics", "params", "tags", "experiment_ids", "filter", "order_by", "name", "status", "models",
     "datasets", "max_results", "page_token", "timestamp", "step", "source", "alias", "version", "model_json", "experiment_id"]
)  # fmt: skip
PATHS = st.sampled_from(
    ["runs/create", "runs/update", "runs/search", "runs/log-batch", "runs/log-metric", "runs/set-tag", "runs/log-inputs",
     "runs/outputs", "runs/log-model", "experiments/create", "experiments/search", "logged-models", "logged-models/search",
     "registered-models/create", "registered-models/alias", "model-versions/create"]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, body=st.dictionaries(NAMES, BODIES, max_size=4))
async def test_no_body_makes_it_stumble(place: Any, path: str, body: dict[str, Any]) -> None:
    if not place.app.loop.snapshot.jobs:
        await place.submit()
    answer = await place.speak("mnist-1")("POST", path, {"run_id": "mnist-1", **body})
    assert answer.status in (200, 400, 404), answer.body


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b'{"run_id": "\xff"}', b"null"])
async def test_what_is_no_json_object_is_refused(place: Any, body: bytes) -> None:
    assert (await place.speak()("POST", "runs/create", body)).error == "INVALID_PARAMETER_VALUE"
