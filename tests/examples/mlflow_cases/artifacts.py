# ruff: noqa: BLE001, PT017
"""Cases of files."""

from __future__ import annotations

import io

from mlflow.artifacts import download_artifacts
from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

from mlflow_cases.table import Place, case, refused


def _content(at: Place, run: str, path: str) -> bytes:
    from pathlib import Path

    return Path(at.client.download_artifacts(run, path, str(at.folder))).read_bytes()


@case("log_artifact", "artifact_path")
def _(at: Place) -> None:
    run = at.run()
    source = at.folder / "ü 模.txt"
    source.write_text("hello")
    at.client.log_artifact(run, str(source))
    at.client.log_artifact(run, str(source), "deep/er")
    assert [(each.path, each.is_dir, each.file_size) for each in at.client.list_artifacts(run)] == [
        ("deep", True, None),
        ("ü 模.txt", False, 5),
    ]
    assert [each.path for each in at.client.list_artifacts(run, "deep/er")] == ["deep/er/ü 模.txt"]
    assert _content(at, run, "deep/er/ü 模.txt") == b"hello"


@case("log_artifact", "over one that is there, and an empty one")
def _(at: Place) -> None:
    run = at.run()
    for text in ("first", "second", ""):
        (at.folder / "a.txt").write_text(text)
        at.client.log_artifact(run, str(at.folder / "a.txt"))
        assert (at.client.list_artifacts(run)[0].file_size or 0) == len(text)


@case("log_artifact", "of many megabytes")
def _(at: Place) -> None:
    run = at.run()
    data = bytes(range(256)) * 40_000
    (at.folder / "big.bin").write_bytes(data)
    at.client.log_artifact(run, str(at.folder / "big.bin"), "in")
    assert _content(at, run, "in/big.bin") == data


@case("log_artifacts", "artifact_path")
def _(at: Place) -> None:
    run = at.run()
    for path in ("in/a.txt", "in/sub/b.txt"):
        (at.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (at.folder / path).write_text(path)
    at.client.log_artifacts(run, str(at.folder / "in"))
    at.client.log_artifacts(run, str(at.folder / "in"), "dir")
    assert {each.path for each in at.client.list_artifacts(run)} == {"a.txt", "sub", "dir"}
    assert {each.path for each in at.client.list_artifacts(run, "dir/sub")} == {"dir/sub/b.txt"}


@case("log_text", "artifact_file")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_text(run, "hello ü", "dir/note.txt")
    assert _content(at, run, "dir/note.txt").decode() == "hello ü"


@case("log_dict", "artifact_file")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_dict(run, {"a": [1, "ü"]}, "dir/data.json")
    assert b'"a"' in _content(at, run, "dir/data.json")


@case("log_stream", "artifact_file")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_stream(run, io.BytesIO(b"bytes"), "dir/stream.bin")
    assert _content(at, run, "dir/stream.bin") == b"bytes"


@case("log_table", "data and artifact_file, twice")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    at.client.log_table(run, {"a": [1, 2], "b": ["x", "y"]}, "table.json")
    at.client.log_table(run, {"a": [3], "b": ["z"]}, "table.json")
    found = at.client.load_table(made, "table.json")
    assert list(found["a"]) == [1, 2, 3]


@case("load_table", "run_ids and extra_columns")
def _(at: Place) -> None:
    made = at.experiment()
    one, two = at.run(made), at.run(made)
    for run in (one, two):
        at.client.log_table(run, {"a": [run]}, "table.json")
    found = at.client.load_table(made, "table.json", run_ids=[one], extra_columns=["run_id"])
    assert (list(found["a"]), list(found["run_id"])) == ([one], [one])


@case("log_image", "an array, with artifact_file, and with key and step")
def _(at: Place) -> None:
    import numpy

    try:
        import PIL  # noqa: F401
    except ImportError:
        return
    run = at.run()
    at.client.log_image(run, numpy.zeros((4, 4, 3), dtype=numpy.uint8), "dir/image.png")
    assert _content(at, run, "dir/image.png").startswith(b"\x89PNG")
    at.client.log_image(run, numpy.zeros((4, 4, 3), dtype=numpy.uint8), key="dog", step=3, synchronous=True)
    assert len(at.client.list_artifacts(run, "images")) == 2


@case("log_figure", "artifact_file")
def _(at: Place) -> None:
    class Figure:
        pass

    run = at.run()
    try:
        at.client.log_figure(run, Figure(), "figure.png")
    except Exception as problem:
        # Neither matplotlib nor plotly is installed here; the client renders the figure, and sends it as any other file.
        assert "figure" in str(problem).lower() or "matplotlib" in str(problem).lower(), problem


@case("list_artifacts", "path, none and of a file")
def _(at: Place) -> None:
    run = at.run()
    assert at.client.list_artifacts(run) == []
    at.client.log_text(run, "x", "a/b.txt")
    assert at.client.list_artifacts(run, "nowhere") == []
    assert at.client.list_artifacts(run, "a/b.txt") == []
    refused(lambda: at.client.list_artifacts("f" * 32), "RESOURCE_DOES_NOT_EXIST")


@case("list_artifacts", "a way out")
def _(at: Place) -> None:
    run = at.run()
    for path in ("../", "a/../../b", "/etc", "%2e%2e/x", "..%2f..%2fetc"):
        try:
            assert at.client.list_artifacts(run, path) == []
        except Exception as problem:
            assert "path" in str(problem).lower(), problem


@case("download_artifacts", "a file, a folder, all, and none")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_text(run, "one", "a/one.txt")
    at.client.log_text(run, "two", "two.txt")
    target = at.folder / "to"
    target.mkdir()
    whole = download_artifacts(run_id=run, artifact_path="", dst_path=str(target), tracking_uri=at.uri)
    from pathlib import Path

    assert (Path(whole) / "a" / "one.txt").read_text() == "one"
    assert (Path(whole) / "two.txt").read_text() == "two"
    part = at.client.download_artifacts(run, "a", str(at.folder))
    assert (Path(part) / "one.txt").read_text() == "one"
    try:
        at.client.download_artifacts(run, "nothing.txt", str(at.folder))
    except Exception as problem:
        assert "nothing.txt" in str(problem) or "404" in str(problem), problem
    else:
        raise AssertionError("there is no such file")


@case("artifact repository", "delete_artifacts of a file, a folder, all")
def _(at: Place) -> None:
    run = at.run()
    for path in ("a/one.txt", "a/two.txt", "b.txt"):
        at.client.log_text(run, "x", path)
    uri = at.client.get_run(run).info.artifact_uri
    repository = MlflowArtifactsRepository(uri, tracking_uri=at.uri)
    path = repository.artifact_uri.split("/api/2.0/mlflow-artifacts/artifacts/")[1]
    for gone, left in (("a/one.txt", {"a", "b.txt"}), ("a", {"b.txt"}), ("b.txt", set())):
        answer = at.ask("DELETE", f"/api/2.0/mlflow-artifacts/artifacts/{path}/{gone}")
        assert answer.status_code == 200, answer.text
        assert {each.path for each in at.client.list_artifacts(run)} == left
    at.client.log_text(run, "again", "c.txt")
    assert {each.path for each in at.client.list_artifacts(run)} == {"c.txt"}


@case("artifact repository", "multipart upload falls back to one piece", differs="an MLflow server on a local disk does the same")
def _(at: Place) -> None:
    answer = at.ask("POST", "/api/2.0/mlflow-artifacts/mpu/create/x/y", {"path": "y", "num_parts": 2})
    assert answer.status_code == 501
    assert "Multipart upload is not supported for the current artifact repository" in answer.json()["message"]
