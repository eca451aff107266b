"""`fairway predict`: the job that it creates from a model and rows, locally and on a cluster."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fairway.cli.argument_parser import parse
from fairway.cli.verbs.serve import predict
from fairway.errors import RefusedError

ONNX = {"name": "adds", "version": 2, "format": "onnx"}
TORCH = {"name": "adds", "version": 3, "format": "torch-export"}


class Cluster:
    """A session on a cluster: canned answers, and what was sent."""

    def __init__(self, *typed: str) -> None:
        self.options = parse(predict.COMMANDS[""], ["adds", *typed])
        self.sent = b""

    def fetch(self, path: str) -> dict[str, str]:
        assert path == "/v1/health"
        return {"image": "fairway:1"}

    def send_raw(self, path: str, data: bytes) -> bytes:
        assert path == "/v1/code"
        self.sent = data
        return json.dumps({"code": "blob:1"}).encode()


def made(cluster: Cluster, model: dict[str, Any], rows: str) -> dict[str, Any]:
    job = predict.make_job(cluster.options, "team", model, rows)
    spec: dict[str, Any] = predict.for_cluster(cluster, job, model)["spec"]  # type: ignore[arg-type]
    return spec


def words(spec: dict[str, Any]) -> list[str]:
    found: list[str] = spec["roles"]["worker"]["command"]
    return found


def test_onnx_runs_in_our_own_image_and_a_dataset_is_named() -> None:
    spec = made(Cluster("--data", "rows", "--out", "scored", "-w", "3"), ONNX, "rows@4")
    assert spec["environment"] == {"image": "fairway:1"}
    assert spec["data"] == {"model": "model://adds@2", "rows": "rows@4"}
    assert words(spec)[:4] == ["python3", "-I", "-m", "fairway.serving.predict"]
    assert "code" not in spec
    assert spec["roles"]["worker"]["replicas"] == {"min": 3, "max": 3}


def test_other_formats_need_an_image_and_may_name_an_interpreter_in_it() -> None:
    given = ("--data", "rows", "--out", "scored")
    with pytest.raises(RefusedError, match=r"adds@3 has the format torch-export") as refused:
        made(Cluster(*given), TORCH, "rows@4")
    assert "--image IMAGE" in refused.value.fix
    spec = made(Cluster(*given, "--image", "team/torch:1", "--python", "/opt/torch/bin/python"), TORCH, "rows@4")
    assert spec["environment"] == {"image": "team/torch:1"}
    assert words(spec)[-2:] == ["--python", "/opt/torch/bin/python"]


def test_rows_of_this_machine_go_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.csv").write_text("1,2\n")
    monkeypatch.chdir(tmp_path)
    cluster = Cluster("--data", "rows/", "--out", "scored")
    spec = made(cluster, ONNX, str(tmp_path / "rows"))
    assert spec["data"] == {"model": "model://adds@2"}
    assert spec["code"] == {"path": "blob:1"}
    assert words(spec)[words(spec).index("--data") + 1] == "rows"
    with tarfile.open(fileobj=io.BytesIO(cluster.sent)) as archive:
        assert archive.getnames() == ["rows", "rows/a.csv"]
    planned = Cluster("--data", "rows/", "--out", "scored", "--plan")
    assert made(planned, ONNX, str(tmp_path / "rows"))["code"] == {"path": "."}
    assert planned.sent == b""
