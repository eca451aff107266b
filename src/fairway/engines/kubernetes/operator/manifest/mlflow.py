"""Connects scripts that use MLflow in a pod to the operator. Pure."""

from __future__ import annotations

from typing import Any

from fairway.launch.mlflow import EXPERIMENT, TOKEN, URI, tracking_variables
from fairway.state.job import JobState

Manifest = dict[str, Any]


AUTHORITY = "MLFLOW_TRACKING_SERVER_CERT_PATH"
UNCHECKED = "MLFLOW_TRACKING_INSECURE_TLS"
"""MLflow refuses this together with `AUTHORITY`."""


def track(container: Manifest, job: JobState, role: str, endpoint: str, secret: str, authority: str = "") -> None:
    """Add the variables of MLflow's client, unless they are set to something else already; the token by reference only.

    `authority`: the file in the pod with the operator's certificate authority; empty: there is no TLS.
    """
    ours = {URI: endpoint, TOKEN: "", EXPERIMENT: job.series, "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
    # A variable that is set by reference counts as set, whatever its value is.
    present = {variable["name"]: variable.get("value", "set") for variable in container["env"]}
    if authority and UNCHECKED not in {**present, **job.spec.env, **job.spec.roles[role].env}:
        ours[AUTHORITY] = authority
    for name, value in tracking_variables(ours, job.spec, role, present).items():
        if name == TOKEN:
            container["env"].append({"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}})
        elif name not in present:
            container["env"].append({"name": name, "value": value})
