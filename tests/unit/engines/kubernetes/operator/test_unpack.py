"""The init container of a task: code from a ConfigMap and from git, and every error in the last line of its output."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from fairway.engines.kubernetes.operator import unpack
from fairway.engines.kubernetes.operator.initializer import git_checkout
from fairway.errors import RefusedError


def run(tmp_path: Path, *more: str) -> int:
    return unpack.main(["--inject", str(tmp_path / "inject"), "--code", str(tmp_path / "code"), *more])


def test_the_runtime_comes_with_everything_that_a_task_needs(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    assert (tmp_path / "inject" / "fairway" / "runtime" / "pod" / "environment.py").is_file()
    assert not list((tmp_path / "inject").rglob("__pycache__"))


def test_the_operators_authority_is_a_file_for_what_reads_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRWAY_OPERATOR_CA", raising=False)
    assert run(tmp_path) == 0
    assert not (tmp_path / "inject" / unpack.AUTHORITY_FILE).exists()
    monkeypatch.setenv("FAIRWAY_OPERATOR_CA", "PEM")
    assert run(tmp_path) == 0
    assert (tmp_path / "inject" / unpack.AUTHORITY_FILE).read_text() == "PEM"


def test_code_of_a_config_map_stays_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, expected in (("train.py", 0), ("../evil.py", 1)):
        with tarfile.open(tmp_path / "code.tar.gz", "w:gz") as archive:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
        assert run(tmp_path, "--bundle", str(tmp_path / "code.tar.gz")) == expected
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["train.py"]
    assert not (tmp_path / "evil.py").exists()
    assert "evil.py" in capsys.readouterr().err


def test_without_an_operator_it_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRWAY_ENDPOINT", raising=False)
    assert run(tmp_path, "--digest", "0" * 64) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1, "one line holds all of it"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed here")
    folder = tmp_path / "repository"
    folder.mkdir()
    for number, text in enumerate(("one", "two")):
        (folder / "train.py").write_text(text)
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", text], ["tag", f"v{number + 1}"]):
            who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
            subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return folder


def test_a_version_of_a_repository_is_laid_out_without_its_history(repository: Path, tmp_path: Path) -> None:
    url = f"file://{repository}"
    commit = git_checkout.clone(url, "v1", tmp_path / "a", protocols="file")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["train.py"]
    assert (tmp_path / "a" / "train.py").read_text() == "one"
    assert git_checkout.clone(url, commit[:10], tmp_path / "b", protocols="file") == commit, "also by a short commit"
    git_checkout.clone(url, "HEAD", tmp_path / "c", protocols="file")
    assert (tmp_path / "c" / "train.py").read_text() == "two"
    with pytest.raises(RefusedError, match="at no-such could not be fetched"):
        git_checkout.clone(url, "no-such", tmp_path / "d", protocols="file")
    with pytest.raises(RefusedError, match="could not be fetched"):
        git_checkout.clone(url, "v1", tmp_path / "e")


@pytest.mark.parametrize(
    ("url", "ref"),
    [
        ("--upload-pack=evil", "main"),
        ("ext::sh -c evil", "main"),
        ("/etc", "main"),
        ("https://host/a.git", "--evil"),
        ("https://host/a.git", "a..b"),
        ("https://host/a.git", "+a:b"),
    ],
)
def test_what_git_could_read_otherwise_is_refused(url: str, ref: str) -> None:
    with pytest.raises(RefusedError, match=r"code\.git"):
        git_checkout.check(url, ref)


def test_an_image_without_git_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="Fairway's image on this cluster has none"):
        git_checkout.clone("https://host/a.git", "main", tmp_path / "a")
