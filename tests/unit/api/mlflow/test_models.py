"""Files, models logged by runs, and the registry, as MLflow clients request them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fairway.state.mlflow_record import TrackedRun
from fairway.testing.builder.model_file import exported_file, onnx_file, pickled_file
from fairway.units.names import model_name

MY_NET = model_name("My Net")


async def a_model(place: Any, run: str = "mnist-1", model: bytes = onnx_file(), **more: Any) -> str:
    """Log a model from a run; return its name."""
    call = place.speak(run if run.startswith("mnist") else "")
    answer = await call.post("logged-models", experiment_id="mnist", name="net", source_run_id=run, **more)
    name = answer["model"]["info"]["model_id"]
    names = {pickled_file(): "model.pkl", exported_file(): "model.pt2"}
    for file, data in {
        names.get(model, "model.onnx"): model,
        "MLmodel": b"flavors: {onnx: {}, sklearn: {}, pytorch: {}}\n",
    }.items():
        assert (await call.put_file(f"models/{name}/{file}", data)).status == 200
    finished = await call("PATCH", f"logged-models/{name}", {"status": "LOGGED_MODEL_READY"})
    assert finished.json["model"]["info"]["status"] == "LOGGED_MODEL_READY"
    return str(name)


async def register(place: Any, source: str, name: str = "My Net", run: str = "mnist-1", **more: Any) -> Any:
    call = place.speak(run)
    await call("POST", "registered-models/create", {"name": name})
    return await call("POST", "model-versions/create", {"name": name, "source": source, "run_id": run, **more})


async def test_a_logged_model_becomes_a_version_with_where_it_came_from(place: Any) -> None:
    job = await place.submit(data={"train": "digits@1"}, env={"BATCH": "64"})
    call = place.speak("mnist-1")
    await call.post("runs/log-batch", run_id="mnist-1", params=[{"key": "lr", "value": "0.1"}])
    for value in (0.5, 0.9):
        await call.post("runs/log-metric", run_id="mnist-1", key="acc", value=value, timestamp=1, step=int(value * 10))
    await call.post("runs/log-metric", run_id="mnist-1", key="bad", value="NaN", timestamp=1)
    name = await a_model(place)
    made = await register(place, f"models:/{name}", tags=[{"key": "team", "value": "nlp"}], description="the first")
    version = made.json["model_version"]
    assert (version["name"], version["version"], version["status"], version["run_id"]) == ("My Net", "1", "READY", "mnist-1")
    assert (version["source"], version["description"]) == (f"models:/{name}", "the first")
    assert version["tags"] == [{"key": "team", "value": "nlp"}]
    kept = await place.app.models.get(f"{MY_NET}@1")
    assert kept.format == "onnx"
    assert kept.metrics == {"acc": 0.9}
    assert kept.lineage.run == str(job.key)
    assert kept.lineage.parameters == {"BATCH": "64", "lr": "0.1"}
    assert kept.lineage.data == {"train": "digits@1"}
    assert kept.lineage.source == ""
    own = place.app.store.tracked(TrackedRun, "default", "mnist-1")
    assert own.versions == (f"{MY_NET}@1",)


async def test_what_a_run_within_a_job_registers_is_the_jobs_too(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    tags = [{"key": "mlflow.parentRunId", "value": "mnist-1"}]
    inner = (await call.post("runs/create", experiment_id="mnist", tags=tags))["run"]["info"]["run_id"]
    await call.post("runs/log-parameter", run_id=inner, key="fold", value="2")
    assert (await call.put_file(f"{inner}/model/model.onnx", onnx_file())).status == 200
    await call.post("registered-models/create", name="net")
    await call.post("model-versions/create", name="net", source=f"runs:/{inner}/model", run_id=inner)
    for name in (inner, "mnist-1"):
        assert place.app.store.tracked(TrackedRun, "default", name).versions == ("net@1",)
    lineage = (await place.app.models.get("net")).lineage
    assert (lineage.run, lineage.parameters) == ("default/mnist-1", {"fold": "2"})


async def test_a_model_of_a_run_outside_of_jobs_has_its_parameters_too(place: Any) -> None:
    call = place.speak()
    run = (await call.post("runs/create", experiment_id="0"))["run"]["info"]["run_id"]
    await call.post("runs/log-parameter", run_id=run, key="lr", value="0.3")
    assert (await call.put_file(f"{run}/model/model.onnx", onnx_file())).status == 200
    await call.post("registered-models/create", name="alone")
    for source in (f"runs:/{run}/model", f"mlflow-artifacts:/{run}/model"):
        await call.post("model-versions/create", name="alone", source=source, run_id=run)
    version = await place.app.models.get("alone")
    assert (version.lineage.run, version.lineage.parameters, version.tags["mlflow.runId"]) == ("", {"lr": "0.3"}, run)
    answer = await call.get("model-versions/search", filter=f"run_id = '{run}' and name = 'alone'")
    assert {each["version"] for each in answer["model_versions"]} == {str(version.version), "1"}


async def test_names_and_aliases(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    answer = await call.post("registered-models/create", name="My Net", description="d", tags=[{"key": "a", "value": "b"}])
    assert answer["registered_model"]["name"] == "My Net"
    assert (await call("POST", "registered-models/create", {"name": "My Net"})).error == "RESOURCE_ALREADY_EXISTS"
    assert (await call.get("registered-models/get", name="My Net"))["registered_model"]["description"] == "d"
    assert (await call("GET", "registered-models/get", {"name": "none"})).error == "RESOURCE_DOES_NOT_EXIST"
    await register(place, f"models:/{await a_model(place)}")
    await register(place, f"models:/{await a_model(place, model=onnx_file(weights=('w',)))}")
    await call.post("registered-models/alias", name="My Net", alias="champion", version="1")
    found = await call.get("registered-models/alias", name="My Net", alias="champion")
    assert (found["model_version"]["version"], found["model_version"]["aliases"]) == ("1", ["champion"])
    assert (await place.app.models.get(f"{MY_NET}@champion")).version == 1
    await call.post("registered-models/alias", name="My Net", alias="champion", version="2")
    assert (await call.get("registered-models/get", name="My Net"))["registered_model"]["aliases"] == [
        {"alias": "champion", "version": "2"}
    ]
    assert (await call("DELETE", "registered-models/alias", {"name": "My Net", "alias": "champion"})).status == 200
    gone = await call("GET", "registered-models/alias", {"name": "My Net", "alias": "champion"})
    assert (gone.status, gone.error) == (400, "INVALID_PARAMETER_VALUE")
    for alias in ("Not An Alias", "latest", "../x"):
        refused = await call("POST", "registered-models/alias", {"name": "My Net", "alias": alias, "version": "1"})
        assert refused.error == "INVALID_PARAMETER_VALUE"
    assert (await call("POST", "registered-models/alias", {"name": "My Net", "alias": "a", "version": "9"})).status == 404
    await call("PATCH", "registered-models/update", {"name": "My Net", "description": "e"})
    await call.post("registered-models/set-tag", name="My Net", key="k", value="v")
    registered_models = (await call.get("registered-models/search", filter="name ILIKE 'my%' and tags.k = 'v'"))[
        "registered_models"
    ]
    assert [(each["name"], each["description"], len(each["latest_versions"])) for each in registered_models] == [
        ("My Net", "e", 1)
    ]
    newest = await call.post("registered-models/get-latest-versions", name="My Net")
    assert [each["version"] for each in newest["model_versions"]] == ["2"]
    assert (await call.get("model-versions/get", name="My Net", version="2"))["model_version"]["version"] == "2"
    assert (await call("GET", "model-versions/get", {"name": "My Net", "version": "x"})).error == "INVALID_PARAMETER_VALUE"


async def test_a_version_can_be_read_and_registered_again(place: Any) -> None:
    await place.submit()
    await register(place, f"models:/{await a_model(place)}")
    call = place.speak()
    uri = (await call.get("model-versions/get-download-uri", name="My Net", version="1"))["artifact_uri"]
    root = uri.removeprefix("mlflow-artifacts:/")
    listed = await call("GET", "/api/2.0/mlflow-artifacts/artifacts", {"path": root})
    assert [each["path"] for each in listed.json["files"]] == ["MLmodel", "model.onnx"]
    assert (await call.get_file(f"{root}/model.onnx")).body == onnx_file()
    for path in (f"{root}/none", f"{root}/../../1.json", f"{root}/../../../mlflow/secret", f"registered/{MY_NET}/2/model.onnx"):
        assert (await call.get_file(path)).status == 404
    assert (await call.put_file(f"{root}/model.onnx", b"x")).error == "INVALID_PARAMETER_VALUE"
    await call.post("registered-models/create", name="copy")
    for source in (uri, "models:/My Net/1"):
        answer = await call.post("model-versions/create", name="copy", source=source)
        assert answer["model_version"]["source"] == source
    assert (await place.app.models.get("copy")).digest == (await place.app.models.get(MY_NET)).digest


async def test_a_program_needs_the_tag_unless_the_run_itself_logged_it(place: Any) -> None:
    await place.submit()
    await place.submit()
    source = f"models:/{await a_model(place, model=exported_file())}"
    claimed = await register(place, source, "claimed", "mnist-2")
    assert (claimed.status, claimed.error) == (400, "INVALID_PARAMETER_VALUE")
    assert "fairway.allow_pickle=true" in claimed.json["message"]
    assert (await register(place, source)).status == 200


async def test_what_runs_code_is_refused_unless_it_is_trusted(place: Any) -> None:
    await place.submit()
    source = f"models:/{await a_model(place, model=pickled_file())}"
    refused = await register(place, source)
    assert (refused.status, refused.error) == (400, "INVALID_PARAMETER_VALUE")
    assert "allow-pickle: 'true'" in refused.json["message"]
    assert (await register(place, source, tags=[{"key": "fairway.allow_pickle", "value": "true"}])).status == 200
    await place.submit(labels={"allow-pickle": "true"})
    trusted = await a_model(place, "mnist-2", pickled_file())
    assert (await register(place, f"models:/{trusted}", "trusted", "mnist-2")).status == 200
    assert (await place.app.models.get("trusted")).format == "pickle"


@pytest.mark.parametrize(
    "source",
    ["/etc", "file:///etc", "s3://bucket/x", "", "models:/m-none", "runs:/none/model", "runs:/mnist-1/none", "runs:/mnist-1/../x",
     "mlflow-artifacts:/../x", "mlflow-artifacts:/mnist-1/../../../mlflow/secret", "models:/none/1", "registered:/x"],
)  # fmt: skip
async def test_what_does_not_lie_here_is_not_registered(place: Any, source: str) -> None:
    await place.submit()
    refused = await register(place, source)
    assert refused.status in (400, 404)
    assert await place.app.models.list() == []


async def test_logged_models_are_searched_and_described(place: Any) -> None:
    await place.submit()
    first, second = await a_model(place, params=[{"key": "lr", "value": "1"}]), await a_model(place, model_type="agent")
    call = place.speak("mnist-1")
    await call.post(f"logged-models/{first}/params", params=[{"key": "b", "value": "2"}])
    await call("PATCH", f"logged-models/{first}/tags", {"tags": [{"key": "t", "value": "1"}, {"key": "u", "value": "2"}]})
    await call("DELETE", f"logged-models/{first}/tags/u")
    model = (await call.get(f"logged-models/{first}"))["model"]
    assert {each["key"]: each["value"] for each in model["data"]["params"]} == {"lr": "1", "b": "2"}
    assert model["info"]["tags"] == [{"key": "t", "value": "1"}]

    async def search(filter: str = "") -> list[str]:
        answer = await call.post("logged-models/search", experiment_ids=["mnist"], filter=filter)
        return [each["info"]["model_id"] for each in answer["models"]]

    assert await search() == [first, second]
    assert await search("name = 'net' AND source_run_id = 'mnist-1' and params.lr = '1'") == [first]
    assert await search("model_type = 'agent'") == [second]
    listed = await call.get(f"logged-models/{first}/artifacts/directories")
    assert [each["path"] for each in listed["files"]] == ["MLmodel", "model.onnx"]
    await place.submit("other")
    foreign = place.speak("other-1")
    assert (await foreign("PATCH", f"logged-models/{first}", {"status": "LOGGED_MODEL_READY"})).error == "PERMISSION_DENIED"
    assert (await foreign.put_file(f"models/{first}/x", b"")).error == "PERMISSION_DENIED"
    assert (await foreign("POST", "logged-models", {"source_run_id": "mnist-1"})).error == "PERMISSION_DENIED"
    assert (await foreign("GET", "logged-models/m-none")).error == "RESOURCE_DOES_NOT_EXIST"


async def test_files_lie_beside_the_run_and_come_back(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    large = os.urandom(3 << 20)
    for path, data in {"a.txt": b"one", "deep/down/b.bin": large, "empty": b"", "with space/ü.txt": b"x"}.items():
        assert (await call.put_file(f"mnist-1/{path}", data)).status == 200
        assert (await call.get_file(f"mnist-1/{path}")).body == data
    assert (place.home / "jobs" / "default" / "mnist-1" / "artifacts" / "deep" / "down" / "b.bin").read_bytes() == large
    assert (await call.put_file("mnist-1/a.txt", b"two")).status == 200
    assert (await call.get_file("mnist-1/a.txt")).body == b"two"
    listed = (await call.get("artifacts/list", run_id="mnist-1"))["files"]
    assert [(each["path"], each["is_dir"], each.get("file_size")) for each in listed] == [
        ("a.txt", False, 3), ("deep", True, None), ("empty", False, 0), ("with space", True, None),
    ]  # fmt: skip
    inside = await call.get("artifacts/list", run_id="mnist-1", path="deep/down")
    assert (inside["root_uri"], inside["files"][0]["path"]) == ("mlflow-artifacts:/mnist-1", "deep/down/b.bin")
    assert (await call.get("artifacts/list", run_id="mnist-1", path="a.txt"))["files"] == []
    assert (await call.get_file("mnist-1/deep")).status == 404
    assert list((place.home / "tracked" / ".aside").iterdir()) == []


@pytest.mark.parametrize(
    "path",
    ["mnist-1/../x", "mnist-1/a/../../x", "mnist-1//etc/../../x", "../x", "mnist-1/a\\b", "mnist-1/" + "x" * 300, "mnist-1/",
     "mnist-1/a\nb", "mnist-1/" + "d/" * 600 + "x", "..", "tracked/.aside/x", "none/x", "models/m-none/x", "models/../x"],
)  # fmt: skip
async def test_no_path_leads_out(place: Any, path: str) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    before = sorted(str(each) for each in place.home.rglob("*") if ".aside" not in str(each))
    assert (await call.put_file(path, b"x")).status in (400, 404)
    assert (await call.get_file(path)).status in (400, 404)
    assert sorted(str(each) for each in place.home.rglob("*") if ".aside" not in str(each)) == before


async def test_no_link_leads_out(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    assert (await call.put_file("mnist-1/a.txt", b"x")).status == 200
    folder = place.home / "jobs" / "default" / "mnist-1" / "artifacts"
    (place.home / "elsewhere").mkdir()
    (place.home / "secret").write_text("beef")
    (folder / "out").symlink_to(place.home / "elsewhere")
    (folder / "file").symlink_to(place.home / "secret")
    assert (await call.put_file("mnist-1/out/x", b"x")).status == 400
    assert (await call.get_file("mnist-1/file")).status == 400
    assert (await call.get_file("mnist-1/out")).status == 400
    assert list((place.home / "elsewhere").iterdir()) == []
    assert (await call.put_file("mnist-1/file", b"new")).status == 200
    assert (place.home / "secret").read_text() == "beef"


async def test_a_file_is_no_folder(place: Any) -> None:
    await place.submit()
    call = place.speak("mnist-1")
    assert (await call.put_file("mnist-1/a", b"x")).status == 200
    assert (await call.put_file("mnist-1/a/b", b"x")).status == 400
    assert (await call.put_file("mnist-1/c/d", b"x")).status == 200
    assert (await call.put_file("mnist-1/c", b"x")).status == 400
    assert list((place.home / "tracked" / ".aside").iterdir()) == []


@pytest.mark.parametrize("within_job", [True, False])
async def test_a_version_has_the_last_values_by_step_and_the_best_ones(place: Any, within_job: bool) -> None:
    """Keras' autologging logs step 0 again after training, and a long run has more points than one read returns."""
    await place.submit()
    call = place.speak("mnist-1" if within_job else "")
    run = "mnist-1" if within_job else (await call.post("runs/create", experiment_id="0"))["run"]["info"]["run_id"]
    values = [*((step, (step - 400) ** 2) for step in range(500)), (0, 7.0)]
    metrics = [
        {"key": name, "value": value, "timestamp": 1_700_000_000_000 + number, "step": step}
        for number, (step, value) in enumerate(values)
        for name in ("val_loss", "lr")
    ]
    await call.post("runs/log-batch", run_id=run, metrics=metrics[:600])
    await call.post("runs/log-batch", run_id=run, metrics=metrics[600:])
    await call.post("runs/log-metric", run_id=run, key="accuracy", value="NaN", timestamp=1)
    told = (await call.get("runs/get", run_id=run))["run"]["data"]["metrics"]
    found = {each["key"]: (each["value"], each["step"]) for each in told}
    assert found == {"val_loss": (99.0**2, 499), "lr": (99.0**2, 499), "accuracy": ("NaN", 0)}
    assert (await call.put_file(f"{run}/model/model.onnx", onnx_file())).status == 200
    await call.post("registered-models/create", name="net")
    await call.post("model-versions/create", name="net", source=f"runs:/{run}/model", run_id=run)
    version = await place.app.models.get("net")
    assert version.metrics == {"val_loss": 99.0**2, "lr": 99.0**2}
    assert version.best == {"val_loss": 0.0}
