"""Our processes as Deployments: what every one of them has, whatever it does. Pure.

All of it is admitted where pods must be `restricted` (Pod Security Standards), if the volumes that an administrator names are.
"""

from __future__ import annotations

from fairway.engines.kubernetes import health
from fairway.engines.kubernetes.install.shape import PART_OF, Manifest, head
from fairway.engines.kubernetes.operator.installation import PROCESS_RESOURCES, Installation

PORT = 8080
"""Where the operator answers pods."""
HEALTH_PORT = 8081
USER = 65532
"""Nobody on any machine: a process that gets out of its container is nobody's."""
NAME = "app.kubernetes.io/name"


def endpoint(installation: Installation) -> str:
    """Where pods tell the operator of themselves."""
    return f"https://fairway-operator.{installation.namespace}.svc.{installation.cluster_domain}:{PORT}"


def deployment(
    process: str,
    installation: Installation,
    container: Manifest,
    volumes: list[Manifest] | None = None,
    *,
    replicas: int | None = None,
    annotations: dict[str, str] | None = None,
) -> Manifest:
    """A process with its probes and its limits. Without `replicas` it is alone, and replaced, never doubled."""
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


def _pod(process: str, installation: Installation, container: Manifest, volumes: list[Manifest], alone: bool) -> Manifest:
    name = f"fairway-{process}"
    return {
        "serviceAccountName": name,
        "containers": [_container(process, installation, container)],
        "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],
        # Whatever happens to nodes, these are needed to mend it.
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # Five minutes, which is the default, are long without anybody who looks after jobs.
        "tolerations": [
            {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
            for what in ("not-ready", "unreachable")
        ],
        **({} if alone else {"affinity": _apart(name)}),
    }


def _container(process: str, installation: Installation, given: Manifest) -> Manifest:
    env = [*given.get("env", ()), *_variables({health.PORT: str(HEALTH_PORT), "HOME": "/tmp"})]
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
    """On different nodes, where there are several: a wish."""
    term = {"labelSelector": {"matchLabels": {NAME: name}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}}


def budget(process: str, namespace: str) -> Manifest:
    """Whoever empties nodes takes one replica at a time. One that is alone is never in the way."""
    name = f"fairway-{process}"
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {NAME: name}}}
    return {**head("PodDisruptionBudget", name, namespace, "policy/v1"), "spec": spec}


def monitor(namespace: str) -> Manifest:
    """Tells a Prometheus operator where our processes count."""
    spec = {"selector": {"matchLabels": dict(PART_OF)}, "podMetricsEndpoints": [{"port": "health", "path": "/metrics"}]}
    return {**head("PodMonitor", "fairway", namespace, "monitoring.coreos.com/v1"), "spec": spec}
