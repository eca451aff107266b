"""`fairway model` and `fairway data`: their requests, their output, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairway.cli.main import main
from fairway.cli.verbs.manage import model
from fairway.testing.fake.fake_daemon import FakeDaemon

Shown = pytest.CaptureFixture[str]
MADE: dict[str, object] = {"name": "mnist", "version": 3, "format": "onnx", "files": 2}


def test_a_registration_says_what_it_is_told(daemon: FakeDaemon, capsys: Shown, tmp_path: Path) -> None:
    daemon.answers["POST /v1/models"] = MADE
    typed = ["model", "register", "mnist", str(tmp_path), "--metric", "accuracy=0.9", "--metric", "loss=1e-3", "--tag", "a=b=c"]
    assert main([*typed, "--from-run", "mnist-7", "--allow-pickle", "--format", "python"]) == 0
    assert daemon.asked[0].data == {
        "name": "mnist",
        "source": str(tmp_path),
        "metrics": {"accuracy": 0.9, "loss": 0.001},
        "tags": {"a": "b=c"},
        "from_run": "mnist-7",
        "format": "python",
        "allow_pickle": True,
    }
    shown = capsys.readouterr()
    assert shown.out == "mnist@3\n"
    assert "on local / default" in shown.err
    assert "fairway model promote mnist@3 champion" in shown.err


@pytest.mark.parametrize(("uri", "sent"), [("s3://bucket/x", "s3://bucket/x"), ("/a/../b", "/b")])
def test_an_import_names_its_source(daemon: FakeDaemon, capsys: Shown, uri: str, sent: str) -> None:
    daemon.answers["POST /v1/models"] = "mnist@3\n"
    assert main(["model", "import", "mnist", uri, "-o", "name"]) == 0
    assert (daemon.asked[0].data["source"], daemon.asked[0].data["imported"]) == (sent, True)
    assert daemon.asked[0].query["output"] == "name"
    assert capsys.readouterr().out == "mnist@3\n"


def test_a_plan_changes_nothing(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers.update(
        {"POST /v1/models": "it would\n", "GET /v1/models/mnist": MADE, "DELETE /v1/models/mnist%401": "gone\n"}
    )
    daemon.answers["POST /v1/models/mnist/promote"] = "it would be\n"
    assert main(["model", "register", "mnist", "x", "--plan"]) == 0
    assert main(["model", "promote", "mnist", "champion", "--dry-run"]) == 0
    assert main(["model", "pull", "mnist", "/x/y", "--plan"]) == 0
    assert main(["model", "delete", "mnist@1", "--plan"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "it would\nit would be\nmnist@3 (2 files) would be copied to /x/y\ngone\n"
    assert shown.err.count("nothing was changed (--plan)") == 4
    assert all(asked.query.get("plan") or asked.data["plan"] for asked in daemon.asked if asked.method != "GET")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["register", "m", "x", "--metric", "accuracy"], "a name and a value are needed"),
        (["register", "m", "x", "--metric", "accuracy=high"], "'high' is no number"),
        (["register", "m", "x", "--metric", "accuracy=nan"], "'nan' is no number"),
        (["register", "m"], "PATH"),
        (["delete", "mnist"], "does not name a version"),
        (["delete", "mnist", "--keep", "x"], "a whole number is needed"),
        (["promot"], "promote"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    daemon: FakeDaemon, capsys: Shown, typed: list[str], words: str
) -> None:
    assert main(["model", *typed]) == 2
    assert words in capsys.readouterr().err
    assert daemon.asked == []


def test_an_alias_is_moved_and_taken_away(daemon: FakeDaemon, capsys: Shown) -> None:
    daemon.answers["POST /v1/models/mnist%403/promote"] = "moved\n"
    assert main(["model", "promote", "model/mnist@3", "champion", "--remove"]) == 0
    assert daemon.asked[0].data == {"alias": "champion", "remove": True, "plan": False}
    assert capsys.readouterr().out == "moved\n"


def test_versions_are_pulled_and_deleted(daemon: FakeDaemon, capsys: Shown, tmp_path: Path) -> None:
    daemon.answers["POST /v1/models/mnist/pull"] = MADE
    assert main(["model", "pull", "mnist", str(tmp_path / "x")]) == 0
    assert daemon.asked[-1].data == {"folder": str(tmp_path / "x")}
    daemon.answers["DELETE /v1/models/mnist"] = {"deleted": ["mnist@1", "mnist@2"]}
    assert main(["model", "delete", "mnist", "--keep", "5"]) == 0
    assert daemon.asked[-1].query["keep"] == "5"
    assert capsys.readouterr().out == f"{tmp_path / 'x'}\nmnist@1\nmnist@2\n"


@pytest.mark.parametrize(
    ("typed", "body"),
    [
        (["/x/digits"], {"name": "digits", "path": "/x/digits", "reference": False}),
        (["s3://b/x", "--reference"], {"name": "digits", "path": "s3://b/x", "reference": True}),
    ],
)
def test_data_is_copied_or_described(daemon: FakeDaemon, capsys: Shown, typed: list[str], body: dict[str, object]) -> None:
    daemon.answers["POST /v1/datasets"] = {"name": "digits", "version": 1, "files": 3}
    assert main(["data", "add", "digits", *typed]) == 0
    assert json.loads(daemon.asked[0].body) == body
    assert capsys.readouterr().out == "digits@1\n"


def test_what_takes_long_says_so(daemon: FakeDaemon, capsys: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_LARGE", 10)
    (tmp_path / "large").write_bytes(b"x" * 20)
    daemon.answers["POST /v1/models"] = MADE
    daemon.answers["POST /v1/datasets"] = {"name": "digits", "version": 1, "files": 3}
    assert main(["model", "register", "mnist", str(tmp_path)]) == 0
    assert main(["data", "add", "digits", str(tmp_path / "large")]) == 0
    assert capsys.readouterr().err.count("reading 0.0 GB of") == 2


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        (["model", "verify"], "/v1/models/%2A/verify"),
        (["model", "verify", "model/mnist@3"], "/v1/models/mnist%403/verify"),
        (["data", "verify"], "/v1/datasets/%2A/verify"),
        (["data", "verify", "rows"], "/v1/datasets/rows/verify"),
    ],
)
def test_a_verification_prints_what_is_damaged_and_fails_then(
    daemon: FakeDaemon, capsys: Shown, monkeypatch: pytest.MonkeyPatch, typed: list[str], path: str
) -> None:
    monkeypatch.setattr("fairway.cli.verification.PATIENCE", 0.0)
    course = b'{"course":{"done":1000,"total":3000000000}}\n'
    daemon.answers[f"GET {path}"] = [course, course, b'{"end":{"damaged":[]},"shown":"all intact\\n"}\n']
    assert main([*typed, "-o", "wide"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "all intact\n"
    assert shown.err.count("reading 2.79 GiB") == 1
    assert daemon.asked[0].query["output"] == "wide"
    daemon.answers[f"GET {path}"] = [b'{"end":{"damaged":[{}]},"shown":"mnist@3 w\\n"}\n']
    assert main(typed) == 1
    shown = capsys.readouterr()
    assert shown.out == "mnist@3 w\n"
    assert "1 file is damaged or missing" in shown.err
    daemon.answers[f"GET {path}"] = [course, b'{"error":{"code":"refused","message":"no","fix":""}}\n']
    assert main(typed) == 5
    daemon.answers[f"GET {path}"] = [course, b""]
    assert main(typed) == 4
