"""Names of registered models: each name that a client sends identifies one model, and is returned unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.app.port.port import ChangeSet
from fairway.state.mlflow_record import RegisteredModelName
from fairway.testing.builder.model_file import onnx_file
from fairway.units.names import model_name

ALIKE = ["ResNet50", "ResNet18", "resnet50", "resnet", "ResNet", "My Net", "my net", "my-net", "模型", "модель", "3D", "é",
         "e\u0301", "a" * 256, "a" * 255 + "b", "job", "model", model_name("Shadowed"), "Shadowed"]  # fmt: skip


async def a_version(call: Any, name: str, weight: str) -> Any:
    """Register a model with its own content under a name."""
    run = (await call.post("runs/create", experiment_id="0"))["run"]["info"]["run_id"]
    assert (await call.put_file(f"{run}/model/model.onnx", onnx_file(weights=(weight,)))).status == 200
    return (await call.post("model-versions/create", name=name, source=f"runs:/{run}/model", run_id=run))["model_version"]


def old_name(place: Any, name: str, model: str) -> None:
    """Store a name as an earlier version of Fairway wrote it."""
    place.app.store.commit(
        ChangeSet(tracked=(RegisteredModelName("default", name, model=model, created=1.0, description="old"),))
    )


async def test_every_name_is_a_model_of_its_own(place: Any) -> None:
    call = place.speak()
    for number, name in enumerate(ALIKE):
        answer = await call.post("registered-models/create", name=name, description=f"d{number}")
        assert answer["registered_model"]["name"] == name
        assert (await call("POST", "registered-models/create", {"name": name})).error == "RESOURCE_ALREADY_EXISTS"
    for number, name in enumerate(ALIKE):
        version = await a_version(call, name, f"w{number}")
        assert (version["name"], version["version"]) == (name, "1")
    assert sorted({version.name for version in await place.app.models.list()}) == sorted(map(model_name, ALIKE))
    listed = (await call.get("registered-models/search", max_results=1000))["registered_models"]
    assert [each["name"] for each in listed] == sorted(ALIKE)
    for number, name in enumerate(ALIKE):
        registered = (await call.get("registered-models/get", name=name))["registered_model"]
        assert (registered["name"], registered["description"], registered["latest_versions"][0]["name"]) == (
            name,
            f"d{number}",
            name,
        )
        uri = (await call.get("model-versions/get-download-uri", name=name, version="1"))["artifact_uri"]
        read = await call.get_file(f"{uri.removeprefix('mlflow-artifacts:/')}/model.onnx")
        assert read.body == onnx_file(weights=(f"w{number}",))
        (searched,) = (await call.get("model-versions/search", filter=f"name = '{name}'"))["model_versions"]
        assert searched["name"] == name


async def test_the_registry_keeps_the_name_that_was_given(place: Any) -> None:
    call = place.speak()
    await call.post("registered-models/create", name="ResNet50")
    await a_version(call, "ResNet50", "w")
    version = await place.app.models.get(model_name("ResNet50"))
    assert (version.name, version.title) == (model_name("ResNet50"), "ResNet50")
    await call.post("registered-models/create", name="resnet50")
    await a_version(call, "resnet50", "w")
    assert (await place.app.models.get("resnet50")).title == ""


async def test_a_name_is_found_without_its_record(place: Any) -> None:
    """As after the database was lost, or from another namespace of the same machine."""
    call, other = place.speak(), place.speak(namespace="team")
    await call.post("registered-models/create", name="ResNet50")
    await a_version(call, "ResNet50", "w")
    registered = (await other.get("registered-models/get", name="ResNet50"))["registered_model"]
    assert (registered["name"], len(registered["latest_versions"])) == ("ResNet50", 1)
    assert [each["name"] for each in (await other.get("registered-models/search"))["registered_models"]] == ["ResNet50"]
    assert (await other("POST", "registered-models/create", {"name": "ResNet50"})).error == "RESOURCE_ALREADY_EXISTS"
    assert (await other("GET", "registered-models/get", {"name": "Resnet50"})).error == "RESOURCE_DOES_NOT_EXIST"


async def test_a_model_answers_to_its_own_name_too(place: Any) -> None:
    call, own = place.speak(), model_name("ResNet50")
    await call.post("registered-models/create", name="ResNet50", description="d")
    await a_version(call, "ResNet50", "w")
    registered = (await call.get("registered-models/get", name=own))["registered_model"]
    assert (registered["name"], registered["description"], registered["latest_versions"][0]["version"]) == (own, "d", "1")
    assert (await call("POST", "registered-models/create", {"name": own})).error == "RESOURCE_ALREADY_EXISTS"
    await call("PATCH", "registered-models/update", {"name": own, "description": "e"})
    assert (await call.get("registered-models/get", name="ResNet50"))["registered_model"]["description"] == "e"
    assert len((await call.get("registered-models/search"))["registered_models"]) == 1


async def test_a_name_of_an_earlier_version_keeps_its_model(place: Any) -> None:
    call = place.speak()
    old_name(place, "ResNet50", "resnet")
    for name in ("ResNet50", "resnet"):
        registered = (await call.get("registered-models/get", name=name))["registered_model"]
        assert (registered["name"], registered["description"]) == (name, "old")
        assert (await call("POST", "registered-models/create", {"name": name})).error == "RESOURCE_ALREADY_EXISTS"
    await a_version(call, "ResNet50", "w")
    assert (await place.app.models.get("resnet@1")).version == 1
    assert (await a_version(call, "resnet", "v"))["version"] == "2"
    await call.post("registered-models/create", name="ResNet18")
    assert (await a_version(call, "ResNet18", "w"))["version"] == "1"
    names = [each["name"] for each in (await call.get("registered-models/search"))["registered_models"]]
    assert names == ["ResNet18", "ResNet50"]


@pytest.mark.parametrize("name", ["a/b", "a:b", "", "   ", "a" * 257, "a\nb"])
async def test_names_that_mlflow_refuses_are_refused(place: Any, name: str) -> None:
    refused = await place.speak()("POST", "registered-models/create", {"name": name})
    assert refused.error == "INVALID_PARAMETER_VALUE"
