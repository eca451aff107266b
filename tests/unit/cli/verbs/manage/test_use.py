"""Which cluster and namespace commands use."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fairway.cli import context
from fairway.cli.cluster.upload import with_code
from fairway.cli.main import main


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate home, a kubeconfig with two contexts, and a separate working directory."""
    monkeypatch.setenv("FAIRWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("FAIRWAY_CONTEXT", raising=False)
    monkeypatch.delenv("FAIRWAY_NAMESPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    # Port 1 refuses connections.
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "broken", "context": {"cluster": "gone", "user": "u"}},
        ],
        "current-context": "lab",
    }
    (tmp_path / "config").write_text(json.dumps(content))
    return tmp_path


def test_local_is_where_it_begins_and_where_it_goes_back_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert context.remembered() == ("local", "")
    assert main(["use", "lab"]) == 0
    assert "on lab / team" in capsys.readouterr().err
    assert context.remembered() == ("lab", "")
    assert main(["use"]) == 0
    shown = capsys.readouterr().out
    assert "* lab     https://127.0.0.1:1  team" in shown
    assert "  local   this machine" in shown
    assert "cannot be used: " in shown
    assert main(["use", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["local", "broken", "lab"]
    assert main(["use", "local"]) == 0
    assert context.remembered() == ("local", "")
    assert main(["use", "local"]) == 0


def test_a_kubeconfig_file_is_a_context_too(own_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own_place / "team.yaml").write_text((own_place / "config").read_text())
    assert main(["use", "./team.yaml"]) == 0
    assert context.remembered() == ("lab", str(own_place / "team.yaml"))
    capsys.readouterr()
    assert main(["use", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["contexts"]
    assert [one["name"] for one in listed if one["current"]] == ["lab"]


def test_a_context_that_has_gone_is_shown_as_such(own_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context.remember("former")
    assert main(["use"]) == 0
    assert "* former  not in the kubeconfig any more" in capsys.readouterr().out
    assert main(["list"]) == 3
    assert "has no context 'former'" in capsys.readouterr().err


def test_flags_win_over_the_environment_and_that_over_what_is_remembered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context.remember("former")
    monkeypatch.setenv("FAIRWAY_CONTEXT", "lab")
    assert main(["list"]) == 4
    assert "https://127.0.0.1:1 (context lab) does not answer" in capsys.readouterr().err
    assert main(["--context", "elsewhere", "list"]) == 3
    assert "has no context 'elsewhere'" in capsys.readouterr().err


def test_without_a_kubeconfig_a_context_is_not_found(own_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own_place / "config").unlink()
    assert main(["list", "--context", "prod"]) == 3
    assert "there is no kubeconfig" in capsys.readouterr().err


def test_what_only_this_machine_could_show_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--context", "lab", "tensorboard", "mnist"]) == 5
    stderr = capsys.readouterr().err
    assert "the event files are with the run's pods" in stderr
    assert "tensorboard: {serve: true}" in stderr


class Sent:
    """A session that accepts only code."""

    namespace = "team"

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.daemon = self

    def request(self, method: str, path: str, query: dict[str, str], body: bytes, *, kind: str) -> io.BytesIO:
        assert (method, path, query, kind) == ("POST", "/v1/code", {"namespace": "team"}, "application/octet-stream")
        self.sent.append(body)
        return io.BytesIO(b'{"code": "blob:abc"}')


def test_code_goes_along_once_and_paths_mean_the_same_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").write_text("")
    session, packed = Sent(), {}  # type: Sent, dict[str, str]
    data = {"near": "data", "up": "./data", "kept": "mnist@3", "far": "s3://bucket/x", "named": "mnist"}
    document = {"kind": "TrainingJob", "spec": {"code": {"path": "."}, "data": data}}
    for _ in range(2):
        found = with_code(session, document, str(tmp_path), packed, plan=False)  # type: ignore[arg-type]
        assert found["spec"]["code"] == {"path": "blob:abc"}
    here = str(tmp_path / "data")
    assert found["spec"]["data"] == {**data, "near": here, "up": here}
    assert len(session.sent) == 1
    assert with_code(session, document, str(tmp_path), {}, plan=True)["spec"]["code"] == {"path": "."}  # type: ignore[arg-type]
    assert len(session.sent) == 1
    without = {"kind": "JobQueue", "spec": {"weight": "2"}}
    assert with_code(session, without, str(tmp_path), {}, plan=False) == without  # type: ignore[arg-type]
