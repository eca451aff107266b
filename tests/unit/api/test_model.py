"""Models over the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairway.registry.blob import BlobStore
from fairway.testing.builder.model_file import pickled_file
from fairway.testing.conformance.model_conformance import make_source


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


async def register(client: Any, source: Path, **more: object) -> Any:
    return await client.post("/v1/models", {"name": "mnist", "source": str(source), **more})


async def test_a_version_from_the_first_to_the_last_day(client: Any, source: Path, tmp_path: Path) -> None:
    version = await register(client, source, metrics={"accuracy": 0.9}, tags={"team": "nlp"})
    assert (version.status, version.json["version"], version.json["format"]) == (201, 1, "onnx")
    assert (await register(client, source, metrics={"accuracy": 0.9}, tags={"team": "nlp"})).json["version"] == 1
    assert (await register(client, source, metrics={"accuracy": 0.95}, imported=True)).json["version"] == 2
    assert (await client.get("/v1/models?output=name&name=mnist")).text == "mnist@1\nmnist@2\n"
    moved = await client.post("/v1/models/mnist@1/promote", {"alias": "champion"})
    assert moved.json == {"alias": "champion", "version": "mnist@1", "before": ""}
    moved = await client.post("/v1/models/mnist/promote?output=table", {"alias": "champion"})
    assert moved.text == "mnist@2 is champion, before it was mnist@1\n"
    shown = (await client.get("/v1/models/mnist@champion")).json
    assert (shown["version"], shown["aliases"], shown["lineage"]["source"]) == (2, ["champion"], str(source))
    assert [each["path"] for each in shown["contents"]] == ["assets/labels.txt", "model.onnx"]
    answer = (await client.get("/v1/models/mnist@1/diff/mnist@2")).json
    assert answer["same_content"] is True
    assert {each["what"] for each in answer["differences"]} == {"metric", "source", "tag"}
    pulled = await client.post("/v1/models/mnist@1/pull", {"folder": str(tmp_path / "pulled")})
    assert pulled.json["version"] == 1
    assert (tmp_path / "pulled" / "model.onnx").exists()
    tagged = await client.post("/v1/models/mnist@1/tags", {"tags": {"team": None, "stage": "test"}})
    assert tagged.json["tags"] == (await client.get("/v1/models/mnist@1")).json["tags"] == {"stage": "test"}
    refused = await client.delete("/v1/models/mnist@2")
    assert (refused.status, refused.json["error"]["message"]) == (409, "mnist@2 cannot be deleted: it is champion")
    assert (await client.delete("/v1/models/mnist@1")).json == {"deleted": ["mnist@1"]}
    gone = await client.post("/v1/models/mnist@2/promote?output=table", {"alias": "champion", "remove": True})
    assert gone.text == "mnist@2 is no longer champion\n"


async def test_plans_change_nothing(client: Any, source: Path) -> None:
    planned = await client.post("/v1/models?output=table", {"name": "mnist", "source": str(source), "plan": True})
    assert planned.text == f"{source} (onnx) would become the next version of mnist\n"
    assert (await client.get("/v1/models")).json == {"models": []}
    await register(client, source)
    await register(client, source, tags={"a": "b"})
    await client.post("/v1/models/mnist@1/promote", {"alias": "champion"})
    planned = await client.post("/v1/models/mnist@2/promote?output=table", {"alias": "champion", "plan": True})
    assert planned.text == "mnist@2 would be champion; now it is mnist@1\n"
    assert (await client.delete("/v1/models/mnist@2?plan=true&output=table")).text == "mnist@2 would be deleted\n"
    assert (await client.delete("/v1/models/mnist?plan=true&keep=1&output=table")).text == "nothing would change\n"
    assert [each["aliases"] for each in (await client.get("/v1/models")).json["models"]] == [["champion"], []]


async def test_all_but_the_newest_go_and_what_is_needed_stays(client: Any, source: Path) -> None:
    for number in range(5):
        await register(client, source, metrics={"n": number})
    await client.post("/v1/models/mnist@1/promote", {"alias": "champion"})
    client.app.models.in_use = lambda version: "service/digits" if version.version == 2 else ""
    assert (await client.delete("/v1/models/mnist?keep=2")).json == {"deleted": ["mnist@3"]}
    refused = await client.delete("/v1/models/mnist@2")
    assert "it is served by service/digits" in refused.json["error"]["message"]
    assert (await client.get("/v1/models/mnist@2")).json["used_by"] == "service/digits"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/v1/models/gone", None, 404, "there is no model gone"),
        ("GET", "/v1/models?name=gone", None, 404, "there is no model gone"),
        ("GET", "/v1/models/mnist@7", None, 404, "it has 1"),
        ("GET", "/v1/models/..%2F..%2Fetc@1", None, 400, "is not a valid name"),
        ("GET", "/v1/models/A@1", None, 400, "is not a valid name"),
        ("POST", "/v1/models", {"name": "x", "source": "/no/such"}, 404, "there is no file or folder"),
        ("POST", "/v1/models", {"name": "../x", "source": "/tmp"}, 400, "is not a valid name"),
        ("POST", "/v1/models", {"name": "x"}, 400, "source"),
        ("POST", "/v1/models", {"name": "x", "source": "here"}, 400, "not an absolute path"),
        ("POST", "/v1/models/mnist/pull", {"folder": "../x"}, 400, "not an absolute path"),
        ("POST", "/v1/models", {"name": "x", "source": "/", "metrics": {"a": "b"}}, 400, "metrics"),
        ("POST", "/v1/models", {"name": "x", "source": "nosuch://y"}, 400, "nosuch"),
        ("POST", "/v1/models", {"name": "x", "source": "/", "from_run": "gone-1"}, 404, "gone-1"),
        ("POST", "/v1/models/mnist/promote", {"alias": "latest"}, 400, "always means the newest"),
        ("POST", "/v1/models/mnist/promote", {"alias": "a/b"}, 400, "is not a valid alias"),
        ("POST", "/v1/models/mnist/pull", {"folder": "/tmp"}, 409, "exists already"),
        ("DELETE", "/v1/models/mnist?keep=0", None, 400, "keep"),
    ],
)
async def test_what_makes_no_sense_is_told(
    client: Any, source: Path, method: str, path: str, body: object, status: int, words: str
) -> None:
    await register(client, source)
    answer = await client.begin(method, path, body).done()
    assert answer.status == status
    assert words in json.dumps(answer.json)
    assert len((await client.get("/v1/models")).json["models"]) == 1


async def test_a_pickle_is_refused_with_the_flag_that_would_allow_it(client: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(pickled_file())
    refused = await client.post("/v1/models", {"name": "x", "source": str(tmp_path / "m.pt")})
    assert refused.status == 409
    assert "--allow-pickle" in refused.json["error"]["fix"]
    answer = await client.post("/v1/models", {"name": "x", "source": str(tmp_path / "m.pt"), "allow_pickle": True})
    assert answer.json["format"] == "pickle"


async def test_text_for_people(client: Any, source: Path) -> None:
    assert "fairway model register" in (await client.get("/v1/models?output=table")).text
    await register(client, source, metrics={"accuracy": 0.9})
    assert "mnist@1  onnx    accuracy 0.9" in (await client.get("/v1/models?output=table")).text
    page = (await client.get("/v1/models/mnist?output=table")).text
    for words in ("in  x  FP32[any, 4]", "out y  FP32[any, 2]", "accuracy 0.9", "assets/labels.txt", "promote mnist@1 champion"):
        assert words in page
    assert (await client.get("/v1/models/mnist/diff/mnist?output=table")).text == "mnist@1 and mnist@1 are the same\n"


def lines(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_damaged_content_is_found_named_and_repaired(client: Any, source: Path, tmp_path: Path) -> None:
    version = await register(client, source)
    assert version.status == 201
    whole = lines(await client.get("/v1/models/*/verify?output=table"))[-1]
    assert whole["end"] | {"size": 0} == {"versions": 1, "files": 2, "size": 0, "damaged": []}
    assert whole["shown"].startswith("1 version intact: 2 files, ")
    contents = (await client.get("/v1/models/mnist")).json["contents"]
    place = BlobStore(tmp_path / "blobs").path(next(each["sha256"] for each in contents if each["path"] == "model.onnx"))
    place.chmod(0o644)
    place.write_bytes(b"something else")
    for name in ("mnist@1", "mnist", "*"):
        told = lines(await client.get(f"/v1/models/{name}/verify?output=name"))[-1]
        assert [(each["version"], each["path"]) for each in told["end"]["damaged"]] == [("mnist@1", "model.onnx")]
        assert told["shown"] == "mnist@1\n"
    refused = await client.post("/v1/models/mnist/pull", {"folder": str(tmp_path / "pulled")})
    assert (refused.status, refused.json["error"]["code"]) == (409, "damaged")
    assert refused.json["error"]["message"].startswith("mnist@1: model.onnx is damaged")
    await register(client, source)
    assert lines(await client.get("/v1/models/mnist/verify"))[-1]["end"]["damaged"] == []
    assert (await client.get("/v1/models/other/verify")).status == 404
