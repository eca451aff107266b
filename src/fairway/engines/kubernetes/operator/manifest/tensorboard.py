"""The TensorBoard of a run: a server that reads the run's event files from the volume that its pods share. Pure."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest.security_context import confined
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey

Manifest = dict[str, Any]

FRAMEWORK = "tensorboard"
"""The key of the administrator's `runtimes` whose image has TensorBoard; without it, the run's own runtime is used."""
LABEL = f"{annotation.DOMAIN}/tensorboard"
PORT = 6006
RUN = "/fairway/run"


def name_of(run: JobKey) -> str:
    """Return the name of the run's TensorBoard Deployment and Service."""
    return f"{run.name}-{FRAMEWORK}"


def address(run: JobKey, cluster_domain: str) -> str:
    """Return the URL of the TensorBoard inside the cluster."""
    return f"http://{name_of(run)}.{run.namespace}.svc.{cluster_domain}:{PORT}"


def runtime_for(spec: JobSpec, installation: InstallationSettings) -> FrameworkRuntime | None:
    """Return the runtime for the TensorBoard; None where there is none."""
    chosen = installation.runtimes.get(FRAMEWORK)
    if chosen is not None:
        return chosen
    if spec.environment.image:
        return FrameworkRuntime(spec.environment.image)
    return installation.runtime_for(spec.framework.value)


def deployment(
    run: JobKey, spec: JobSpec, installation: InstallationSettings, runtime: FrameworkRuntime, owner: Manifest
) -> Manifest:
    """Return the Deployment: one server with the volume mounted read-only."""
    folder = spec.tensorboard.dir
    container: Manifest = {
        "name": FRAMEWORK,
        "image": runtime.image,
        "command": [
            *(runtime.python, "-m", "tensorboard.main"),
            *("--logdir", folder if folder.startswith("/") else f"{RUN}/tensorboard"),
            *("--host", "0.0.0.0", "--port", str(PORT)),
        ],
        "env": [{"name": name, "value": value} for name, value in runtime.env.items()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 5, "failureThreshold": 60},
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "volumeMounts": [
            {"name": "run", "mountPath": RUN, "subPath": f"{run.namespace}/{run.name}", "readOnly": True},
            *runtime.mounts,
        ],
    }
    labels = {LABEL: run.name}
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "run", **installation.run_volume}, *runtime.volumes],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(run, owner),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": confined(pod, installation.confinement),
            },
        },
    }


def service(run: JobKey, owner: Manifest) -> Manifest:
    """Return the Service in front of the TensorBoard."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(run, owner),
        "spec": {"selector": {LABEL: run.name}, "ports": [{"name": "http", "port": PORT, "targetPort": PORT}]},
    }


def _metadata(run: JobKey, owner: Manifest) -> Manifest:
    labels = {LABEL: run.name, "app.kubernetes.io/part-of": "fairway"}
    return {"name": name_of(run), "namespace": run.namespace, "labels": labels, "ownerReferences": [owner]}
