"""Datasets over the API."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from fairway.runtime.pod import archive


async def test_a_folder_becomes_a_version_and_the_same_content_again_does_not(client: Any, tmp_path: Path) -> None:
    source = tmp_path / "digits"
    source.mkdir()
    (source / "one.txt").write_text("1")
    answer = await client.post("/v1/datasets", {"name": "digits", "path": str(source)})
    assert (answer.status, answer.json["version"], answer.json["files"]) == (201, 1, 1)
    assert (await client.post("/v1/datasets", {"name": "digits", "path": str(source)})).json["version"] == 1
    (source / "two.txt").write_text("2")
    assert (await client.post("/v1/datasets", {"name": "digits", "path": str(source)})).json["version"] == 2
    assert (await client.get("/v1/datasets?output=name")).text == "digits@1\ndigits@2\n"
    assert "digits@2" in (await client.get("/v1/datasets?output=table")).text


async def test_what_is_not_there_is_not_kept(client: Any, tmp_path: Path) -> None:
    answer = await client.post("/v1/datasets", {"name": "digits", "path": str(tmp_path / "gone")})
    assert answer.status == 404
    assert (await client.get("/v1/datasets")).json == {"datasets": []}
    assert "fairway data add" in (await client.get("/v1/datasets?output=table")).text


async def test_input_and_environment_reach_the_running_task(client: Any) -> None:
    await client.submit()
    assert (await client.post("/v1/jobs/mnist/input?task=worker-1", b"hello\n")).json == {"task": "worker-1"}
    assert [(key.task, data) for key, data in client.engine.machine.typed] == [("worker-1", b"hello\n")]
    inside = (await client.get("/v1/jobs/mnist/environment?role=worker&index=1")).json
    assert inside == {"task": "worker-1", "cwd": "/", "env": {"TASK": "worker-1"}}
    assert (await client.post("/v1/jobs/mnist/window?task=worker-0", {"rows": 24, "cols": 80})).status == 200
    assert (await client.get("/v1/jobs/mnist/environment?index=9")).status == 409


async def test_an_interrupt_reaches_every_task_and_survives_one_that_ended(client: Any) -> None:
    await client.submit()
    assert (await client.post("/v1/jobs/mnist/interrupt", {})).json == {"tasks": ["worker-0", "worker-1"]}
    assert [(key.task, data) for key, data in client.engine.machine.typed] == [("worker-0", b"\x03"), ("worker-1", b"\x03")]
    client.engine.machine.deaf.add("worker-0")
    assert (await client.post("/v1/jobs/mnist/interrupt", {})).json == {"tasks": ["worker-1"]}
    client.engine.machine.deaf.add("worker-1")
    refused = await client.post("/v1/jobs/mnist/interrupt", {})
    assert refused.status == 409
    assert "fairway stop mnist" in refused.text


async def test_versions_are_shown_and_compared(client: Any, tmp_path: Path) -> None:
    source = tmp_path / "digits"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_text(name)
    await client.post("/v1/datasets", {"name": "digits", "path": str(source)})
    (source / "a").write_text("longer")
    (source / "b").unlink()
    (source / "c").write_text("new")
    answer = await client.post("/v1/datasets", {"name": "digits", "path": str(source), "reference": True})
    assert (answer.json["version"], answer.json["reference"]) == (2, str(source))
    told = (await client.get("/v1/datasets/digits@1/diff/digits")).json
    changes = [(each["path"], each["change"]) for each in told["changes"]]
    assert changes == [("a", "changed"), ("b", "removed"), ("c", "added")]
    assert "removed" in (await client.get("/v1/datasets/digits@1/diff/digits?output=table")).text
    assert "2 files the same" in (await client.get("/v1/datasets/digits@1/diff/digits@1?output=table")).text
    shown = await client.get("/v1/datasets/digits@2?output=table")
    assert f"by reference to {source}" in shown.text
    assert [each["path"] for each in (await client.get("/v1/datasets/digits")).json["contents"]] == ["a", "c"]
    assert (await client.get("/v1/datasets/digits@9")).status == 404


async def test_a_version_is_deleted_and_its_number_is_not_used_again(client: Any, tmp_path: Path) -> None:
    source = tmp_path / "digits"
    for text in ("1", "2"):
        source.write_text(text)
        await client.post("/v1/datasets", {"name": "digits", "path": str(source)})
    assert "would be deleted" in (await client.delete("/v1/datasets/digits@2?plan=true&output=table")).text
    assert (await client.delete("/v1/datasets/digits@2")).json == {"deleted": ["digits@2"]}
    assert (await client.delete("/v1/datasets/digits@2")).status == 404
    assert (await client.post("/v1/datasets", {"name": "digits", "path": str(source)})).json["version"] == 3
    told = (await client.get("/v1/datasets/digits/events")).json["events"]
    assert [each["reason"] for each in told] == ["DatasetAdded", "DatasetAdded", "DatasetDeleted", "DatasetAdded"]
    assert (await client.get("/v1/datasets/letters/events")).status == 404


async def test_what_a_run_uses_is_not_deleted(client: Any, tmp_path: Path) -> None:
    (tmp_path / "digits").write_text("1")
    await client.post("/v1/datasets", {"name": "digits", "path": str(tmp_path / "digits")})
    await client.submit("kind: TrainingJob\nname: mnist\ncommand: stay\ndata: {train: digits@1}\n")
    refused = await client.delete("/v1/datasets/digits@1")
    assert (refused.status, "mnist-1 uses digits" in refused.text) == (409, True)


async def test_the_content_of_a_version_comes_as_an_archive(client: Any, tmp_path: Path) -> None:
    source = tmp_path / "digits"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "one.txt").write_text("1")
    made = (await client.post("/v1/datasets", {"name": "digits", "path": str(source)})).json
    answer = await client.get("/v1/datasets/digits@1/content")
    assert answer.status == 200
    (tmp_path / "got").mkdir()
    entries = archive.unpack(io.BytesIO(answer.body), str(tmp_path / "got"))
    assert (tmp_path / "got" / "deep" / "one.txt").read_text() == "1"
    assert archive.digest_of(entries) == made["digest"]
    await client.post("/v1/datasets", {"name": "there", "path": str(source), "reference": True})
    refused = await client.get("/v1/datasets/there/content")
    assert "is a reference: its content was never copied" in refused.text
