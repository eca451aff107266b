"""The Deployments of our processes: what all of them have in common. Pure.

Namespaces that require the level `restricted` of Pod Security Standards admit all of it, if they admit the volumes that the
administrator names.
"""

from __future__ import annotations

from fairway.engines.kubernetes import health_endpoint
from fairway.engines.kubernetes.install.section import PART_OF, Manifest, head
from fairway.engines.kubernetes.operator.installation import PROCESS_RESOURCES, InstallationSettings

PORT = 8080
"""The port on which the operator serves pods."""
HEALTH_PORT = 8081
USER = 65532
"""A user that exists on no machine, so that a process that escapes its container has no rights."""
NAME = "app.kubernetes.io/name"


def endpoint(installation: InstallationSettings) -> str:
    """Return the operator's endpoint for reports from pods."""
    return f"https://fairway-operator.{installation.namespace}.svc.{installation.cluster_domain}:{PORT}"


def deployment(
    process: str,
    installation: InstallationSettings,
    container: Manifest,
    volumes: list[Manifest] | None = None,
    *,
    replicas: int | None = None,
    annotations: dict[str, str] | None = None,
) -> Manifest:
    """Return a process's Deployment, with probes and limits.

    Without `replicas` there is one pod, and never two at the same time.
    """
    name = f"fairway-{process}"
    alone = replicas is None
    metadata: Manifest = {"labels": {NAME: name, **PART_OF}, **({"annotations": annotations} if annotations else {})}
    return {
        **head("Deployment", name, installation.namespace, "apps/v1"),
        "spec": {
            "replicas": 1 if replicas is None else replicas,
            "selector": {"matchLabels": {NAME: name}},
            "strategy": {"type": "Recreate"} if alone else {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {"metadata": metadata, "spec": _pod(process, installation, container, volumes or [], alone)},
        },
    }


def _pod(process: str, installation: InstallationSettings, container: Manifest, volumes: list[Manifest], alone: bool) -> Manifest:
    name = f"fairway-{process}"
    return {
        "serviceAccountName": name,
        "containers": [_container(process, installation, container)],
        "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],
        # Whatever happens to nodes, these are needed for recovery.
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # The default of five minutes is too long to be without an operator or a scheduler.
        "tolerations": [
            {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
            for state in ("not-ready", "unreachable")
        ],
        **({} if alone else {"affinity": _apart(name)}),
    }


def _container(process: str, installation: InstallationSettings, given: Manifest) -> Manifest:
    env = [*given.get("env", ()), *_variables({health_endpoint.PORT: str(HEALTH_PORT), "HOME": "/tmp"})]
    return {
        "name": process,
        "image": installation.image,
        **given,
        "env": env,
        "ports": [*given.get("ports", ()), {"containerPort": HEALTH_PORT, "name": "health"}],
        "volumeMounts": [*given.get("volumeMounts", ()), {"name": "tmp", "mountPath": "/tmp"}],
        "resources": installation.resources.get(process) or PROCESS_RESOURCES[process],
        "livenessProbe": {**_asked("/healthz"), "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 3},
        "readinessProbe": {**_asked("/readyz"), "periodSeconds": 5, "timeoutSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _variables(values: dict[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _asked(path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": "health"}}


def _apart(name: str) -> Manifest:
    """Return an affinity that prefers different nodes, where there are several."""
    term = {"labelSelector": {"matchLabels": {NAME: name}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}}


def budget(process: str, namespace: str) -> Manifest:
    """Return a disruption budget: a drain evicts one replica at a time. A single replica never blocks it."""
    name = f"fairway-{process}"
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {NAME: name}}}
    return {**head("PodDisruptionBudget", name, namespace, "policy/v1"), "spec": spec}


def monitor(namespace: str) -> Manifest:
    """Return the PodMonitor that makes a Prometheus operator scrape our processes."""
    spec = {"selector": {"matchLabels": dict(PART_OF)}, "podMetricsEndpoints": [{"port": "health", "path": "/metrics"}]}
    return {**head("PodMonitor", "fairway", namespace, "monitoring.coreos.com/v1"), "spec": spec}
