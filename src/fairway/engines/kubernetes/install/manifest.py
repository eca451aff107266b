"""All installed objects, in order. Pure: `fairway install`, `--plan` and the Helm chart present them in three ways."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.agent.token_review import AUDIENCE, TOKEN_FOLDER
from fairway.engines.kubernetes.crd import definition
from fairway.engines.kubernetes.install import api_service
from fairway.engines.kubernetes.install.deployment import PORT, budget, deployment, endpoint, monitor
from fairway.engines.kubernetes.install.node_agent import agent
from fairway.engines.kubernetes.install.pod_annotation_policy import pod_marks
from fairway.engines.kubernetes.install.rbac_rule import NEIGHBOUR_RULES
from fairway.engines.kubernetes.install.section import InstallSection, Manifest, head, labels
from fairway.engines.kubernetes.install.service_account import account, cluster_role
from fairway.engines.kubernetes.install.submitter_policy import vouching
from fairway.engines.kubernetes.operator.installation import InstallationSettings

CONFIG = "fairway-installation"
CONFIG_FOLDER = "/etc/fairway"
HOME = "/var/lib/fairway"
RUNS = "/var/lib/fairway-runs"
CLAIM = "fairway-record"
CLAIMED = {"persistentVolumeClaim": {"claimName": CLAIM}}
NAMESPACE = "namespace"
"""The section that a chart leaves out: the user who installs the chart creates the namespace."""


def manifests(installation: InstallationSettings) -> list[Manifest]:
    """Return all objects of this installation."""
    return [item for section in SECTIONS if section.wanted(installation) for item in section.objects(installation)]


def everything(installation: InstallationSettings) -> list[Manifest]:
    """Return all objects that any installation with these names could have, and that may therefore still exist."""
    return [item for section in SECTIONS for item in section.objects(installation)]


def settings(installation: InstallationSettings) -> str:
    """Return the administrator's settings as the operator reads them: exactly the text that a chart generates from its values."""
    plain: dict[str, Any] = msgspec.to_builtins(installation)
    text = json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def digest(text: str) -> str:
    """Return a digest that changes with the settings, so that the operator restarts."""
    return hashlib.sha256(text.encode()).hexdigest()


def _definitions(_installation: InstallationSettings) -> list[Manifest]:
    definitions = [dict(item) for item in definition.definitions()]
    return [{**item, "metadata": {**item["metadata"], "labels": labels()}} for item in definitions]


def _config(installation: InstallationSettings) -> list[Manifest]:
    return [{**head("ConfigMap", CONFIG, installation.namespace), "data": {"installation.json": settings(installation)}}]


def _claim(installation: InstallationSettings) -> list[Manifest]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": installation.record_size}}}
    return [{**head("PersistentVolumeClaim", CLAIM, installation.namespace), "spec": spec}]


def _operator(installation: InstallationSettings) -> list[Manifest]:
    env = {
        "FAIRWAY_INSTALLATION": f"{CONFIG_FOLDER}/installation.json",
        "FAIRWAY_HOME": HOME,
        "FAIRWAY_RUNS": RUNS,
        "FAIRWAY_OPERATOR_PORT": str(PORT),
        "FAIRWAY_OPERATOR_ENDPOINT": endpoint(installation),
        api_service.VARIABLE: str(api_service.PORT),
    }
    mounts = [("config", CONFIG_FOLDER), ("record", HOME), ("runs", RUNS), ("agents", TOKEN_FOLDER)]
    container = {
        "command": ["python3", "-m", "fairway.bootstrap", "operate"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "ports": [{"containerPort": PORT, "name": "told"}],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
    }
    volumes = [
        {"name": "config", "configMap": {"name": CONFIG}},
        {"name": "record", **(installation.record or CLAIMED)},
        {"name": "runs", **installation.run_volume},
        # With it the operator authenticates to agents. The API server accepts no token of that audience.
        {"name": "agents", "projected": {"sources": [{"serviceAccountToken": {"audience": AUDIENCE, "path": "token"}}]}},
    ]
    marked = {f"{annotation.DOMAIN}/settings": digest(settings(installation))}
    return [
        *account("operator", installation.namespace),
        deployment("operator", installation, container, volumes, annotations=marked),
        budget("operator", installation.namespace),
        _service(installation.namespace),
    ]


def _service(namespace: str) -> Manifest:
    ports = [{"name": "told", "port": PORT, "targetPort": "told"}]
    selector = {"app.kubernetes.io/name": "fairway-operator"}
    return {**head("Service", "fairway-operator", namespace), "spec": {"selector": selector, "ports": ports}}


def _scheduler(installation: InstallationSettings) -> list[Manifest]:
    container = {
        "command": ["python3", "-m", "fairway.engines.kubernetes.scheduler"],
        "env": [{"name": "FAIRWAY_SYSTEM_NAMESPACE", "value": installation.namespace}],
    }
    return [
        *account("scheduler", installation.namespace),
        deployment("scheduler", installation, container, replicas=installation.replicas),
        budget("scheduler", installation.namespace),
    ]


def _neighbour(name: str) -> InstallSection:
    """Return the section with the operator's rights for a neighbour's objects, where that neighbour is used."""
    return InstallSection(
        name,
        lambda here: cluster_role(f"fairway-operator-{name}", NEIGHBOUR_RULES[name], "fairway-operator", here.namespace),
        lambda here: here.queueing == name,
        f'eq .Values.queueing "{name}"',
    )


SECTIONS = (
    InstallSection(NAMESPACE, lambda here: [head("Namespace", here.namespace)]),
    InstallSection("kinds", _definitions),
    InstallSection("settings", _config),
    InstallSection("record", _claim, lambda here: not here.record, "not .Values.record"),
    InstallSection("operator", _operator),
    InstallSection(
        "scheduler",
        _scheduler,
        lambda here: here.scheduler == annotation.SCHEDULER,
        f'eq .Values.scheduler "{annotation.SCHEDULER}"',
    ),
    InstallSection("vouching", lambda here: vouching(here.namespace)),
    InstallSection("pod-marks", lambda here: pod_marks(here.namespace)),
    InstallSection("record-api", lambda here: api_service.record_objects(here.namespace, labels())),
    InstallSection("agent", agent, lambda here: here.agent, ".Values.agent"),
    *(_neighbour(name) for name in NEIGHBOUR_RULES),
    InstallSection("monitoring", lambda here: [monitor(here.namespace)], lambda here: here.monitoring, ".Values.monitoring"),
)
"""In the order of installation; removed in reverse order."""
