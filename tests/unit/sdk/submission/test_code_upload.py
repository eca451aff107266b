"""What is uploaded to a cluster with documents, and clients for a cluster, before the first request."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fairway.errors import RefusedError, UsageError
from fairway.sdk.client import AsyncClient, Client
from fairway.sdk.method.call import ApiCall, Steps
from fairway.sdk.submission import code_upload


def ask(steps: Steps[Any], *answers: bytes) -> tuple[list[ApiCall], Any]:
    """Run a method with these answers; return its requests and its result."""
    asked = []
    try:
        asked.append(next(steps))
        for answer in answers:
            asked.append(steps.send(answer))
    except StopIteration as end:
        return asked, end.value
    raise AssertionError(asked)


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Port 1 refuses connections."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "lab",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("FAIRWAY_CONTEXT", raising=False)
    monkeypatch.delenv("FAIRWAY_NAMESPACE", raising=False)
    return path


def test_code_is_packed_and_sent_once_and_the_document_names_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / ".fairwayignore").write_text("data\n")
    (tmp_path / "data").write_text("large")
    job = {"kind": "TrainingJob", "spec": {"code": {"path": "."}, "data": {"near": "./data", "far": "s3://b/x"}}}
    text = "\n---\n".join([json.dumps(job), json.dumps(job)])
    body = {"documents": "as written", "file": "job.yaml", "origin": {"folder": "here"}}
    steps = code_upload.for_cluster(body, folder=str(tmp_path), namespace="team")
    (render, code), found = ask(steps, text.encode(), b'{"code": "blob:abc"}')
    assert (render.path, json.loads(render.body)["file"]) == ("/v1/render", "job.yaml")
    assert (code.path, code.query) == ("/v1/code", {"namespace": "team"})
    with tarfile.open(fileobj=io.BytesIO(code.body)) as archive:
        assert sorted(archive.getnames()) == [".fairwayignore", "train.py"]
    one, other = [json.loads(part) for part in found["documents"].split("\n---\n")]
    assert one == other
    assert one["spec"] == {"code": {"path": "blob:abc"}, "data": {"near": str(tmp_path / "data"), "far": "s3://b/x"}}
    assert set(found) == {"documents", "file"}


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    steps = code_upload.with_code({"spec": {"code": {"path": "gone"}}}, folder=str(tmp_path), namespace="team", packed={})
    with pytest.raises(RefusedError, match="there is no folder of code"):
        next(steps)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_says_where_it_acts(kind: type[Client | AsyncClient], kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(kind(context="lab")) == f"{kind.__name__}(context='lab', namespace='team')"
    assert kind(context=kubeconfig, namespace="other").namespace == "other"
    assert not kind().on_cluster
    monkeypatch.setenv("FAIRWAY_CONTEXT", "lab")
    assert kind().on_cluster
    assert not kind(context="local").on_cluster
    assert not kind(home="/tmp/somewhere").on_cluster
    with pytest.raises(UsageError, match="not both"):
        kind(context="lab", home="/tmp/somewhere")


@pytest.mark.usefixtures("kubeconfig")
def test_a_function_cannot_travel_and_that_is_said_before_anybody_is_asked() -> None:
    with pytest.raises(UsageError, match="a Python function cannot be sent to a cluster"):
        Client(context="lab").submit(lambda: 1)
