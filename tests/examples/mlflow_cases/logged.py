"""Cases of models that are logged by runs."""

from __future__ import annotations

from mlflow_cases.table import Place, case, pages, refused


def _model(at: Place, experiment: str, name: str, **more: object) -> str:
    return str(at.client.create_logged_model(experiment, name, **more).model_id)


@case("create_logged_model", "all fields")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    model = at.client.create_logged_model(made, "net", run, tags={"t": "1"}, params={"p": "2"}, model_type="agent")
    found = at.client.get_logged_model(model.model_id)
    assert (found.name, found.experiment_id, found.source_run_id, found.model_type) == ("net", made, run, "agent")
    assert found.params == {"p": "2"}
    assert found.tags["t"] == "1"
    assert found.status == "PENDING"


@case("create_logged_model", "without a name, and names that are none")
def _(at: Place) -> None:
    made = at.experiment()
    assert at.client.create_logged_model(made).name
    for wrong in ("a/b", "a:b", "a.b", "a%b", "a'b"):
        refused(lambda wrong=wrong: at.client.create_logged_model(made, wrong))


@case("get_logged_model", "one that is not there")
def _(at: Place) -> None:
    refused(lambda: at.client.get_logged_model("m-0"), "RESOURCE_DOES_NOT_EXIST", "not found")


@case("finalize_logged_model", "READY and FAILED")
def _(at: Place) -> None:
    made = at.experiment()
    for status in ("READY", "FAILED"):
        model = _model(at, made, "net")
        assert at.client.finalize_logged_model(model, status).status == status
        assert at.client.get_logged_model(model).status == status


@case("delete_logged_model", "is gone")
def _(at: Place) -> None:
    made = at.experiment()
    model = _model(at, made, "net")
    at.client.delete_logged_model(model)
    refused(lambda: at.client.get_logged_model(model), "RESOURCE_DOES_NOT_EXIST")
    assert at.client.search_logged_models([made]) == []


@case("log_model_params", "params")
def _(at: Place) -> None:
    model = _model(at, at.experiment(), "net", params={"a": "1"})
    at.client.log_model_params(model, {"b": "2"})
    assert at.client.get_logged_model(model).params == {"a": "1", "b": "2"}


@case("set_logged_model_tags", "tags")
def _(at: Place) -> None:
    model = _model(at, at.experiment(), "net")
    at.client.set_logged_model_tags(model, {"a": "1", "b": 2})
    at.client.set_logged_model_tags(model, {"a": "3"})
    assert {"a": "3", "b": "2"}.items() <= at.client.get_logged_model(model).tags.items()


@case("delete_logged_model_tag", "one that is there, and one that is not")
def _(at: Place) -> None:
    model = _model(at, at.experiment(), "net", tags={"a": "1"})
    at.client.delete_logged_model_tag(model, "a")
    assert "a" not in at.client.get_logged_model(model).tags
    refused(lambda: at.client.delete_logged_model_tag(model, "a"), "RESOURCE_DOES_NOT_EXIST", "'a'")


@case("search_logged_models", "filter_string")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    one = _model(at, made, "one", source_run_id=run, params={"p": "1"}, tags={"t": "x"}, model_type="agent")
    two = _model(at, made, "two", source_run_id=run, params={"p": "2"})
    at.client.log_metric(run, "acc", 0.5, model_id=one)
    for text, expected in (
        ("name = 'one'", [one]),
        ("name != 'one'", [two]),
        ("name LIKE '%o%'", [one, two]),
        ("params.p = '2'", [two]),
        ("tags.t = 'x'", [one]),
        ("model_type = 'agent'", [one]),
        (f"source_run_id = '{run}'", [one, two]),
        (f"model_id = '{two}'", [two]),
        ("metrics.acc >= 0.5", [one]),
        ("metrics.acc > 0.5", []),
        ("creation_timestamp > 0 AND name = 'two'", [two]),
    ):
        found = [each.model_id for each in at.client.search_logged_models([made], text)]
        assert sorted(found) == sorted(expected), (text, found)


@case("search_logged_models", "filter_string that is none", differs="an MLflow server answers with an internal error to some")
def _(at: Place) -> None:
    made = at.experiment()
    for wrong in ("color = 'x'", "name > 'x'", "params.p > 1"):
        refused(lambda wrong=wrong: at.client.search_logged_models([made], wrong))


@case("search_logged_models", "datasets")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    one, two = _model(at, made, "one"), _model(at, made, "two")
    at.client.log_metric(run, "acc", 0.9, model_id=one, dataset_name="train", dataset_digest="1")
    at.client.log_metric(run, "acc", 0.1, model_id=two, dataset_name="train", dataset_digest="1")
    at.client.log_metric(run, "acc", 0.9, model_id=two, dataset_name="test", dataset_digest="2")
    found = at.client.search_logged_models(
        [made], "metrics.acc > 0.5", datasets=[{"dataset_name": "test", "dataset_digest": "2"}]
    )
    assert [each.model_id for each in found] == [two]
    named = [{"dataset_name": "train", "dataset_digest": "1"}]
    assert [each.model_id for each in at.client.search_logged_models([made], "metrics.acc > 0.5", datasets=named)] == [one]


@case("search_logged_models", "order_by")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    names = ("b", "a", "c")
    models = {name: _model(at, made, name) for name in names}
    for name, value in zip(names, (2.0, 3.0, 1.0), strict=True):
        at.client.log_metric(run, "m", value, model_id=models[name], dataset_name="d", dataset_digest="1")

    def ordered(**order: object) -> str:
        return "".join(each.name for each in at.client.search_logged_models([made], order_by=[order]))

    assert ordered(field_name="name") == "abc"
    assert ordered(field_name="name", ascending=False) == "cba"
    assert ordered(field_name="metrics.m", ascending=True) == "cba"
    assert ordered(field_name="metrics.m", ascending=False, dataset_name="d") == "abc"
    assert ordered(field_name="creation_timestamp", ascending=True) in ("bac", "abc", "cab", "bca", "acb", "cba")
    refused(lambda: ordered(field_name="color"))


@case("search_logged_models", "max_results and page_token")
def _(at: Place) -> None:
    made = at.experiment()
    models = {_model(at, made, f"m{number}") for number in range(5)}
    found, count = pages(lambda token: at.client.search_logged_models([made], max_results=2, page_token=token))
    assert ({each.model_id for each in found}, count) == (models, 3)


@case("log_model_artifact", "a file")
def _(at: Place) -> None:
    model = _model(at, at.experiment(), "net")
    (at.folder / "a.txt").write_text("hello")
    at.client.log_model_artifact(model, str(at.folder / "a.txt"))
    assert [(each.path, each.file_size) for each in at.client.list_logged_model_artifacts(model)] == [("a.txt", 5)]


@case("log_model_artifacts", "a folder")
def _(at: Place) -> None:
    model = _model(at, at.experiment(), "net")
    (at.folder / "in" / "deep").mkdir(parents=True)
    (at.folder / "in" / "deep" / "a.txt").write_text("hello")
    at.client.log_model_artifacts(model, str(at.folder / "in"))
    assert [each.path for each in at.client.list_logged_model_artifacts(model)] == ["deep"]


@case("list_logged_model_artifacts", "path")
def _(at: Place) -> None:
    model = _model(at, at.experiment(), "net")
    (at.folder / "deep").mkdir()
    (at.folder / "deep" / "a.txt").write_text("hello")
    at.client.log_model_artifacts(model, str(at.folder))
    assert [each.path for each in at.client.list_logged_model_artifacts(model, "deep")] == ["deep/a.txt"]
    refused(lambda: at.client.list_logged_model_artifacts("m-0"), "RESOURCE_DOES_NOT_EXIST")
