# ruff: noqa: BLE001, PT017
"""Cases of registered models and their versions."""

from __future__ import annotations

import time

from mlflow_cases.table import Place, case, pages, refused

ALIASED = "a version that an alias means is not deleted; MLflow takes the alias away without a word"


@case("create_registered_model", "name, tags, description")
def _(at: Place) -> None:
    name = at.name("Mein Netz ü")
    made = at.client.create_registered_model(name, {"k": "v", "another key": "x", "n": 12345}, "about")
    found = at.client.get_registered_model(name)
    for each in (made, found):
        assert (each.name, each.tags, each.description) == (name, {"k": "v", "another key": "x", "n": "12345"}, "about")
    assert found.latest_versions == []
    assert found.creation_timestamp <= found.last_updated_timestamp


@case("create_registered_model", "names that are taken or none")
def _(at: Place) -> None:
    name = at.registered()
    refused(lambda: at.client.create_registered_model(name), "RESOURCE_ALREADY_EXISTS", "already exists")
    for wrong in ("", " ", "a/b", "a:b"):
        refused(lambda wrong=wrong: at.client.create_registered_model(wrong))


@case("create_registered_model", "names that differ in little")
def _(at: Place) -> None:
    names = [at.name(word) for word in ("ResNet50", "ResNet18", "resnet50", "ResNet_50", "模型", "모델")]
    for name in names:
        at.client.create_registered_model(name, description=name)
    assert [at.client.get_registered_model(name).description for name in names] == names


@case("create_registered_model", "deployment_job_id")
def _(at: Place) -> None:
    assert at.client.create_registered_model(at.name("x"), deployment_job_id=None).name == at.name("x")


@case("get_registered_model", "one that is not there")
def _(at: Place) -> None:
    refused(lambda: at.client.get_registered_model(at.name("no")), "RESOURCE_DOES_NOT_EXIST", "Registered Model", "not found")


@case("rename_registered_model", "without versions")
def _(at: Place) -> None:
    name = at.registered("one", description="d", tags={"t": "1"})
    before = at.client.get_registered_model(name)
    at.client.rename_registered_model(name, at.name("two 2"))
    found = at.client.get_registered_model(at.name("two 2"))
    assert (found.description, found.tags, found.creation_timestamp) == ("d", {"t": "1"}, before.creation_timestamp)
    refused(lambda: at.client.get_registered_model(name), "RESOURCE_DOES_NOT_EXIST")
    assert at.client.create_registered_model(name).description in ("", None)


@case("rename_registered_model", "with versions, aliases and tags")
def _(at: Place) -> None:
    name, run, _ = at.versions(2)
    at.client.set_registered_model_alias(name, "champion", "1")
    at.client.set_model_version_tag(name, "2", "t", "x")
    at.client.update_model_version(name, "1", "about one")
    new = at.name("Other Net")
    at.client.rename_registered_model(name, new)
    found = at.client.get_model_version_by_alias(new, "champion")
    assert (found.version, found.name, found.description, found.run_id) == ("1", new, "about one", run)
    assert at.client.get_model_version(new, "2").tags == {"t": "x"}
    assert at.client.search_model_versions(f"name = '{name}'") == []
    assert len(at.client.search_model_versions(f"name = '{new}'")) == 2
    other, source = at.source()
    assert at.client.create_model_version(new, source, other).version == "3"


@case("rename_registered_model", "to a name that is taken, of one that is not there")
def _(at: Place) -> None:
    one, two = at.registered("one"), at.registered("two")
    refused(lambda: at.client.rename_registered_model(one, two), "RESOURCE_ALREADY_EXISTS", "already exists")
    refused(lambda: at.client.rename_registered_model(at.name("none"), at.name("x")), "RESOURCE_DOES_NOT_EXIST")
    refused(lambda: at.client.rename_registered_model(one, " "), "")
    refused(lambda: at.client.rename_registered_model(one, "a/b"))


@case("update_registered_model", "description")
def _(at: Place) -> None:
    name = at.registered()
    before = at.client.get_registered_model(name)
    time.sleep(0.002)
    at.client.update_registered_model(name, "about ü")
    found = at.client.get_registered_model(name)
    assert found.description == "about ü"
    assert found.creation_timestamp == before.creation_timestamp
    assert found.last_updated_timestamp > before.last_updated_timestamp
    refused(lambda: at.client.update_registered_model(at.name("none"), "x"), "RESOURCE_DOES_NOT_EXIST")


@case("delete_registered_model", "without versions, and made again")
def _(at: Place) -> None:
    name = at.registered()
    at.client.delete_registered_model(name)
    refused(lambda: at.client.get_registered_model(name), "RESOURCE_DOES_NOT_EXIST")
    refused(lambda: at.client.rename_registered_model(name, at.name("y")), "RESOURCE_DOES_NOT_EXIST")
    assert at.client.search_registered_models(f"name = '{name}'") == []
    at.client.create_registered_model(name)
    assert at.client.get_registered_model(name).latest_versions == []


@case("delete_registered_model", "with versions")
def _(at: Place) -> None:
    name, _, _ = at.versions(2)
    at.client.delete_registered_model(name)
    refused(lambda: at.client.get_model_version(name, "1"), "RESOURCE_DOES_NOT_EXIST")
    assert at.client.search_model_versions(f"name = '{name}'") == []


@case("delete_registered_model", "with an alias", differs=ALIASED)
def _(at: Place) -> None:
    name, _, _ = at.versions(2)
    at.client.set_registered_model_alias(name, "champion", "2")
    refused(lambda: at.client.delete_registered_model(name), "RESOURCE_ALREADY_EXISTS", "champion")
    assert len(at.client.search_model_versions(f"name = '{name}'")) == 2
    at.client.delete_registered_model_alias(name, "champion")
    at.client.delete_registered_model(name)


@case("search_registered_models", "filter_string")
def _(at: Place) -> None:
    tags = [{"even": str(number % 2 == 0)} for number in range(8)]
    tags = [{"even": str(number % 2 == 0)} for number in range(8)]
    names = [at.client.create_registered_model(at.name(f"RMx{number:03}"), each).name for number, each in enumerate(tags)]
    for text, expected in (
        (f"name LIKE '{at.name('RMx')}%7'", names[7:]),
        (f"name ILIKE '{at.name('rmX')}%'", names),
        (f"name LIKE '{at.name('rmX')}%'", []),
        ("name = 'badname'", []),
        (f"name = '{names[3]}'", names[3:4]),
        (f"name != '{names[0]}' AND name LIKE '{at.name('RMx')}00_'", names[1:]),
        (f"name LIKE '{at.name('RMx')}%' AND tags.even = 'True'", names[::2]),
        (f"name LIKE '{at.name('RMx')}%' AND tag.`even` ILIKE 'fal%'", names[1::2]),
    ):
        assert [each.name for each in at.client.search_registered_models(text)] == expected, text
    for wrong in ("color = 'x'", "name > 'x'", "metrics.a = 1", "name = 5", "name"):
        refused(lambda wrong=wrong: at.client.search_registered_models(wrong))


@case("search_registered_models", "max_results and page_token")
def _(at: Place) -> None:
    names = [at.registered(f"m{number:02}") for number in range(9)]
    for size in (1, 4, 100):
        found, _ = pages(
            lambda token, size=size: at.client.search_registered_models(
                f"name LIKE '{at.name('m')}%'", max_results=size, page_token=token
            )
        )
        assert [each.name for each in found] == names
    refused(lambda: at.client.search_registered_models(max_results=1001))
    refused(lambda: at.client.search_registered_models(page_token="never given"))


@case("search_registered_models", "order_by")
def _(at: Place) -> None:
    names = []
    for word in ("b", "a", "c"):
        names.append(at.registered(word))
        time.sleep(0.002)
    text = f"name LIKE '{at.name('')}%'"
    for order, expected in (
        (["name"], sorted(names)),
        (["name DESC"], sorted(names, reverse=True)),
        (["last_updated_timestamp DESC"], names[::-1]),
        (["timestamp ASC"], names),
    ):
        assert [each.name for each in at.client.search_registered_models(text, order_by=order)] == expected, order
    refused(lambda: at.client.search_registered_models(order_by=["color"]))


@case("set_registered_model_tag", "set, changed, empty, long")
def _(at: Place) -> None:
    name = at.registered()
    for value in ("one", 7, "", "y" * 100_000):
        at.client.set_registered_model_tag(name, "key", value)
        assert at.client.get_registered_model(name).tags == {"key": str(value)}
    refused(lambda: at.client.set_registered_model_tag(name, "key", "x" * 100_001))
    refused(lambda: at.client.set_registered_model_tag(at.name("none"), "key", "x"), "RESOURCE_DOES_NOT_EXIST")


@case("delete_registered_model_tag", "one that is there, and one that is not")
def _(at: Place) -> None:
    name = at.registered(tags={"a": "1", "b": "2"})
    at.client.delete_registered_model_tag(name, "a")
    at.client.delete_registered_model_tag(name, "a")
    assert at.client.get_registered_model(name).tags == {"b": "2"}


@case("create_model_version", "source, run_id, tags, description")
def _(at: Place) -> None:
    name = at.registered()
    run, source = at.source()
    made = at.client.create_model_version(name, source, run, {"k": "v", "n": 5}, description="first")
    found = at.client.get_model_version(name, "1")
    for each in (made, found):
        assert (each.name, each.version, each.run_id, each.source) == (name, "1", run, source)
        assert (each.tags, each.description, each.status, each.current_stage) == ({"k": "v", "n": "5"}, "first", "READY", "None")
    assert at.client.get_registered_model(name).latest_versions[0].version == "1"


@case("create_model_version", "every call makes a version")
def _(at: Place) -> None:
    name, run, source = at.versions(2)
    assert at.client.create_model_version(name, source, run).version == "3"


@case("create_model_version", "model_id of a logged model")
def _(at: Place) -> None:
    made = at.experiment()
    model = at.client.create_logged_model(made, "net", at.run(made))
    at.client.log_model_artifact(model.model_id, str(at.model))
    at.client.finalize_logged_model(model.model_id, "READY")
    name = at.registered()
    found = at.client.create_model_version(name, f"models:/{model.model_id}", model.source_run_id, model_id=model.model_id)
    assert (found.run_id, found.source) == (model.source_run_id, f"models:/{model.model_id}")


@case("create_model_version", "of a model that is not there")
def _(at: Place) -> None:
    run, source = at.source()
    refused(lambda: at.client.create_model_version(at.name("none"), source, run), "RESOURCE_DOES_NOT_EXIST")


@case("create_model_version", "from files that are not there", differs="a version without files could never be served")
def _(at: Place) -> None:
    name, run = at.registered(), at.run()
    refused(lambda: at.client.create_model_version(name, f"runs:/{run}/model", run), "RESOURCE_DOES_NOT_EXIST", "model")


@case("create_model_version", "from outside of Fairway", differs="a version without files here could never be served")
def _(at: Place) -> None:
    name, run = at.registered(), at.run()
    for source in ("s3://bucket/model", "/tmp/model", "file:///etc", "http://host/../../etc", "mlflow-artifacts://host/../x"):
        refused(lambda source=source: at.client.create_model_version(name, source, run), "INVALID_PARAMETER_VALUE", source)


@case("create_model_version", "run_link")
def _(at: Place) -> None:
    name = at.registered()
    run, source = at.source()
    at.client.create_model_version(name, source, run, run_link="http://host/run")
    assert at.client.get_model_version(name, "1").run_link == "http://host/run"


@case("get_model_version", "numbers that are none")
def _(at: Place) -> None:
    name, _, _ = at.versions()
    refused(lambda: at.client.get_model_version(name, "something"), "INVALID_PARAMETER_VALUE", "version", "something")
    refused(lambda: at.client.get_model_version(name, "7"), "RESOURCE_DOES_NOT_EXIST", "Model Version", "not found")


@case("update_model_version", "description")
def _(at: Place) -> None:
    name, _, _ = at.versions()
    before = at.client.get_model_version(name, "1")
    time.sleep(0.002)
    made = at.client.update_model_version(name, "1", "about ü")
    assert made.description == "about ü"
    found = at.client.get_model_version(name, "1")
    assert (found.description, found.creation_timestamp) == ("about ü", before.creation_timestamp)
    assert found.last_updated_timestamp > before.last_updated_timestamp
    refused(lambda: at.client.update_model_version(name, "9", "x"), "RESOURCE_DOES_NOT_EXIST")


@case("delete_model_version", "is gone, and its number with it")
def _(at: Place) -> None:
    name, run, source = at.versions(3)
    at.client.delete_model_version(name, "1")
    at.client.delete_model_version(name, "3")
    assert [each.version for each in at.client.search_model_versions(f"name = '{name}'")] == ["2"]
    for call in (
        lambda: at.client.delete_model_version(name, "1"),
        lambda: at.client.update_model_version(name, "1", "x"),
        lambda: at.client.transition_model_version_stage(name, "1", "Staging"),
        lambda: at.client.set_model_version_tag(name, "1", "a", "b"),
    ):
        refused(call, "RESOURCE_DOES_NOT_EXIST", "not found")
    assert at.client.create_model_version(name, source, run).version == "4"


@case("delete_model_version", "one with an alias", differs=ALIASED)
def _(at: Place) -> None:
    name, _, _ = at.versions(1)
    at.client.set_registered_model_alias(name, "champion", "1")
    refused(lambda: at.client.delete_model_version(name, "1"), "RESOURCE_ALREADY_EXISTS", "champion")
    assert at.client.get_model_version(name, "1").aliases == ["champion"]


@case("search_model_versions", "filter_string")
def _(at: Place) -> None:
    name, run, source = at.versions(2, "Net1")
    other, _, _ = at.versions(1, "Net2")
    at.client.set_model_version_tag(name, "2", "t", "x")
    for text, expected in (
        (f"name = '{name}'", [(name, "2"), (name, "1")]),
        (f"run_id = '{run}'", [(name, "2"), (name, "1")]),
        (f"run_id IN ('{run}', 'x')", [(name, "2"), (name, "1")]),
        (f"source_path = '{source}'", [(name, "2"), (name, "1")]),
        (f"name LIKE '{at.name('Net')}%' AND name != '{name}'", [(other, "1")]),
        (f"name ILIKE '{at.name('NET2')}'", [(other, "1")]),
        (f"name = '{name}' AND tags.t = 'x'", [(name, "2")]),
        (f"name = '{name}' AND version_number > 1", [(name, "2")]),
        (f"name = '{name}' AND version_number = 1", [(name, "1")]),
        ("name = 'badname'", []),
    ):
        assert sorted((each.name, each.version) for each in at.client.search_model_versions(text)) == sorted(expected), text
    for wrong in ("color = 'x'", "metrics.a = 1", "version_number LIKE '1'", "name"):
        refused(lambda wrong=wrong: at.client.search_model_versions(wrong))


@case("search_model_versions", "order_by")
def _(at: Place) -> None:
    one, two = at.registered("one"), at.registered("two")
    run, source = at.source()
    for name in (one, two, one):
        at.client.create_model_version(name, source, run)
        time.sleep(0.002)
    text = f"run_id = '{run}'"
    for order, expected in (
        (None, [(one, "2"), (two, "1"), (one, "1")]),
        (["name DESC"], [(two, "1"), (one, "2"), (one, "1")]),
        (["name ASC", "version_number ASC"], [(one, "1"), (one, "2"), (two, "1")]),
        (["version_number DESC"], [(one, "2"), (one, "1"), (two, "1")]),
        (["creation_timestamp ASC"], [(one, "1"), (two, "1"), (one, "2")]),
        (["last_updated_timestamp DESC"], [(one, "2"), (two, "1"), (one, "1")]),
    ):
        assert [(each.name, each.version) for each in at.client.search_model_versions(text, order_by=order)] == expected, order
    refused(lambda: at.client.search_model_versions(order_by=["color"]))


@case("search_model_versions", "max_results and page_token")
def _(at: Place) -> None:
    name, _, _ = at.versions(5)
    for size, expected in ((1, 5), (2, 3), (100, 1)):
        found, count = pages(
            lambda token, size=size: at.client.search_model_versions(
                f"name = '{name}'", max_results=size, order_by=["version_number DESC"], page_token=token
            )
        )
        assert ([each.version for each in found], count) == (["5", "4", "3", "2", "1"], expected)
    refused(lambda: at.client.search_model_versions(max_results=0))
    refused(lambda: at.client.search_model_versions(max_results=300_000))


@case("get_model_version_download_uri", "where files can be read", differs="it is the copy in the registry, which stays")
def _(at: Place) -> None:
    name, run, _ = at.versions()
    at.client.delete_run(run)
    uri = at.client.get_model_version_download_uri(name, "1")
    assert uri.startswith("mlflow-artifacts:/")
    import mlflow.artifacts

    path = mlflow.artifacts.download_artifacts(uri, dst_path=str(at.folder), tracking_uri=at.uri)
    assert any(each.read_bytes() == at.model.read_bytes() for each in at.folder.rglob("*.onnx")), path


@case("get_model_version_stages", "the four")
def _(at: Place) -> None:
    name, _, _ = at.versions()
    assert set(at.client.get_model_version_stages(name, "1")) == {"None", "Staging", "Production", "Archived"}


@case("set_model_version_tag", "by version: set, changed, empty")
def _(at: Place) -> None:
    name, _, _ = at.versions()
    for value in ("one", 12345, ""):
        at.client.set_model_version_tag(name, "1", "key", value)
        assert at.client.get_model_version(name, "1").tags == {"key": str(value)}


@case("set_model_version_tag", "by stage")
def _(at: Place) -> None:
    name, _, _ = at.versions(2)
    at.client.transition_model_version_stage(name, "2", "Staging")
    at.client.set_model_version_tag(name, key="key", value="v", stage="Staging")
    assert at.client.get_model_version(name, "2").tags == {"key": "v"}
    assert at.client.get_model_version(name, "1").tags == {}


@case("delete_model_version_tag", "by version and by stage")
def _(at: Place) -> None:
    name, _, _ = at.versions(1, tags={"a": "1", "b": "2", "c": "3"})
    at.client.delete_model_version_tag(name, "1", "a")
    at.client.delete_model_version_tag(name, "1", "never")
    at.client.transition_model_version_stage(name, "1", "Production")
    at.client.delete_model_version_tag(name, key="b", stage="Production")
    assert at.client.get_model_version(name, "1").tags == {"c": "3"}


@case("set_registered_model_alias", "set, moved, of many letters")
def _(at: Place) -> None:
    name, _, _ = at.versions(2)
    for alias in ("test_alias", "Champion-2", "x"):
        at.client.set_registered_model_alias(name, alias, "1")
        assert alias in at.client.get_registered_model(name).aliases
    at.client.set_registered_model_alias(name, "x", "2")
    assert at.client.get_registered_model(name).aliases == {"test_alias": "1", "Champion-2": "1", "x": "2"}
    assert sorted(at.client.get_model_version(name, "1").aliases) == ["Champion-2", "test_alias"]


@case("set_registered_model_alias", "names that are reserved, versions that are none")
def _(at: Place) -> None:
    name, _, _ = at.versions()
    for alias in ("latest", "Latest", "v1", "V22", "a b", "a/b", "ü!"):
        refused(lambda alias=alias: at.client.set_registered_model_alias(name, alias, "1"))
    refused(lambda: at.client.set_registered_model_alias(name, "a", "9"), "RESOURCE_DOES_NOT_EXIST")


@case("get_model_version_by_alias", "there and not there")
def _(at: Place) -> None:
    name, _, _ = at.versions(2)
    at.client.set_registered_model_alias(name, "a", "1")
    found = at.client.get_model_version_by_alias(name, "a")
    assert (found.version, found.aliases) == ("1", ["a"])
    refused(lambda: at.client.get_model_version_by_alias(name, "b"), "INVALID_PARAMETER_VALUE", "b not found")
    assert at.client.get_model_version_by_alias(name, "latest").version == "2"


@case("delete_registered_model_alias", "there and not there")
def _(at: Place) -> None:
    name, _, _ = at.versions()
    at.client.set_registered_model_alias(name, "a", "1")
    at.client.delete_registered_model_alias(name, "a")
    at.client.delete_registered_model_alias(name, "a")
    assert at.client.get_registered_model(name).aliases == {}
    assert at.client.get_model_version(name, "1").aliases == []


@case("transition_model_version_stage", "each stage, in any case")
def _(at: Place) -> None:
    name, _, _ = at.versions()
    for stage, shown in (("Staging", "Staging"), ("production", "Production"), ("ARCHIVED", "Archived"), ("None", "None")):
        assert at.client.transition_model_version_stage(name, "1", stage).current_stage == shown
        assert at.client.get_model_version(name, "1").current_stage == shown
    refused(lambda: at.client.transition_model_version_stage(name, "1", "Elsewhere"))


@case("transition_model_version_stage", "archive_existing_versions")
def _(at: Place) -> None:
    name, _, _ = at.versions(3)
    at.client.transition_model_version_stage(name, "1", "Production")
    at.client.transition_model_version_stage(name, "2", "Production")
    assert at.client.get_model_version(name, "1").current_stage == "Production"
    at.client.transition_model_version_stage(name, "3", "Production", archive_existing_versions=True)
    assert [at.client.get_model_version(name, number).current_stage for number in "123"] == ["Archived", "Archived", "Production"]
    try:
        at.client.transition_model_version_stage(name, "3", "Archived", archive_existing_versions=True)
    except Exception as problem:
        assert "stage" in str(problem).lower()
    else:
        raise AssertionError("Archived is no active stage")


@case("transition_model_version_stage", "is an alias as well", differs="MLflow keeps stages and aliases apart")
def _(at: Place) -> None:
    name, _, _ = at.versions(3)
    at.client.transition_model_version_stage(name, "1", "Production")
    assert at.client.get_registered_model(name).aliases == {"production": "1"}
    at.client.transition_model_version_stage(name, "2", "Production", archive_existing_versions=True)
    at.client.transition_model_version_stage(name, "3", "Staging")
    assert at.client.get_registered_model(name).aliases == {"production": "2", "staging": "3"}
    at.client.transition_model_version_stage(name, "3", "None")
    assert at.client.get_registered_model(name).aliases == {"production": "2"}
    at.client.set_registered_model_alias(name, "production", "1")
    assert at.client.get_model_version(name, "1").current_stage == "Production"
    assert [each.version for each in at.client.get_latest_versions(name, ["Production"])] == ["1"]


@case("get_latest_versions", "stages")
def _(at: Place) -> None:
    name, _, _ = at.versions(7)
    for number, stage in enumerate(("Archived", "Production", "Archived", "Production", "Staging", "Staging"), 1):
        at.client.transition_model_version_stage(name, str(number), stage)

    def latest(stages: list[str] | None) -> dict[str, str]:
        return {each.current_stage: each.version for each in at.client.get_latest_versions(name, stages)}

    assert latest(["None"]) == {"None": "7"}
    assert latest(["Staging"]) == {"Staging": "6"}
    assert latest(["None", "staging"]) == {"None": "7", "Staging": "6"}
    everything = {"Production": "4", "Staging": "6", "Archived": "3", "None": "7"}
    assert latest(None) == latest([]) == everything
    found = {each.current_stage: each.version for each in at.client.get_registered_model(name).latest_versions}
    assert found == everything
    refused(lambda: latest(["Elsewhere"]))


@case("get_latest_versions", "times of the model follow")
def _(at: Place) -> None:
    name, _, _ = at.versions(2)
    first = at.client.get_registered_model(name).last_updated_timestamp
    time.sleep(0.002)
    at.client.transition_model_version_stage(name, "1", "Staging")
    second = at.client.get_registered_model(name).last_updated_timestamp
    assert second > first
    assert at.client.get_model_version(name, "1").last_updated_timestamp >= second
    time.sleep(0.002)
    at.client.update_model_version(name, "1", "about")
    assert at.client.get_registered_model(name).last_updated_timestamp == second
    time.sleep(0.002)
    at.client.delete_model_version(name, "2")
    assert at.client.get_registered_model(name).last_updated_timestamp > second


@case("copy_model_version", "by version and by alias, into the same and another model")
def _(at: Place) -> None:
    name, run, _ = at.versions(1, description="about", tags={"hello": "world"})
    at.client.set_registered_model_alias(name, "a", "1")
    made = at.client.copy_model_version(f"models:/{name}@a", name)
    assert (made.version, made.name) == ("2", name)
    found = at.client.get_model_version(name, "2")
    assert (found.source, found.description, found.run_id) == (f"models:/{name}/1", "about", run)
    assert (found.tags, found.aliases) == ({"hello": "world"}, [])
    other = at.client.copy_model_version(f"models:/{name}/1", at.name("copy"))
    assert (other.version, other.name, other.run_id) == ("1", at.name("copy"), run)
    refused(lambda: at.client.copy_model_version(f"models:/{name}/9", name), "", "not found")
    refused(lambda: at.client.copy_model_version("runs:/x/model", name), "")
