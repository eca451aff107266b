"""How a script that uses MLflow finds its way here: variables that its client reads by itself."""

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
    """What a task gets of our variables, over what it is given anyway.

    All of them, or none where the document or the user's environment leads to a server of their own: a token
    for us must not go there. What a user's environment has of ours (a run that submits another) is replaced.
    """
    said = {**given, **spec.env, **spec.roles[role].env}
    if said.get(URI, ours.get(URI)) != ours.get(URI):
        return {}
    if URI not in said and any(said.get(name) for name in _OTHER_DOORS):
        return {}
    kept = {EXPERIMENT} if URI not in said and said.get(EXPERIMENT) else set()
    return {name: value for name, value in ours.items() if name not in kept} | _past_proxies(ours, said)


def _past_proxies(ours: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    """Clients would ask a proxy for what lies on this machine; those that are told not to, do not."""
    if not ours or not any(said.get(name) for name in _PROXIES):
        return {}
    return {
        name: ",".join(part for part in (said.get(name, ""), LOOPBACK) if part)
        for name in ("no_proxy", "NO_PROXY")
        if LOOPBACK not in said.get(name, "")
    }
