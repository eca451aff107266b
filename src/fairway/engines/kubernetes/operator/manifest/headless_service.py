"""Builds the Service by which a run's pods find each other."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.state.job import JobKey


def service(run: JobKey, owner: dict[str, Any] | None = None, name: str = "") -> dict[str, Any]:
    """Return a headless Service: it gives each pod a name even before it is ready, because peers connect before that.

    `name`: where it differs from the usual one.
    """
    labels = {annotation.MANAGED_BY: annotation.MANAGER, annotation.RUN: run.name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name or pod_name.service_name(run),
            "namespace": run.namespace,
            "labels": labels,
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {annotation.RUN: run.name},
        },
    }
