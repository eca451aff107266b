"""Which of the variables for MLflow clients a task gets."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.launch.mlflow import tracking_variables
from fairway.spec.job import JobSpec

OURS = {
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:4711",
    "MLFLOW_TRACKING_TOKEN": "default/mnist-7.0",
    "MLFLOW_EXPERIMENT_NAME": "mnist",
}


def got(given: dict[str, str] | None = None, env: dict[str, str] | None = None, role: dict[str, str] | None = None) -> Any:
    spec = JobSpec.model_validate({"env": env or {}, "roles": {"worker": {"command": ["true"], "env": role or {}}}})
    return tracking_variables(OURS, spec, "worker", given or {})


def test_a_task_gets_them() -> None:
    assert got() == OURS
    assert got({"PATH": "/bin"}, {"A": "1"}, {"B": "2"}) == OURS


@pytest.mark.parametrize(
    "said",
    [
        {"MLFLOW_TRACKING_URI": "https://example.org"},
        {"MLFLOW_TRACKING_URI": "databricks", "MLFLOW_TRACKING_TOKEN": "x"},
        {"MLFLOW_TRACKING_URI": ""},
        {"MLFLOW_TRACKING_TOKEN": "theirs"},
        {"MLFLOW_REGISTRY_URI": "https://example.org"},
        {"DATABRICKS_HOST": "https://example.org"},
    ],
)
def test_who_has_another_server_gets_none_of_ours(said: dict[str, str]) -> None:
    assert got(said) == {}
    assert got(env=said) == {}
    assert got(role=said) == {}


def test_a_run_that_is_started_by_a_run_has_variables_of_its_own() -> None:
    assert got({**OURS, "MLFLOW_TRACKING_TOKEN": "default/outer-1.0", "MLFLOW_EXPERIMENT_NAME": "outer"}) == OURS


def test_the_users_experiment_stays() -> None:
    assert "MLFLOW_EXPERIMENT_NAME" not in got({"MLFLOW_EXPERIMENT_NAME": "mine"})
    assert got({"MLFLOW_EXPERIMENT_NAME": "mine"})["MLFLOW_TRACKING_URI"] == OURS["MLFLOW_TRACKING_URI"]


def test_no_proxy_is_asked_for_what_lies_here() -> None:
    assert got({"http_proxy": "http://proxy:1"}) == {**OURS, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    told = got({"HTTP_PROXY": "http://proxy:1", "no_proxy": "example.org", "NO_PROXY": "127.0.0.1"})
    assert told == {**OURS, "no_proxy": "example.org,127.0.0.1"}


def test_without_a_door_there_is_nothing() -> None:
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["true"]}}})
    assert tracking_variables({}, spec, "worker", {"http_proxy": "x"}) == {}
