"""Files excluded by ignore rules: which of them matter, and which failures they explain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.state.job import JobState, RunOutcome, SubmissionOrigin
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskExit
from fairway.testing.builder.job_builder import a_job, a_task
from fairway.views.diagnosis.excluded_path import explain, matters


@pytest.mark.parametrize("path", ["data/", "weights.pt", ".env", "src/labels.csv", "models/", "config.local.yaml"])
def test_what_a_program_may_read_matters(path: str) -> None:
    assert matters(path)


@pytest.mark.parametrize("path", ["build/", "x.egg-info/", "train.log", "wandb/", "src/.idea/", "a.py.swp", "lightning_logs/"])
def test_what_tools_leave_behind_does_not(path: str) -> None:
    assert not matters(path)


def failed(message: str, *left_out: str) -> tuple[JobState, list[Task]]:
    job = a_job(["python", "train.py"], name="mnist-7")
    job = replace(
        job,
        phase=JobPhase.FAILED,
        origin=SubmissionOrigin(left_out=left_out),
        outcome=RunOutcome("Error", "exited with 1", "worker-0", 1),
    )
    return job, [replace(a_task(job, 0, phase=TaskPhase.FAILED), exit=TaskExit(code=1, tail=message))]


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "data/"),
        ("FileNotFoundError: [Errno 2] No such file or directory: './data/train.csv'\n", "data/"),
        ("No such file or directory: '/home/a/.local/state/fairway/jobs/default/mnist-7/code/weights.pt'", "weights.pt"),
        ("cat: weights.pt: No such file or directory", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'dataset/train.csv'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'", ""),
        ("ValueError: data/train.csv", ""),
    ],
)
def test_a_file_that_was_not_found_is_explained_when_it_was_left_out(message: str, rule: str) -> None:
    said = explain(*failed(message, "data/", "weights.pt"))
    assert (f"echo '!/{rule}' >> .fairwayignore" in said) if rule else said == ""


def test_nothing_is_explained_where_nothing_was_left_out() -> None:
    assert explain(*failed("No such file or directory: 'data/x'")) == ""
