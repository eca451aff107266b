"""Flags take precedence over the environment, the environment over fairway.toml; a mistake in that file is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairway.cli.main import main
from fairway.testing.fake.fake_daemon import FakeDaemon


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "code"
    found.mkdir()
    monkeypatch.chdir(found)
    return found


def test_flags_then_environment_then_file(folder: Path, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.answers["GET /v1/jobs"] = ""
    main(["list"])
    (folder / "fairway.toml").write_text('namespace = "from-file"\n')
    main(["list"])
    monkeypatch.setenv("FAIRWAY_NAMESPACE", "from-environment")
    main(["list"])
    main(["list", "-n", "from-flag"])
    assert [asked.query["namespace"] for asked in daemon.asked] == ["default", "from-file", "from-environment", "from-flag"]


def test_flags_of_a_verb(folder: Path, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs"] = ""
    (folder / "fairway.toml").write_text(
        '[list]\nlimit = 5\nphase = ["failed", "running"]\nactive = false\nall_namespaces = true\n'
    )
    main(["list", "--limit", "7"])
    assert daemon.asked[0].query["limit"] == "7"
    assert daemon.asked[0].query["phase"] == "failed,running"


def test_a_table_gives_pairs(folder: Path, daemon: FakeDaemon) -> None:
    daemon.answers["POST /v1/jobs"] = {"name": "a-1", "phase": "Pending"}
    (folder / "fairway.toml").write_text("[submit]\nworkers = 2\nenv = {BATCH = 64}\n")
    assert main(["submit", "--", "./a"]) == 0
    spec = daemon.asked[0].data["document"]["spec"]  # type: ignore[index]
    assert spec["env"] == {"BATCH": "64"}
    assert spec["roles"]["worker"]["replicas"] == {"min": 2, "max": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("namespce = 'x'", "namespce: there is no such setting; did you mean namespace?"),
        ("[lst]\nlimit = 1", "lst: there is no such setting; did you mean list?"),
        ("list = 3", "write [list] and its flags below it"),
        ("[list]\nlimti = 1", "[list] fairway list has no flag --limti; did you mean --limit?"),
        ("[list]\nlimit = 'x'", "[list] --limit x: a whole number is needed"),
        ("= broken", "correct the file or remove it"),
    ],
)
def test_a_mistake_in_the_file_is_told(folder: Path, text: str, said: str, home: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fairway.toml").write_text(text)
    assert main(["list"]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert str(folder / "fairway.toml") in shown


@pytest.fixture
def users(tmp_path: Path, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    path = tmp_path / "xdg" / "fairway" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_the_users_own_file_is_the_weakest(folder: Path, users: Path, daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs"] = ""
    users.write_text('namespace = "mine"\n[list]\nlimit = 3\nphase = ["failed"]\n')
    main(["list"])
    (folder / "fairway.toml").write_text('namespace = "theirs"\n[list]\nlimit = 5\n')
    main(["list"])
    first, second = (asked.query for asked in daemon.asked)
    assert (first["namespace"], first["limit"], first["phase"]) == ("mine", "3", "failed")
    assert (second["namespace"], second["limit"], second["phase"]) == ("theirs", "5", "failed")


def test_config_says_where_each_default_comes_from(
    folder: Path, users: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    users.write_text('context = "lab"\n[run]\nworkers = 2\n[logs]\nfollow = true\n')
    (folder / "fairway.toml").write_text("[run]\nworkers = 4\n")
    monkeypatch.setenv("FAIRWAY_NAMESPACE", "team")
    assert main(["config", "-o", "json"]) == 0
    found = {row["setting"]: (row["value"], row["source"]) for row in json.loads(capsys.readouterr().out)}
    assert found["namespace"] == ("team", "FAIRWAY_NAMESPACE")
    assert found["context"] == ("lab", str(users))
    assert found["run --workers"] == ("4", str(folder / "fairway.toml"))
    assert found["logs --follow"] == ("on", str(users))
    assert found["home"][1] == "FAIRWAY_HOME"


def test_config_refuses_what_no_verb_has(users: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users.write_text("[run]\nworkrs = 2\n")
    assert main(["config"]) == 2
    assert "workrs: fairway run has no such flag; did you mean workers?" in capsys.readouterr().err
    users.write_text("conttext = 'x'\n")
    assert main(["list"]) == 2
    assert "did you mean context?" in capsys.readouterr().err
