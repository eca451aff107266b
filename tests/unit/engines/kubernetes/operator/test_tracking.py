"""How MLflow's client in a pod finds the operator."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.operator.manifest.mlflow import track
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, SubmissionOrigin


def variables(env: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    found = JobSpec.model_validate({"roles": {"worker": {"command": ["a"]}}, **spec})
    container = {"env": list(env or [])}
    track(
        container,
        JobState(JobKey("team", "mnist-7"), "mnist", 7, found, SubmissionOrigin()),
        "worker",
        "http://operator:8080",
        "mnist-7-token",
    )
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def test_the_way_and_the_token_are_told_and_the_token_never_by_value() -> None:
    found = variables()
    assert (found["MLFLOW_TRACKING_URI"], found["MLFLOW_EXPERIMENT_NAME"]) == ("http://operator:8080", "mnist")
    assert found["MLFLOW_TRACKING_TOKEN"] == {"secretKeyRef": {"name": "mnist-7-token", "key": "token"}}


def test_who_has_a_server_of_their_own_keeps_it_and_our_token_stays_here() -> None:
    assert set(variables(env=[{"name": "MLFLOW_TRACKING_URI", "value": "http://theirs"}])) == {"MLFLOW_TRACKING_URI"}


def test_a_document_or_a_secret_that_leads_elsewhere_wins() -> None:
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["a"]}}, "env": {"MLFLOW_TRACKING_URI": "http://theirs"}})
    container: dict[str, Any] = {"env": []}
    track(
        container,
        JobState(JobKey("team", "mnist-7"), "mnist", 7, spec, SubmissionOrigin()),
        "worker",
        "http://operator:8080",
        "s",
    )
    assert container["env"] == []
    theirs = {"name": "MLFLOW_TRACKING_TOKEN", "valueFrom": {"secretKeyRef": {"name": "fairway-secrets", "key": "x"}}}
    assert set(variables(env=[theirs])) == {"MLFLOW_TRACKING_TOKEN"}


def test_the_authority_of_the_operator_is_named_unless_the_document_checks_nothing() -> None:
    def named(**spec: Any) -> str | None:
        found = JobSpec.model_validate({"roles": {"worker": {"command": ["a"]}}, **spec})
        container: dict[str, Any] = {"env": []}
        job = JobState(JobKey("team", "mnist-7"), "mnist", 7, found, SubmissionOrigin())
        track(container, job, "worker", "https://operator:8080", "s", "/fairway/inject/operator-ca.pem")
        return next((one["value"] for one in container["env"] if one["name"] == "MLFLOW_TRACKING_SERVER_CERT_PATH"), None)

    assert named() == "/fairway/inject/operator-ca.pem"
    assert named(env={"MLFLOW_TRACKING_INSECURE_TLS": "true"}) is None, "MLflow refuses both together"
    assert named(env={"MLFLOW_TRACKING_URI": "https://theirs"}) is None
    assert "MLFLOW_TRACKING_SERVER_CERT_PATH" not in variables()
