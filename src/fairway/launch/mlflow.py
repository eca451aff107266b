"""Connects scripts that use MLflow to Fairway: the variables that MLflow's client reads by itself."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.spec.job import JobSpec

URI = "MLFLOW_TRACKING_URI"
TOKEN = "MLFLOW_TRACKING_TOKEN"
EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"
LOOPBACK = "127.0.0.1"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_OTHER_DOORS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_REGISTRY_URI", "DATABRICKS_HOST", TOKEN)


def tracking_variables(ours: Mapping[str, str], spec: JobSpec, role: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return which of our variables to add to those that a task has already.

    All of them, or none where the document or the user's environment names another server: our token must not be sent there.
    Values of ours in a user's environment (of a run that submits another) are replaced.
    """
    present = {**given, **spec.env, **spec.roles[role].env}
    if present.get(URI, ours.get(URI)) != ours.get(URI):
        return {}
    if URI not in present and any(present.get(name) for name in _OTHER_DOORS):
        return {}
    kept = {EXPERIMENT} if URI not in present and present.get(EXPERIMENT) else set()
    return {name: value for name, value in ours.items() if name not in kept} | _past_proxies(ours, present)


def _past_proxies(ours: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    """Return `no_proxy` with the loopback address: a client behind a proxy would otherwise send local requests to the proxy."""
    if not ours or not any(said.get(name) for name in _PROXIES):
        return {}
    return {
        name: ",".join(part for part in (said.get(name, ""), LOOPBACK) if part)
        for name in ("no_proxy", "NO_PROXY")
        if LOOPBACK not in said.get(name, "")
    }
