"""The Helm chart, with the real Helm: it renders what `fairway install` applies, and accepts every setting of an installation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cluster import programs
from cluster.fixtures import skipping_what_is_missing

from fairway.engines.kubernetes.install.helm_chart import KEEP
from fairway.engines.kubernetes.install.manifest import manifests
from fairway.engines.kubernetes.operator.installation import DocumentPermissions, FrameworkRuntime, InstallationSettings

Helm = Callable[..., subprocess.CompletedProcess[str]]
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as the command writes it."""
    folder = tmp_path_factory.mktemp("chart") / "fairway"
    words = ["install", "kubernetes", "--to", "helm", str(folder)]
    command = [sys.executable, "-c", "import sys; from fairway.cli.main import main; sys.exit(main())", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return folder


@pytest.fixture(scope="module")
def helm(chart: Path) -> Helm:
    with skipping_what_is_missing():
        program = programs.find("helm")

    def run(verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        name = ["fairway"] if verb == "template" else []
        command = [program, verb, *name, chart, "--namespace", "tools", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    return run


def rendered(helm: Helm, *words: str) -> Objects:
    told = helm("template", *words)
    assert told.returncode == 0, told.stderr
    return by_name([one for one in yaml.safe_load_all(told.stdout) if one])


def by_name(objects: list[dict[str, Any]]) -> Objects:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def applied(installation: InstallationSettings) -> Objects:
    """Return what `fairway install` applies, without the namespace (Helm's task) and with the annotation to keep our kinds."""
    found = by_name([one for one in manifests(installation) if one["kind"] != "Namespace"])
    for (kind, _), one in found.items():
        if kind == "CustomResourceDefinition":
            one["metadata"].setdefault("annotations", {}).update(KEEP)
    return found


def test_helm_finds_nothing_wrong_with_it(helm: Helm) -> None:
    told = helm("lint", "--strict", "--set", "image=fairway:1")
    assert told.returncode == 0, told.stdout + told.stderr


def test_with_default_values_it_is_what_install_applies(helm: Helm) -> None:
    assert rendered(helm, "--set", "image=fairway:1") == applied(InstallationSettings(image="fairway:1", namespace="tools"))


@pytest.mark.parametrize(
    "installation",
    [
        InstallationSettings(
            image="registry.example/fairway@sha256:" + "0" * 64,
            namespace="tools",
            cluster_domain="example.org",
            runtimes={"pytorch": FrameworkRuntime("torch:2", env={"A": '<&> ä "quoted" {{ .Values.image }}'})},
            run_volume={"persistentVolumeClaim": {"claimName": "runs"}},
            record={"persistentVolumeClaim": {"claimName": "mine"}},
            replicas=3,
            resources={
                "operator": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
                "scheduler": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            },
            monitoring=True,
            gpus="fairway",
            gpu_nodes={"gpu": "yes"},
            gpu_runtime_class="nvidia",
            allowed=DocumentPermissions(host_paths=("/data",), host_network=True, capabilities=("IPC_LOCK",)),
        ),
        *(
            InstallationSettings(
                image="fairway:1", namespace="tools", scheduler="", queueing=name, record={"emptyDir": {}}, agent=False
            )
            for name in ("kueue", "volcano", "kai")
        ),
    ],
    ids=lambda one: one.queueing or "everything",
)
def test_every_choice_is_a_value(helm: Helm, installation: InstallationSettings, tmp_path: Path) -> None:
    values = msgspec.to_builtins(installation)
    del values["namespace"]
    (tmp_path / "values.json").write_text(json.dumps(values))
    assert rendered(helm, "--values", str(tmp_path / "values.json")) == applied(installation)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--set", "image=fairway:1", "--set", "imagee=x"], "imagee"),
        (["--set", "image=fairway:1", "--set", "allowed.host_network=perhaps"], "host_network"),
        ([], "image: name the image of Fairway itself"),
    ],
)
def test_wrong_values_are_refused(helm: Helm, words: list[str], why: str) -> None:
    told = helm("template", *words)
    assert told.returncode != 0
    assert why in told.stderr


def test_every_value_says_what_it_is(chart: Path) -> None:
    text = (chart / "values.yaml").read_text()
    assert "# Runtimes by framework; `default` serves all others.\nruntimes: {}" in text
    assert "namespace" not in yaml.safe_load(text)
