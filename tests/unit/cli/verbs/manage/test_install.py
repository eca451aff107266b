"""`fairway install` and `uninstall` without a cluster: settings, plans and the chart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fairway.cli.main import main
from fairway.engines.kubernetes.install.manifest import manifests
from fairway.engines.kubernetes.operator.installation import InstallationSettings


@pytest.fixture(autouse=True)
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image: 3\n", "installation.yaml:1:8 image: 3 is a number, not text; put it in quotes"),
        ("image: a\nrunimes: {}\n", "installation.yaml:2:1 runimes: is no field here; did you mean `runtimes`?"),
        ("- a\n", "holds no settings"),
        ("", "holds no settings"),
        ("image: a\n---\nimage: b\n", "holds no settings"),
        ("image: [\n", "installation.yaml:2:1: "),
        ("runtimes: {}\n", "image: is missing"),
    ],
)
def test_wrong_settings_are_said_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    settings = tmp_path / "installation.yaml"
    settings.write_text(text)
    assert main(["install", "kubernetes", "-f", str(settings), "--plan"]) == 2
    assert words in capsys.readouterr().err


def test_a_plan_needs_no_cluster_and_is_printed_in_three_ways(capfd: pytest.CaptureFixture[str]) -> None:
    data = json.loads(json.dumps(manifests(InstallationSettings(image="fairway:1"))))
    plan = ["install", "kubernetes", "--image", "fairway:1", "--plan"]
    assert main(plan) == 0
    told = capfd.readouterr()
    assert list(yaml.safe_load_all(told.out)) == data
    assert "the cluster could not be inspected" in told.err
    assert main([*plan, "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["items"] == data
    assert main([*plan, "-o", "name"]) == 0
    assert "Deployment fairway-system/fairway-operator\n" in capfd.readouterr().out


def test_without_a_cluster_nothing_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "kubernetes", "--image", "fairway:1"]) != 0
    assert "none" in capsys.readouterr().err


def test_a_time_that_is_none_is_refused_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "kubernetes", "--image", "fairway:1", "--timeout", "soon"]) == 2
    assert "--timeout soon is not a duration" in capsys.readouterr().err


def test_the_settings_become_the_charts_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "installation.yaml"
    settings.write_text("image: fairway:7\nscheduler: cluster\nallowed: {host_paths: [/data]}\n")
    folder = tmp_path / "chart"
    words = ["install", "kubernetes", "-f", str(settings), "--to", "helm", str(folder)]
    assert main([*words, "--plan"]) == 0
    assert not folder.exists()
    assert main(words) == 0
    values = yaml.safe_load((folder / "values.yaml").read_text())
    assert (values["image"], values["scheduler"], values["allowed"]["host_paths"]) == ("fairway:7", "", ["/data"])
    assert "helm install fairway" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--to", "helm"], ["somewhere"]])
def test_half_of_a_chart_is_asked_for_in_vain(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "kubernetes", *words]) == 2
    assert "--to helm DIR" in capsys.readouterr().err


def test_what_would_be_taken_away_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["uninstall", "kubernetes", "--plan"]) == 0
    stderr = capsys.readouterr().err
    assert "Deployment fairway-system/fairway-operator would be deleted, if it exists" in stderr
    assert "CustomResourceDefinition" not in stderr
    assert main(["uninstall", "kubernetes", "--plan", "--all"]) == 0
    assert "CustomResourceDefinition trainingjobs.fairway.dev would be deleted" in capsys.readouterr().err
