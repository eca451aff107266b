"""Of a caller's environment, only what a resume needs is kept after the end of the run."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from fairway.engines.local.home import EngineHome
from fairway.engines.local.provision.caller_environment import (
    ENVIRONMENT_FILE,
    RESUME_FILE,
    base_environment,
    forget_environment,
    forget_environments,
    resumable,
)
from fairway.errors import RefusedError
from fairway.spec.job import JobSpec, TaskRole
from fairway.state.job import JobKey, JobState, SubmissionOrigin

ENVIRONMENT = {
    "PATH": "/mine:/usr/bin",
    "VIRTUAL_ENV": "/mine",
    "CONDA_PREFIX": "/conda",
    "LD_LIBRARY_PATH": "/lib",
    "CUDA_HOME": "/cuda",
    "MY_SETTING": "1",
    "DATA_ROOT": "/data",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t",
    "HF_TOKEN": "s3cr3t",
    "OPENAI_API_KEY": "s3cr3t",
    "PIP_INDEX_URL": "https://me:s3cr3t@example.org/simple",
    "https_proxy": "http://me:s3cr3t@proxy:3128",
    "DB_PASSWORD": "s3cr3t",
    "SSH_AUTH_SOCK": "/run/s3cr3t",
    "LESSOPEN": "| s3cr3t",
}


def a_job(script: str = "echo $DATA_ROOT ${HF_TOKEN}") -> JobState:
    spec = JobSpec(roles={"worker": TaskRole(command=("sh", "-c", script))})
    return JobState(JobKey("default", "mnist-1"), "mnist", 1, spec, origin=SubmissionOrigin(keeps_environment=True))


@pytest.fixture
def home(tmp_path: Path) -> EngineHome:
    made = EngineHome.open(tmp_path)
    (made.make_job(a_job().key) / ENVIRONMENT_FILE).write_text(json.dumps(ENVIRONMENT))
    return made


def test_while_a_run_may_start_again_it_has_the_whole_environment(home: EngineHome) -> None:
    for _ in range(2):
        assert base_environment(a_job(), home.job(a_job().key)) == ENVIRONMENT


def test_after_its_end_no_secret_is_left_and_a_resume_finds_its_programs(home: EngineHome) -> None:
    folder = home.job(a_job().key)
    base_environment(a_job(), folder)
    forget_environment(folder)
    kept = base_environment(a_job(), folder)
    assert set(kept) == {"PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_HOME", "DATA_ROOT"}
    assert [path.name for path in folder.iterdir()] == [RESUME_FILE]
    assert stat.S_IMODE((folder / RESUME_FILE).stat().st_mode) == 0o600
    for path in folder.rglob("*"):
        assert "s3cr3t" not in path.read_text()
    forget_environment(folder)
    assert base_environment(a_job(), folder) == kept


def test_a_run_that_ended_before_it_started_can_be_resumed(home: EngineHome) -> None:
    folder = home.job(a_job().key)
    forget_environment(folder)
    assert base_environment(a_job(), folder)["PATH"] == "/mine:/usr/bin"
    assert "s3cr3t" not in (folder / RESUME_FILE).read_text()


def test_runs_that_ended_under_an_earlier_version_are_treated_alike(home: EngineHome) -> None:
    other = JobKey("team", "bert-2")
    (home.make_job(other) / ENVIRONMENT_FILE).write_text(json.dumps(ENVIRONMENT))
    forget_environments(home, lambda key: key == other)
    assert (home.job(a_job().key) / ENVIRONMENT_FILE).exists()
    assert not (home.job(other) / ENVIRONMENT_FILE).exists()
    assert (home.job(other) / RESUME_FILE).exists()


@pytest.mark.parametrize("text", ["", "[1]", "{", "7"])
def test_a_damaged_environment_is_told_and_removed_at_the_end(home: EngineHome, text: str) -> None:
    folder = home.job(a_job().key)
    (folder / ENVIRONMENT_FILE).write_text(text)
    with pytest.raises(RefusedError, match=ENVIRONMENT_FILE):
        base_environment(a_job(), folder)
    forget_environment(folder)
    assert not (folder / ENVIRONMENT_FILE).exists()


@pytest.mark.parametrize(
    "name", ["GITHUB_PAT", "WANDB_API_KEY", "NCCL_SECRET", "TF_AUTH", "CONDA_TOKEN", "PYTHON_KEYRING_PASSWD"]
)
def test_what_is_called_like_a_secret_never_stays(name: str) -> None:
    assert resumable({name: "x"}, frozenset({name})) == {}
