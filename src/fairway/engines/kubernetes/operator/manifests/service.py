"""Builds the Service by which a run's pods find each other."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.operator import naming
from fairway.state.job import JobKey


def service(run: JobKey, owner: dict[str, Any] | None = None, name: str = "") -> dict[str, Any]:
    """Return a headless Service: it gives each pod a name even before it is ready, because peers connect before that.

    `name`: where it differs from the usual one.
    """
    labels = {marks.MANAGED_BY: marks.MANAGER, marks.RUN: run.name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name or naming.service_name(run),
            "namespace": run.namespace,
            "labels": labels,
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {marks.RUN: run.name},
        },
    }
