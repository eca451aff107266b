"""How a script that uses MLflow finds its way from a pod to the operator. Pure."""

from __future__ import annotations

from typing import Any

from fairway.launch.tracking import EXPERIMENT, TOKEN, URI, tracking_variables
from fairway.state.job import Job

Manifest = dict[str, Any]


AUTHORITY = "MLFLOW_TRACKING_SERVER_CERT_PATH"
UNCHECKED = "MLFLOW_TRACKING_INSECURE_TLS"
"""MLflow refuses both together."""


def track(container: Manifest, job: Job, role: str, endpoint: str, secret: str, authority: str = "") -> None:
    """Add the variables that MLflow's client reads, unless they lead elsewhere already; the token by reference only.

    `authority`: the file in the pod with the operator's certificate authority; empty: there is no TLS.
    """
    ours = {URI: endpoint, TOKEN: "", EXPERIMENT: job.series, "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
    # What comes by reference is set, whatever it is.
    given = {one["name"]: one.get("value", "set") for one in container["env"]}
    if authority and UNCHECKED not in {**given, **job.spec.env, **job.spec.roles[role].env}:
        ours[AUTHORITY] = authority
    for name, value in tracking_variables(ours, job.spec, role, given).items():
        if name == TOKEN:
            container["env"].append({"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}})
        elif name not in given:
            container["env"].append({"name": name, "value": value})
