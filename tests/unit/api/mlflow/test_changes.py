"""Renaming, deleting and stages, together with Fairway's own changes of models; and paths that try to leave the folder."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairway.app.tracking.model import TrackedModelUseCases
from fairway.testing.builder.model_file import onnx_file


async def two_versions(place: Any, name: str = "net", run: str = "") -> Any:
    """Create a model with versions 1 and 2, made by the owner or by a run."""
    call = place.speak(run)
    own = run or (await call.post("runs/create", experiment_id="0"))["run"]["info"]["run_id"]
    await call.post("registered-models/create", name=name)
    for number in range(2):
        assert (await call.put_file(f"{own}/{number}/model.onnx", onnx_file(weights=(str(number),)))).status == 200
        await call.post("model-versions/create", name=name, source=f"mlflow-artifacts:/{own}/{number}", run_id=own)
    return call


async def test_a_version_that_is_served_is_neither_deleted_nor_renamed(place: Any) -> None:
    call = await two_versions(place)
    place.app.models.in_use = lambda version: "service/net serves it" if version.version == 1 else ""
    for method, path, body in (
        ("DELETE", "model-versions/delete", {"name": "net", "version": "1"}),
        ("DELETE", "registered-models/delete", {"name": "net"}),
        ("POST", "registered-models/rename", {"name": "net", "new_name": "other"}),
    ):
        refused = await call(method, path, body)
        assert refused.status == 400
        assert "service/net serves it" in refused.json["message"]
    assert [each.version for each in await place.app.models.list("net")] == [1, 2]
    assert (await call("DELETE", "model-versions/delete", {"name": "net", "version": "2"})).status == 200


async def test_a_renamed_model_has_its_new_name_everywhere(place: Any) -> None:
    call = await two_versions(place)
    await call.post("registered-models/alias", name="net", alias="champion", version="1")
    await call.post("registered-models/rename", name="net", new_name="ResNet50")
    (version, _) = await place.app.models.list("resnet50--17602d153a")
    assert (version.title, version.aliases) == ("ResNet50", ("champion",))
    assert await place.app.models.list("net") == []
    assert (await call("GET", "registered-models/get", {"name": "net"})).error == "RESOURCE_DOES_NOT_EXIST"
    answer = await call.get("registered-models/get", name="resnet50--17602d153a")
    assert answer["registered_model"]["aliases"] == [{"alias": "champion", "version": "1"}]
    listed = await call.get("registered-models/search")
    assert [each["name"] for each in listed["registered_models"]] == ["ResNet50"]
    # The old name is free.
    await call.post("registered-models/create", name="net")
    assert (await call.get("registered-models/get", name="net"))["registered_model"]["latest_versions"] == []


async def test_stages_follow_an_alias_that_is_moved_by_hand(place: Any) -> None:
    call = await two_versions(place)
    await call.post("model-versions/transition-stage", name="net", version="2", stage="Production")
    await place.app.models.promote("net@1", "production")
    newest = await call.post("registered-models/get-latest-versions", name="net", stages=["Production"])
    assert [each["version"] for each in newest["model_versions"]] == ["1"]
    await place.app.models.demote("net", "production")
    newest = await call.post("registered-models/get-latest-versions", name="net", stages=["Production"])
    assert [each["version"] for each in newest["model_versions"]] == ["2"]


async def test_a_run_takes_no_stage_from_a_version_of_others(place: Any) -> None:
    owner = await two_versions(place)
    await owner.post("model-versions/transition-stage", name="net", version="1", stage="Production")
    await place.submit()
    call = place.speak("mnist-1")
    assert (await call.put_file("mnist-1/m/model.onnx", onnx_file(weights=("mine",)))).status == 200
    await call.post("model-versions/create", name="net", source="mlflow-artifacts:/mnist-1/m", run_id="mnist-1")
    for archive in (False, True):
        body = {"name": "net", "version": "3", "stage": "Production", "archive_existing_versions": archive}
        refused = await call("POST", "model-versions/transition-stage", body)
        assert refused.error == "PERMISSION_DENIED", refused.body
    assert (await place.app.models.get("net@production")).version == 1
    await call.post("model-versions/transition-stage", name="net", version="3", stage="Staging")
    assert (await place.app.models.get("net@staging")).version == 3


async def test_what_fairway_notes_in_tags_is_not_a_clients_to_change(place: Any) -> None:
    call = await two_versions(place)
    for key in ("fairway.run", "mlflow.source", "mlflow.runId"):
        for method, path in (("POST", "model-versions/set-tag"), ("DELETE", "model-versions/delete-tag")):
            refused = await call(method, path, {"name": "net", "version": "1", "key": key, "value": "default/other-1"})
            assert refused.error == "INVALID_PARAMETER_VALUE"
            assert key in refused.json["message"]


async def test_an_experiment_with_runs_of_other_jobs_is_not_deleted_by_a_run(place: Any) -> None:
    await place.submit()
    await place.submit("other")
    mine, other = place.speak("mnist-1"), place.speak("other-1")
    made = (await mine.post("experiments/create", name="shared"))["experiment_id"]
    await other.post("runs/create", experiment_id=made, tags=[{"key": "mlflow.parentRunId", "value": "other-1"}])
    refused = await mine("POST", "experiments/delete", {"experiment_id": made})
    assert refused.error == "PERMISSION_DENIED"
    await place.speak().post("experiments/delete", experiment_id=made)
    assert (await place.speak().post("runs/search", experiment_ids=[made]))["runs"] == []


@pytest.mark.parametrize("name", ["mnist", "0"])
async def test_series_and_the_default_experiment_stay(place: Any, name: str) -> None:
    await place.submit()
    for path, more in (("delete", {}), ("update", {"new_name": "x"})):
        refused = await place.speak()("POST", f"experiments/{path}", {"experiment_id": name, **more})
        assert refused.status == 400, refused.body
        assert "cannot be" in refused.json["message"]


WAYS_OUT = (
    "../mnist-1/kept.txt", "..%2fmnist-1%2fkept.txt", "a/../../mnist-1/kept.txt", "/etc/passwd", "a\\..\\b",
    "a/\x00", "./a", "..",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_no_path_deletes_or_reads_files_of_others(place: Any, way: str) -> None:
    await place.submit()
    await place.submit("other")
    other = place.speak("other-1")
    assert (await place.speak("mnist-1").put_file("mnist-1/kept.txt", b"kept")).status == 200
    root = "/api/2.0/mlflow-artifacts/artifacts"
    for path in (f"other-1/{way}", f"models/{way}", f"registered/{way}", way):
        for method in ("DELETE", "GET", "PUT"):
            answer = await other(method, f"{root}/{path}", b"x" if method == "PUT" else None)
            assert answer.status in (400, 403, 404) or (method == "PUT" and "%2f" in path), (method, path, answer.body)
    assert (await place.speak().get_file("mnist-1/kept.txt")).body == b"kept"
    listed = await other("GET", "artifacts/list", {"run_id": "other-1", "path": way})
    assert listed.status in (200, 400)
    assert b"kept.txt" not in listed.body or listed.status == 400


async def test_deleted_artifacts_leave_the_folder_of_a_job_in_place(place: Any) -> None:
    await place.submit()
    call, root = place.speak("mnist-1"), "/api/2.0/mlflow-artifacts/artifacts"
    await call.put_file("mnist-1/a/b.txt", b"1")
    assert (await call("DELETE", f"{root}/mnist-1/a")).status == 200
    assert (await call("DELETE", f"{root}/mnist-1/a")).error == "RESOURCE_DOES_NOT_EXIST"
    assert (await call.put_file("mnist-1/a/b.txt", b"2")).status == 200
    assert (await call("DELETE", f"{root}/mnist-1")).status == 200
    assert (await call.put_file("mnist-1/c.txt", b"3")).status == 200
    assert (place.home / "jobs" / "default" / "mnist-1" / "artifacts" / "c.txt").read_bytes() == b"3"


async def test_many_write_at_once_and_nothing_is_lost(place: Any) -> None:
    call = place.speak()
    run = (await call.post("runs/create", experiment_id="0"))["run"]["info"]["run_id"]
    pairs = [("log-parameter", "p"), ("set-tag", "t")]
    await asyncio.gather(
        *(
            call.post(f"runs/{path}", run_id=run, key=f"{word}{number}", value=str(number))
            for number in range(100)
            for path, word in pairs
        )
    )
    await two_versions(place)
    await asyncio.gather(*(call.post("registered-models/set-tag", name="net", key=f"k{each}", value="v") for each in range(50)))
    data = (await call.get("runs/get", run_id=run))["run"]["data"]
    assert len(data["params"]) == 100
    assert len([each for each in data["tags"] if each["key"].startswith("t")]) == 100
    assert len((await call.get("registered-models/get", name="net"))["registered_model"]["tags"]) == 50


async def test_ten_thousand_runs_are_paged_without_loss(place: Any) -> None:
    call = place.speak()
    made = (await call.post("experiments/create", name="many"))["experiment_id"]
    for number in range(10_000):
        place.models.tracking.create_run(place.speaker(), made, f"r{number}", 1000.0 + number, {"even": str(number % 2 == 0)})
    for body, count in (({}, 10_000), ({"filter": "tags.even = 'True'", "order_by": ["start_time ASC"]}, 5000)):
        found, token = [], ""
        while True:
            page = await call.post("runs/search", experiment_ids=[made], max_results=3000, page_token=token, **body)
            found += [each["info"]["run_name"] for each in page["runs"]]
            token = page.get("next_page_token", "")
            if not token:
                break
        assert len(found) == len(set(found)) == count
    assert found[0] == "r0"


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("mlflow/traces", "traces"),
        ("mlflow/webhooks/w-1", "webhooks"),
        ("mlflow/workspaces", "workspaces"),
        ("mlflow/gateway/endpoints/list", "AI gateway"),
        ("mlflow-artifacts/presigned/x", "URLs"),
        ("mlflow-artifacts/mpu/create/x", "Multipart upload is not supported"),
    ],
)
async def test_what_is_not_there_is_named(place: Any, path: str, part: str) -> None:
    for version in ("2.0", "3.0"):
        answer = await place.speak()("GET", f"/api/{version}/{path}")
        assert (answer.status, answer.error) == (501, "NOT_IMPLEMENTED")
        assert part in answer.json["message"]
    refused = await type(place.speak())(place.api, None)("GET", f"/api/2.0/{path}")
    assert refused.status == 401


@pytest.mark.parametrize("verb", ["tag", "delete"])
async def test_what_changes_while_a_version_is_changed_stays(place: Any, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    call = await two_versions(place)
    entered, go = asyncio.Event(), asyncio.Event()
    own = getattr(place.app.models, verb)

    async def slow(*words: Any) -> Any:
        found = await own(*words)
        entered.set()
        await go.wait()
        return found

    monkeypatch.setattr(place.app.models, verb, slow)
    asked = {"tag": ("POST", {"key": "a", "value": "b"}), "delete": ("DELETE", {})}[verb]
    path = {"tag": "model-versions/set-tag", "delete": "model-versions/delete"}[verb]
    first = asyncio.create_task(call(asked[0], path, {"name": "net", "version": "1", **asked[1]}))
    await entered.wait()
    await call.post("model-versions/transition-stage", name="net", version="2", stage="Archived")
    await call.post("registered-models/set-tag", name="net", key="team", value="nlp")
    go.set()
    assert (await first).status == 200
    found = (await call.get("model-versions/get", name="net", version="2"))["model_version"]
    assert found["current_stage"] == "Archived"
    model = (await call.get("registered-models/get", name="net"))["registered_model"]
    assert model["tags"] == [{"key": "team", "value": "nlp"}]


async def test_what_changes_while_a_stage_changes_stays(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = await two_versions(place)
    await call.post("model-versions/transition-stage", name="net", version="1", stage="Archived")
    entered, go = asyncio.Event(), asyncio.Event()
    own = TrackedModelUseCases.versions
    waits = iter([True])

    async def slow(models: TrackedModelUseCases, known: Any) -> Any:
        found = await own(models, known)
        if next(waits, False):
            entered.set()
            await go.wait()
        return found

    monkeypatch.setattr(TrackedModelUseCases, "versions", slow)
    body = {"name": "net", "version": "2", "stage": "Production"}
    first = asyncio.create_task(call("POST", "model-versions/transition-stage", body))
    await entered.wait()
    await call.post("registered-models/set-tag", name="net", key="team", value="nlp")
    await call.post("model-versions/transition-stage", name="net", version="1", stage="None")
    go.set()
    assert (await first).status == 200
    stages = [
        (await call.get("model-versions/get", name="net", version=str(number)))["model_version"]["current_stage"]
        for number in (1, 2)
    ]
    assert stages == ["None", "Production"]
    assert (await call.get("registered-models/get", name="net"))["registered_model"]["tags"] == [{"key": "team", "value": "nlp"}]
