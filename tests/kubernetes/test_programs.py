"""Where the programs of the test cluster come from, and the error when they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import programs
from cluster.fixtures import skipping_what_is_missing


@pytest.fixture(autouse=True)
def nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_CLUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


@pytest.mark.parametrize(("path", "fix"), [(None, "run `make cluster-programs`"), ("", "install Go")])
def test_what_is_missing_is_said_with_the_fix(path: str | None, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.shutil, "which", lambda name: path if path == "" else f"/usr/bin/{name}")
    with pytest.raises(programs.ProgramsMissingError, match=f"the program etcd of the test cluster is not built: {fix}"):
        programs.find("etcd")


def test_given_programs_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (given / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    assert programs.find("etcd") == given / "etcd"
    with pytest.raises(programs.ProgramsMissingError):
        programs.find("kwok")


@pytest.mark.parametrize(("wanted", "outcome"), [("", pytest.skip.Exception), ("require", pytest.fail.Exception)])
def test_a_missing_program_skips_a_test_and_fails_it_where_a_cluster_is_required(
    wanted: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRWAY_CLUSTER", wanted)
    with pytest.raises(outcome, match="kubelet"), skipping_what_is_missing():
        programs.find("kubelet")


def test_everything_is_pinned() -> None:
    assert programs.kubernetes_version() == "1.36.4"
    pinned = (programs.MODULES / "kubernetes" / "go.mod").read_text()
    assert "go.etcd.io/etcd/server/v3 v3.6.8" in pinned
    assert "sigs.k8s.io/kwok v0.8.0" in pinned
    for group in programs.GROUPS:
        assert (programs.MODULES / group.module / "go.sum").exists()


def test_what_takes_long_is_built_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(programs, "_build", lambda group: built.append(group.name))
    programs.build()
    assert "control-plane" in built
    assert "gateway" not in built
    programs.build("gateway")
    assert built[-1] == "gateway"
    with pytest.raises(programs.ProgramsMissingError, match="cluster build gateway"):
        programs.find("traefik")
