"""Everything that is applied, in order. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from fairway.engines.kubernetes import crds, marks
from fairway.engines.kubernetes.install import aggregation
from fairway.engines.kubernetes.install.agent import agent
from fairway.engines.kubernetes.install.roles import CLUSTER_RULES, OWN_RULES, Rule
from fairway.engines.kubernetes.operator.installation import Installation

Manifest = dict[str, Any]

PORT = 8080
CONFIG = "fairway-installation"
CONFIG_FOLDER = "/etc/fairway"
HOME = "/var/lib/fairway"
RUNS = "/var/lib/fairway-runs"
PART_OF = {"app.kubernetes.io/part-of": "fairway"}


def manifests(installation: Installation, record: Manifest | None = None) -> list[Manifest]:
    """All objects. `record` is a volume source for what the operator keeps; without one it is lost with the operator's pod."""
    processes = ["operator", "scheduler"] if installation.scheduler == marks.SCHEDULER else ["operator"]
    found: list[Manifest] = [_namespace(installation), *(dict(one) for one in crds.definitions()), _config(installation)]
    for process in processes:
        found += _account(process, installation.namespace)
    found.append(_operator(installation, record or {"emptyDir": {}}))
    found.append(_service(installation.namespace))
    if "scheduler" in processes:
        found.append(_scheduler(installation))
    found += aggregation.record_objects(installation.namespace, {marks.MANAGED_BY: marks.MANAGER, **PART_OF})
    return found + agent(installation)


def endpoint(installation: Installation) -> str:
    """Where pods tell the operator of themselves."""
    return f"http://fairway-operator.{installation.namespace}.svc.{installation.cluster_domain}:{PORT}"


def _head(kind: str, name: str, namespace: str = "", api: str = "v1") -> Manifest:
    metadata: Manifest = {"name": name, "labels": {marks.MANAGED_BY: marks.MANAGER, **PART_OF}}
    return {"apiVersion": api, "kind": kind, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}


def _namespace(installation: Installation) -> Manifest:
    return _head("Namespace", installation.namespace)


def _config(installation: Installation) -> Manifest:
    text = msgspec.json.format(msgspec.json.encode(installation), indent=2).decode()
    return {**_head("ConfigMap", CONFIG, installation.namespace), "data": {"installation.json": text}}


def _account(process: str, namespace: str) -> list[Manifest]:
    name = f"fairway-{process}"
    who = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    rbac = "rbac.authorization.k8s.io"
    return [
        _head("ServiceAccount", name, namespace),
        {**_head("ClusterRole", name, api=f"{rbac}/v1"), "rules": _rules(CLUSTER_RULES[process])},
        {
            **_head("ClusterRoleBinding", name, api=f"{rbac}/v1"),
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": who,
        },
        {**_head("Role", name, namespace, f"{rbac}/v1"), "rules": _rules(OWN_RULES[process])},
        {
            **_head("RoleBinding", name, namespace, f"{rbac}/v1"),
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": who,
        },
    ]


def _rules(rules: tuple[Rule, ...]) -> list[Rule]:
    return [dict(rule) for rule in rules]


def _deployment(
    process: str, installation: Installation, replicas: int, container: Manifest, volumes: list[Manifest]
) -> Manifest:
    name = f"fairway-{process}"
    labels = {"app.kubernetes.io/name": name}
    pod: Manifest = {
        "serviceAccountName": name,
        "containers": [{"name": process, "image": installation.image, **container}],
        "volumes": volumes,
        # Whatever happens to nodes, these are needed to mend it.
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        # Five minutes, which is the default, are long without anybody who looks after jobs.
        "tolerations": [
            {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
            for what in ("not-ready", "unreachable")
        ],
    }
    return {
        **_head("Deployment", name, installation.namespace, "apps/v1"),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"} if process == "operator" else {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": {**labels, **PART_OF}}, "spec": pod},
        },
    }


def _operator(installation: Installation, record: Manifest) -> Manifest:
    env = {
        "FAIRWAY_INSTALLATION": f"{CONFIG_FOLDER}/installation.json",
        "FAIRWAY_HOME": HOME,
        "FAIRWAY_RUNS": RUNS,
        "FAIRWAY_OPERATOR_PORT": str(PORT),
        "FAIRWAY_OPERATOR_ENDPOINT": endpoint(installation),
        aggregation.VARIABLE: str(aggregation.PORT),
    }
    mounts = [("config", CONFIG_FOLDER), ("record", HOME), ("runs", RUNS)]
    container = {
        "command": ["python3", "-m", "fairway.bootstrap", "operate"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "ports": [{"containerPort": PORT, "name": "told"}],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    volumes = [
        {"name": "config", "configMap": {"name": CONFIG}},
        {"name": "record", **record},
        {"name": "runs", **installation.run_volume},
    ]
    return _deployment("operator", installation, 1, container, volumes)


def _scheduler(installation: Installation) -> Manifest:
    container = {
        "command": ["python3", "-m", "fairway.engines.kubernetes.scheduler"],
        "env": [{"name": "FAIRWAY_SYSTEM_NAMESPACE", "value": installation.namespace}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    return _deployment("scheduler", installation, 2, container, [])


def _service(namespace: str) -> Manifest:
    ports = [{"name": "told", "port": PORT, "targetPort": "told"}]
    selector = {"app.kubernetes.io/name": "fairway-operator"}
    return {**_head("Service", "fairway-operator", namespace), "spec": {"selector": selector, "ports": ports}}
