"""Preparing runs, in real folders."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fairway.engines.local.home import EngineHome
from fairway.engines.local.provision import preparer as provision_preparer
from fairway.engines.local.provision.preparer import PreparedRun, RunPreparer, machine_variables
from fairway.errors import FairwayError, NotFoundError, RefusedError
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.spec.job import CodeSource, JobSpec, RuntimeEnvironment, TaskRole
from fairway.state.job import JobKey, JobState, SubmissionOrigin

MACHINE = {"PATH": os.environ["PATH"], "HOME": "/home/me", "SECRET_OF_THE_SHELL": "x"}


class Site:
    """A home, and a folder with code to submit."""

    def __init__(self, path: Path) -> None:
        self.home = EngineHome.open(path / "home")
        self.source = path / "source"
        self.source.mkdir()
        (self.source / "train.py").write_text("print(1)\n")

    def job(self, origin: dict[str, Any] | None = None, **spec: Any) -> JobState:
        given = {"folder": str(self.source), "interpreter": sys.executable, **(origin or {})}
        return JobState(
            JobKey("default", "mnist-1"),
            "mnist",
            1,
            JobSpec(roles={"worker": TaskRole(command=("python",))}, **spec),
            origin=SubmissionOrigin(**given),
        )

    def prepare(self, job: JobState) -> PreparedRun:
        return asyncio.run(RunPreparer(self.home, MACHINE).prepare(job, lambda _: None))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_in_place_runs_start_in_the_callers_folder_with_the_callers_environment(site: Site) -> None:
    job = site.job(code=CodeSource(in_place=True), origin={"keeps_environment": True})
    environment = {"PATH": "/mine:/usr/bin", "MY_SETTING": "1"}
    (site.home.make_job(job.key) / "environment.json").write_text(json.dumps(environment))
    prepared = site.prepare(job)
    assert prepared.work_dir == site.source
    assert prepared.env["MY_SETTING"] == "1"
    assert prepared.env["PATH"].endswith("/mine:/usr/bin")
    assert prepared.python == sys.executable
    assert not (site.home.job(job.key) / "code").exists()


def test_a_lost_environment_is_told(site: Site) -> None:
    with pytest.raises(RefusedError, match="environment of default/mnist-1 cannot be read"):
        site.prepare(site.job(code=CodeSource(in_place=True), origin={"keeps_environment": True}))


def test_a_folder_that_is_gone_is_told(site: Site) -> None:
    with pytest.raises(RefusedError, match="does not exist"):
        site.prepare(site.job(code=CodeSource(in_place=True, path="gone")))


def test_a_snapshot_is_laid_out_as_it_was_when_taken(site: Site) -> None:
    taken = snapshot.take(site.source, BlobStore(site.home.path / "blobs"))
    (site.source / "train.py").write_text("changed since")
    job = site.job(code=CodeSource(path="."), origin={"code_digest": taken.digest})
    prepared = site.prepare(job)
    assert prepared.work_dir == site.home.job(job.key) / "code"
    assert (prepared.work_dir / "train.py").read_text() == "print(1)\n"


def test_other_attempts_keep_what_the_first_wrote_beside_the_code(site: Site) -> None:
    job = site.job(code=CodeSource(path="."))
    (site.prepare(job).work_dir / "result.txt").write_text("kept")
    assert (site.prepare(job).work_dir / "result.txt").read_text() == "kept"


def test_writing_over_the_code_does_not_reach_the_registry(site: Site) -> None:
    job = site.job(code=CodeSource(path="."))
    (site.prepare(job).work_dir / "train.py").write_text("written over")
    digest = snapshot.take(site.source, BlobStore(site.home.path / "blobs")).digest
    manifest = snapshot.load(digest, BlobStore(site.home.path / "blobs"))
    assert BlobStore(site.home.path / "blobs").read(manifest.entries[0].sha256) == b"print(1)\n"


def test_a_run_without_code_has_an_empty_folder(site: Site) -> None:
    assert list(site.prepare(site.job()).work_dir.iterdir()) == []


def test_without_the_callers_environment_only_the_machines_is_given(site: Site) -> None:
    env = site.prepare(site.job()).env
    assert env["HOME"] == "/home/me"
    assert "SECRET_OF_THE_SHELL" not in env


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("PATH", True),
        ("LC_ALL", True),
        ("https_proxy", True),
        ("UV_CACHE_DIR", True),
        ("RANK", False),
        ("AWS_SECRET_ACCESS_KEY", False),
    ],
)
def test_which_variables_belong_to_the_machine(name: str, kept: bool) -> None:
    assert (name in machine_variables({name: "x"})) == kept


def test_python_means_the_environment_that_the_document_names(site: Site) -> None:
    place = site.source / ".venv"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(sys.executable)
    (place / "pyvenv.cfg").touch()
    prepared = site.prepare(site.job(environment=RuntimeEnvironment(python=".venv")))
    assert prepared.python == str(place / "bin" / "python")
    assert prepared.env["VIRTUAL_ENV"] == str(place)
    assert prepared.resolved(("python", "-u", "train.py")) == (prepared.python, "-u", "train.py")
    assert prepared.resolved(("python3",)) == (prepared.python,)
    assert prepared.resolved(("torchrun", "python")) == ("torchrun", "python")
    assert prepared.resolved(()) == ()


def test_an_interpreter_of_the_caller_that_is_gone_is_replaced_by_ours(site: Site) -> None:
    assert site.prepare(site.job(origin={"interpreter": "/gone/python"})).python == sys.executable


def test_requirements_are_looked_for_in_the_code(site: Site) -> None:
    with pytest.raises(NotFoundError, match=r"environment.requirements is 'gone.txt'"):
        site.prepare(site.job(code=CodeSource(path="."), environment=RuntimeEnvironment(requirements="gone.txt")))


def test_data_by_path_uri_and_version(site: Site) -> None:
    (site.source / "images").mkdir()
    blobs = BlobStore(site.home.path / "blobs")
    DatasetRegistry(site.home.path, blobs).add("digits", site.source, now=1.0)
    prepared = site.prepare(site.job(data={"a": "images", "b": "s3://bucket/x", "c": "digits@1", "d": str(site.source)}))
    assert prepared.data["a"] == str(site.source / "images")
    assert prepared.data["b"] == "s3://bucket/x"
    assert Path(prepared.data["c"], "train.py").read_text() == "print(1)\n"
    assert prepared.data["d"] == str(site.source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gone", "data.train is 'gone': there is no"),
        ("gone@3", "no dataset gone"),
        ("pvc://claim/x", "on a cluster only"),
        ("UP@1", "UP"),
    ],
)
def test_data_that_is_not_there_is_told_by_its_name(site: Site, text: str, words: str) -> None:
    with pytest.raises(FairwayError, match=words):
        site.prepare(site.job(data={"train": text}))


def test_the_runtime_is_put_beside(site: Site) -> None:
    assert (site.prepare(site.job()).runtime_dir / "fairway" / "runtime" / "task_contract.py").is_file()


def test_a_container_sees_the_runs_folders_and_the_data(site: Site) -> None:
    programs = site.source / "bin"
    programs.mkdir()
    (programs / "docker").write_text("#!/bin/sh\n")
    (programs / "docker").chmod(0o755)
    job = site.job(
        code=CodeSource(in_place=True),
        data={"a": "bin"},
        environment=RuntimeEnvironment.model_validate({"image": "i", "container": "always"}),
    )
    prepared = asyncio.run(RunPreparer(site.home, {"PATH": str(programs)}).prepare(job))
    assert prepared.wrap is not None
    assert prepared.wrap.mounts == (str(site.home.job(job.key)), str(site.source))
    assert prepared.wrap.read_only == (str(prepared.runtime_dir), str(programs))
    assert prepared.resolved(("python", "x")) == ("python", "x")


def test_runs_that_are_prepared_at_once_read_the_runtime_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def provide(home: Path) -> Path:
        calls.append(home)
        return home

    monkeypatch.setattr(provision_preparer, "provide_runtime", provide)

    async def all_at_once() -> None:
        preparer = RunPreparer(site.home, MACHINE)
        await asyncio.gather(*(preparer.prepare(site.job(code=CodeSource(in_place=True))) for _ in range(20)))

    asyncio.run(all_at_once())
    assert calls == [site.home.path]


def test_what_a_crash_left_half_made_goes_to_the_trash(site: Site) -> None:
    for name in ("envs/.abc-1", "git/.tree-1", "blobs/aside/1", "jobs/default/mnist-1/.code-1"):
        (site.home.path / name).mkdir(parents=True)
    (site.home.path / "envs" / "abc").mkdir()
    RunPreparer(site.home, MACHINE)
    left = {path.relative_to(site.home.path).parts[0] for path in site.home.path.rglob("*") if path.name.startswith((".", "1"))}
    assert left == {"trash"}
    assert (site.home.path / "envs" / "abc").is_dir()
    site.home.empty_trash()
    assert list((site.home.path / "trash").iterdir()) == []
