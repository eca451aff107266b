"""Cases of experiments."""

from __future__ import annotations

from mlflow.entities import ViewType

from mlflow_cases.table import Place, case, pages, refused


@case("create_experiment", "name and tags come back")
def _(at: Place) -> None:
    name = at.name("Größe 模型 ü")
    made = at.client.create_experiment(name, tags={"a": "1", "n": "7"})
    found = at.client.get_experiment(made)
    assert (found.name, found.tags, found.lifecycle_stage) == (name, {"a": "1", "n": "7"}, "active")
    assert found.last_update_time >= found.creation_time > 0


@case("create_experiment", "artifact_location is where runs keep files")
def _(at: Place) -> None:
    made = at.experiment(artifact_location="s3://bucket/deep")
    assert at.client.get_experiment(made).artifact_location == "s3://bucket/deep"
    run = at.client.create_run(made)
    assert run.info.artifact_uri == f"s3://bucket/deep/{run.info.run_id}/artifacts"


@case("create_experiment", "a second one of that name")
def _(at: Place) -> None:
    at.experiment("same")
    refused(lambda: at.experiment("same"), "RESOURCE_ALREADY_EXISTS", "already exists")


@case("create_experiment", "the name of a deleted one")
def _(at: Place) -> None:
    at.client.delete_experiment(at.experiment("gone"))
    refused(lambda: at.experiment("gone"), "RESOURCE_ALREADY_EXISTS")


@case("create_experiment", "names that are none")
def _(at: Place) -> None:
    refused(lambda: at.client.create_experiment(""))
    refused(lambda: at.client.create_experiment("x" * 501))


@case("get_experiment", "one that is not there")
def _(at: Place) -> None:
    refused(lambda: at.client.get_experiment("123456789"), "RESOURCE_DOES_NOT_EXIST")


@case("get_experiment", "the default one")
def _(at: Place) -> None:
    assert at.client.get_experiment("0").name == "Default"


@case("get_experiment_by_name", "there and not there")
def _(at: Place) -> None:
    made = at.experiment("here")
    assert at.client.get_experiment_by_name(at.name("here")).experiment_id == made
    assert at.client.get_experiment_by_name(at.name("nowhere")) is None


@case("get_experiment_by_name", "a deleted one")
def _(at: Place) -> None:
    made = at.experiment("here")
    at.client.delete_experiment(made)
    assert at.client.get_experiment_by_name(at.name("here")).lifecycle_stage == "deleted"


@case("rename_experiment", "keeps the id and frees the name")
def _(at: Place) -> None:
    made = at.experiment("bad")
    at.client.rename_experiment(made, at.name("good"))
    assert at.client.get_experiment(made).name == at.name("good")
    assert at.client.get_experiment_by_name(at.name("bad")) is None
    again = at.experiment("bad")
    assert again != made
    assert at.client.get_experiment_by_name(at.name("bad")).experiment_id == again


@case("rename_experiment", "a deleted one", differs="an MLflow server answers with an internal error")
def _(at: Place) -> None:
    made = at.experiment("bad")
    at.client.delete_experiment(made)
    refused(lambda: at.client.rename_experiment(made, at.name("good")), "INVALID_PARAMETER_VALUE", "active")
    assert at.client.get_experiment(made).name == at.name("bad")


@case("rename_experiment", "to a name that is taken", differs="an MLflow server answers with an error of its database")
def _(at: Place) -> None:
    made, _ = at.experiment("one"), at.experiment("two")
    refused(lambda: at.client.rename_experiment(made, at.name("two")), "RESOURCE_ALREADY_EXISTS", "already exists")


@case("delete_experiment", "hides it with its runs")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    at.client.delete_experiment(made)
    assert at.client.get_experiment(made).lifecycle_stage == "deleted"
    assert at.client.get_run(run).info.lifecycle_stage == "deleted"
    assert at.client.search_runs([made]) == []
    refused(lambda: at.client.create_run(made), "INVALID_PARAMETER_VALUE", "must be in the 'active' state")
    refused(lambda: at.client.set_experiment_tag(made, "a", "b"))


@case("delete_experiment", "one that is not there")
def _(at: Place) -> None:
    refused(lambda: at.client.delete_experiment("123456789"), "RESOURCE_DOES_NOT_EXIST")


@case("restore_experiment", "shows it with its runs again")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    at.client.delete_experiment(made)
    at.client.restore_experiment(made)
    assert at.client.get_experiment(made).lifecycle_stage == "active"
    assert [each.info.run_id for each in at.client.search_runs([made])] == [run]


@case("restore_experiment", "a run that was deleted by itself stays so", differs="an MLflow server restores it with the others")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    at.client.delete_run(run)
    at.client.delete_experiment(made)
    at.client.restore_experiment(made)
    assert at.client.get_run(run).info.lifecycle_stage == "deleted"


@case("restore_experiment", "an active one")
def _(at: Place) -> None:
    refused(lambda: at.client.restore_experiment(at.experiment()), "RESOURCE_DOES_NOT_EXIST")


@case("set_experiment_tag", "is set, changed, empty, of many lines")
def _(at: Place) -> None:
    made, other = at.experiment("a"), at.experiment("b")
    for value in ("one", "two", "", "many\nlines\n"):
        at.client.set_experiment_tag(made, "key", value)
        assert at.client.get_experiment(made).tags["key"] == value
    assert at.client.get_experiment(other).tags == {}


@case("set_experiment_tag", "long values")
def _(at: Place) -> None:
    made = at.experiment()
    at.client.set_experiment_tag(made, "key", "ü" * 20_000)
    assert at.client.get_experiment(made).tags["key"] == "ü" * 20_000
    refused(lambda: at.client.set_experiment_tag(made, "key", "x" * 20_001), "INVALID_PARAMETER_VALUE", "20000")


@case("delete_experiment_tag", "one that is there, and one that is not")
def _(at: Place) -> None:
    made = at.experiment(tags={"a": "1", "b": "2"})
    at.client.delete_experiment_tag(made, "a")
    assert at.client.get_experiment(made).tags == {"b": "2"}
    refused(lambda: at.client.delete_experiment_tag(made, "a"), "RESOURCE_DOES_NOT_EXIST", "No tag with name: a")


def _three(at: Place) -> list[str]:
    for word, tags in (("a", {"key": "value"}), ("ab", {"key": "vaLue"}), ("Abc", None)):
        at.client.create_experiment(at.name(word), tags=tags)
    return [at.name(word) for word in ("a", "ab", "Abc")]


@case("search_experiments", "filter_string by name")
def _(at: Place) -> None:
    a, ab, abc = _three(at)
    for text, expected in (
        (f"attribute.name = '{a}'", {a}),
        (f"name LIKE '{at.name('a')}%'", {a, ab}),
        (f"name ILIKE '{at.name('a')}%'", {a, ab, abc}),
        (f"name ILIKE '{at.name('')}%' AND attribute.name != '{a}'", {ab, abc}),
    ):
        assert {each.name for each in at.client.search_experiments(filter_string=text)} == expected, text


@case("search_experiments", "filter_string by tags")
def _(at: Place) -> None:
    a, ab, _ = _three(at)
    mine = f" AND name ILIKE '{at.name('')}%'"
    for text, expected in (
        ("tag.key = 'value'", {a}),
        ("tags.key != 'value'", {ab}),
        ("tag.key LIKE 'va%'", {a, ab}),
        ("tag.`key` ILIKE '%ALU%'", {a, ab}),
    ):
        assert {each.name for each in at.client.search_experiments(filter_string=text + mine)} == expected, text


@case("search_experiments", "filter_string by times")
def _(at: Place) -> None:
    names = _three(at)
    found = at.client.get_experiment_by_name(names[2])
    text = f"creation_time >= {found.creation_time} AND last_update_time >= {found.last_update_time}"
    assert names[2] in {each.name for each in at.client.search_experiments(filter_string=text)}
    assert at.client.search_experiments(filter_string="creation_time > 99999999999999") == []


@case("search_experiments", "filter_string that is none")
def _(at: Place) -> None:
    for text in ("color = 'x'", "name > 'a'", "creation_time = 'x'", "metrics.a > 1", "name"):
        refused(lambda text=text: at.client.search_experiments(filter_string=text))


@case("search_experiments", "order_by")
def _(at: Place) -> None:
    names = _three(at)
    text = f"name ILIKE '{at.name('')}%'"
    for order, expected in (
        (["name"], sorted(names)),
        (["name DESC"], sorted(names, reverse=True)),
        (["name ASC"], sorted(names)),
    ):
        assert [each.name for each in at.client.search_experiments(filter_string=text, order_by=order)] == expected
    refused(lambda: at.client.search_experiments(order_by=["color"]))
    refused(lambda: at.client.search_experiments(order_by=["name UP"]))


@case("search_experiments", "max_results and page_token")
def _(at: Place) -> None:
    names = _three(at)
    text = f"name ILIKE '{at.name('')}%'"
    found, count = pages(
        lambda token: at.client.search_experiments(filter_string=text, order_by=["name"], max_results=1, page_token=token)
    )
    assert ([each.name for each in found], count) == (sorted(names), 3)
    for wrong in (0, -1, 1_000_000):
        refused(lambda wrong=wrong: at.client.search_experiments(max_results=wrong))
    refused(lambda: at.client.search_experiments(page_token="never given"))


@case("search_experiments", "view_type")
def _(at: Place) -> None:
    a, ab, abc = _three(at)
    at.client.delete_experiment(at.client.get_experiment_by_name(ab).experiment_id)
    for view, expected in ((ViewType.ACTIVE_ONLY, {a, abc}), (ViewType.DELETED_ONLY, {ab}), (ViewType.ALL, {a, ab, abc})):
        found = at.client.search_experiments(view_type=view, filter_string=f"name ILIKE '{at.name('')}%'")
        assert {each.name for each in found} == expected
