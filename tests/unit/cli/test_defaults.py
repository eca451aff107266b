"""Flags win over the environment, the environment over fairway.toml; a mistake in that file is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.cli.main import main
from fairway.testing.fake_daemon import FakeDaemon


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
        ("namespce = 'x'", "namespce: not a setting; did you mean namespace?"),
        ("[lst]\nlimit = 1", "lst: not a setting; did you mean list?"),
        ("list = 3", "write [list] and flags below it"),
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
