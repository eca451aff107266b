"""`fairway install kubernetes` against a real API server, as an administrator and as somebody without rights."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from cluster.control_plane import ControlPlane
from cluster.fixtures import skipping_what_is_missing
from cluster.process import wait_for


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One of its own: what others have installed must not be taken away."""
    found = ControlPlane()
    with skipping_what_is_missing():
        found.start()
    yield found
    found.stop()


Fairway = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def fairway(plane: ControlPlane) -> Fairway:
    def run(*words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
        groups = ["system:masters"] if user == "admin" else []
        config = plane.kubeconfig() if user == "admin" else plane.kubeconfig(user, groups)
        env = {**os.environ, "KUBECONFIG": str(config)}
        command = [sys.executable, "-c", "import sys; from fairway.cli.main import main; sys.exit(main())", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)

    return run


def test_the_plan_is_what_kubectl_takes_and_changes_nothing(plane: ControlPlane, fairway: Fairway) -> None:
    told = fairway("install", "kubernetes", "--image", "fairway:1", "--plan")
    assert told.returncode == 0, told.stderr
    objects = list(yaml.safe_load_all(told.stdout))
    assert {"Namespace", "CustomResourceDefinition", "ClusterRole", "Deployment"} <= {one["kind"] for one in objects}
    assert "nothing was changed" in told.stderr
    assert plane.get("/api/v1/namespaces/fairway-system")[0] == 404


def test_it_is_installed_again_without_harm_and_taken_away(plane: ControlPlane, fairway: Fairway, tmp_path: Path) -> None:
    settings = tmp_path / "installation.yaml"
    settings.write_text("image: fairway:1\nruntimes: {pytorch: {image: 'torch:2'}}\nallowed: {host_paths: [/data]}\n")
    for _ in range(2):
        done = fairway("install", "kubernetes", "-f", str(settings))
        assert done.returncode == 0, done.stderr
    deployments = "/apis/apps/v1/namespaces/fairway-system/deployments"
    assert {one["metadata"]["name"] for one in plane.get(deployments)[1]["items"]} == {"fairway-operator", "fairway-scheduler"}
    head = {"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "kept"}}
    job = {**head, "spec": {"roles": {"worker": {"command": ["x"]}}}}
    status, answer = plane.request("POST", "/apis/fairway.dev/v1alpha1/namespaces/default/trainingjobs", job)
    assert status == 201, answer
    gone = fairway("uninstall", "kubernetes")
    assert gone.returncode == 0, gone.stderr
    assert plane.get(deployments)[1]["items"] == []
    assert plane.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/fairway-operator")[0] == 404
    assert plane.get("/apis/fairway.dev/v1alpha1/namespaces/default/trainingjobs/kept")[0] == 200
    whole = fairway("uninstall", "kubernetes", "--all")
    assert whole.returncode == 0, whole.stderr
    kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.fairway.dev"
    wait_for("the kind goes with its objects", lambda: plane.get(kind)[0] == 404)


def test_who_has_no_rights_gets_the_servers_own_refusal(fairway: Fairway) -> None:
    refused = fairway("install", "kubernetes", "--image", "fairway:1", user="bob")
    assert refused.returncode == 5
    assert 'User "bob" cannot patch resource "namespaces"' in refused.stderr
    assert "ask whoever runs the cluster" in refused.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image: 3\n", "Expected `str`, got `int` - at `$.image`"),
        ("image: a\nrunimes: {}\n", "unknown field `runimes`"),
        ("- a\n", "holds no settings"),
        ("image: [\n", "mend the YAML"),
        ("runtimes: {}\n", "no image is named"),
    ],
)
def test_wrong_settings_are_said_with_their_place(fairway: Fairway, tmp_path: Path, text: str, words: str) -> None:
    settings = tmp_path / "installation.yaml"
    settings.write_text(text)
    refused = fairway("install", "kubernetes", "-f", str(settings), "--plan")
    assert refused.returncode == 2
    assert words in refused.stderr
