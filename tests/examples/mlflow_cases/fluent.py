# ruff: noqa: BLE001, PT017, TRY301
"""Cases of the functions of `mlflow` that call the tracking server and the registry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import mlflow

from mlflow_cases.table import Place, case, refused


@contextlib.contextmanager
def _speaking(at: Place) -> Iterator[str]:
    """Point the module at the server of the case; yield the id of a separate experiment."""
    mlflow.set_tracking_uri(at.uri)
    mlflow.set_registry_uri(at.uri)
    try:
        yield mlflow.set_experiment(at.name("fluent")).experiment_id
    finally:
        while mlflow.active_run():
            mlflow.end_run()


@case("mlflow.set_experiment", "by name, by id, a deleted one")
def _(at: Place) -> None:
    with _speaking(at) as made:
        assert mlflow.get_experiment(made).name == at.name("fluent")
        assert mlflow.set_experiment(experiment_id=made).experiment_id == made
        mlflow.delete_experiment(made)
        try:
            mlflow.set_experiment(at.name("fluent"))
        except Exception as problem:
            assert "deleted" in str(problem)
        else:
            raise AssertionError("it is deleted")


@case("mlflow.start_run", "run_name, tags, description, nested, parent")
def _(at: Place) -> None:
    with _speaking(at), mlflow.start_run(run_name="outer", tags={"t": "1"}, description="about") as outer:
        with mlflow.start_run(nested=True, run_name="inner") as inner:
            mlflow.log_metric("m", 1.0)
        assert mlflow.get_run(inner.info.run_id).data.tags["mlflow.parentRunId"] == outer.info.run_id
        assert mlflow.get_parent_run(inner.info.run_id).info.run_id == outer.info.run_id
        found = mlflow.get_run(outer.info.run_id)
        assert found.info.run_name == "outer"
        assert found.data.tags["mlflow.note.content"] == "about"


@case("mlflow.start_run", "an error ends it as FAILED, and run_id takes it up again")
def _(at: Place) -> None:
    with _speaking(at):
        try:
            with mlflow.start_run() as run:
                raise KeyError("x")
        except KeyError:
            pass
        assert mlflow.get_run(run.info.run_id).info.status == "FAILED"
        with mlflow.start_run(run_id=run.info.run_id):
            assert mlflow.get_run(run.info.run_id).info.status == "RUNNING"
        assert mlflow.get_run(run.info.run_id).info.status == "FINISHED"


@case("mlflow.log_*", "params, metrics, tags, dict, text, artifact")
def _(at: Place) -> None:
    with _speaking(at), mlflow.start_run() as run:
        mlflow.log_params({"a": 1, "b": "x"})
        mlflow.log_metrics({"m": 1.0, "n": 2.0}, step=3)
        mlflow.set_tags({"t": "1", "u": 2})
        mlflow.delete_tag("u")
        mlflow.log_text("hello", "note.txt")
        mlflow.log_dict({"a": 1}, "data.yaml")
        assert mlflow.get_artifact_uri("note.txt").endswith("note.txt")
    found = mlflow.get_run(run.info.run_id)
    assert (found.data.params, found.data.metrics) == ({"a": "1", "b": "x"}, {"m": 1.0, "n": 2.0})
    assert found.data.tags["t"] == "1"
    assert "u" not in found.data.tags
    assert mlflow.artifacts.load_text(f"{found.info.artifact_uri}/note.txt") == "hello"
    assert len(mlflow.artifacts.list_artifacts(run_id=run.info.run_id)) == 2


@case("mlflow.search_runs", "as a table, by experiment_names")
def _(at: Place) -> None:
    with _speaking(at) as made:
        for number in range(3):
            with mlflow.start_run():
                mlflow.log_metric("m", number)
                mlflow.log_param("p", number)
        found = mlflow.search_runs([made], order_by=["metrics.m DESC"])
        assert list(found["metrics.m"]) == [2.0, 1.0, 0.0]
        listed = mlflow.search_runs(experiment_names=[at.name("fluent")], filter_string="params.p = '1'", output_format="list")
        assert [each.data.params["p"] for each in listed] == ["1"]
        assert mlflow.last_active_run() is not None


@case("mlflow.search_experiments", "names")
def _(at: Place) -> None:
    with _speaking(at):
        found = mlflow.search_experiments(filter_string=f"name = '{at.name('fluent')}'")
        assert [each.name for each in found] == [at.name("fluent")]


@case("mlflow.log_input", "a table, with context and tags")
def _(at: Place) -> None:
    import pandas

    data = mlflow.data.from_pandas(pandas.DataFrame({"a": [1, 2]}), source="digits.csv", name="digits")
    with _speaking(at), mlflow.start_run() as run:
        mlflow.log_input(data, "train", {"foo": "baz"})
    (found,) = mlflow.get_run(run.info.run_id).inputs.dataset_inputs
    assert found.dataset.name == "digits"
    assert {tag.key: tag.value for tag in found.tags} == {"foo": "baz", "mlflow.data.context": "train"}


@case("mlflow.register_model", "a logged model, tags, the name made or found")
def _(at: Place) -> None:
    with _speaking(at):
        model = mlflow.initialize_logged_model("net")
        at.client.log_model_artifact(model.model_id, str(at.model))
        mlflow.finalize_logged_model(model.model_id, "READY")
        source = f"models:/{model.model_id}"
        made = mlflow.register_model(source, at.name("Net"), tags={"t": "1"})
        assert (made.version, made.tags) == ("1", {"t": "1"})
        assert mlflow.register_model(source, at.name("Net")).version == "2"
        assert len(mlflow.search_model_versions(filter_string=f"name = '{at.name('Net')}'")) == 2
        assert len(mlflow.search_registered_models(filter_string=f"name = '{at.name('Net')}'")) == 1


@case("mlflow.artifacts", "models:/NAME/VERSION, @ALIAS and /STAGE")
def _(at: Place) -> None:
    from pathlib import Path

    with _speaking(at):
        name, _, _ = at.versions(2)
        at.client.set_registered_model_alias(name, "champion", "1")
        at.client.transition_model_version_stage(name, "2", "Production")
        for uri in (f"models:/{name}/1", f"models:/{name}@champion", f"models:/{name}/Production", f"models:/{name}/latest"):
            target = at.folder / uri.rpartition("/")[2]
            target.mkdir()
            path = Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(target)))
            assert any(each.read_bytes() == at.model.read_bytes() for each in path.rglob("*.onnx")), uri


@case("mlflow.initialize_logged_model", "and what follows")
def _(at: Place) -> None:
    with _speaking(at) as made:
        model = mlflow.initialize_logged_model("net", params={"p": "1"})
        mlflow.finalize_logged_model(model.model_id, "READY")
        mlflow.set_logged_model_tags(model.model_id, {"a": "1"})
        mlflow.delete_logged_model_tag(model.model_id, "a")
        mlflow.log_model_params({"q": "2"}, model_id=model.model_id)
        assert mlflow.get_logged_model(model.model_id).params == {"p": "1", "q": "2"}
        found = mlflow.search_logged_models([made], output_format="list")
        assert [each.model_id for each in found] == [model.model_id]


@case("mlflow.set_registered_model_alias", "unknown model")
def _(at: Place) -> None:
    refused(lambda: at.client.set_registered_model_alias(at.name("none"), "a", "1"), "RESOURCE_DOES_NOT_EXIST")


@case("mlflow.delete_run", "and mlflow.delete_experiment")
def _(at: Place) -> None:
    with _speaking(at) as made:
        with mlflow.start_run() as run:
            pass
        mlflow.delete_run(run.info.run_id)
        assert mlflow.get_run(run.info.run_id).info.lifecycle_stage == "deleted"
        mlflow.delete_experiment(made)
        mlflow.tracking.MlflowClient().restore_experiment(made)
