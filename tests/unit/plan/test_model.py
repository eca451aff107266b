"""Decisions about models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.plan.model import facts_of, must_stay, registered_name, superfluous
from fairway.spec.job import CodeSource, GitSource, JobSpec, RuntimeEnvironment, StopPolicy, TaskRole
from fairway.state.job import JobKey, JobState, RunProgress, SubmissionOrigin
from fairway.state.metric import summarise
from fairway.state.model import ModelVersion

SPEC = JobSpec(
    code=CodeSource(git=GitSource(url="https://example.org/code.git", ref="v1")),
    environment=RuntimeEnvironment(image="torch:2", requirements="r.txt"),
    env={"BATCH": "64"},
    secrets=("HF_TOKEN",),
    outputs={"model": "mnist", "scores": "x"},
    roles={
        "ps": TaskRole(command=("python", "ps.py", "--lr", "9")),
        "worker": TaskRole(command=("python", "t.py", "--lr", "-0.1", "--fast", "--", "x", "-n", "3", "--depth=4", "--=5")),
    },
)
JOB = JobState(JobKey("team", "mnist-7"), "mnist", 7, SPEC, SubmissionOrigin(interpreter="/usr/bin/python"))


def version(number: int, *aliases: str) -> ModelVersion:
    return ModelVersion("mnist", number, "d", "onnx", 1, 1, 0.0, aliases=aliases)


def test_where_a_version_came_from() -> None:
    progress = RunProgress(metrics={"loss": float("nan"), "accuracy": 0.9, "best": float("inf")})
    facts = facts_of(replace(JOB, progress=progress), {"train": "mnist@3"})
    assert facts.metrics == {"accuracy": 0.9}
    lineage = facts.lineage
    assert (lineage.run, lineage.code) == ("team/mnist-7", "https://example.org/code.git@v1")
    assert lineage.data == {"train": "mnist@3"}
    assert lineage.environment == {"image": "torch:2", "requirements": "r.txt"}
    assert lineage.parameters == {"BATCH": "64", "lr": "-0.1", "depth": "4"}


def test_what_its_program_logged_is_among_the_parameters_and_wins() -> None:
    lineage = facts_of(JOB, {}, {"lr": "0.2", "optimizer": "sgd"}).lineage
    assert lineage.parameters == {"BATCH": "64", "lr": "0.2", "depth": "4", "optimizer": "sgd"}


def test_a_digest_says_more_than_a_branch() -> None:
    assert facts_of(replace(JOB, origin=SubmissionOrigin(code_digest="abc")), {}).lineage.code == "abc"


def test_only_the_output_called_model_becomes_one() -> None:
    assert registered_name(SPEC) == "mnist"
    assert registered_name(SPEC.model_copy(update={"outputs": {"scores": "x"}})) == ""


@pytest.mark.parametrize(
    ("aliases", "used_by", "reason"),
    [
        ((), "", ""),
        (("champion",), "", "it is champion"),
        ((), "service/a", "it is served by service/a"),
        (("a", "b"), "service/a", "it is a and it is b and it is served by service/a"),
    ],
)
def test_what_must_stay(aliases: tuple[str, ...], used_by: str, reason: str) -> None:
    assert must_stay(version(1, *aliases), used_by) == reason


@pytest.mark.parametrize(
    ("keep", "staying", "gone"), [(1, (), [1, 2, 3]), (1, (2,), [1, 3]), (4, (), []), (9, (), []), (2, (1, 2), [])]
)
def test_retention_never_takes_what_must_stay(keep: int, staying: tuple[int, ...], gone: list[int]) -> None:
    versions = [version(number) for number in (3, 1, 4, 2)]
    assert [each.version for each in superfluous(versions, keep, staying)] == gone


def test_a_version_has_the_last_and_the_best_values_of_its_run() -> None:
    points = [(float(step), step, {"val_loss": value, "score": value, "lr": 0.1}) for step, value in enumerate([0.9, 0.2, 0.4])]
    summaries = summarise({}, 0, [*points, (9.0, 0, {"val_loss": 5.0, "accuracy": float("nan")})])
    progress = RunProgress(metrics={"val_loss": 5.0, "score": 0.4, "lr": 0.1, "accuracy": float("nan")}, summaries=summaries)
    facts = facts_of(replace(JOB, progress=progress), {})
    assert facts.metrics == {"val_loss": 0.4, "score": 0.4, "lr": 0.1}
    assert facts.best == {"val_loss": 0.2}
    wanting = replace(JOB, progress=progress, spec=SPEC.model_copy(update={"stop": StopPolicy(when="score >= 0.95")}))
    assert facts_of(wanting, {}).best == {"val_loss": 0.2, "score": 0.9}
