"""How the record becomes an API of the cluster: the APIService, its Service, and the roles of whoever asks. Pure."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.record import parts
from fairway.spec.crd import GROUP

Manifest = dict[str, Any]

PORT = 8443
"""Where the operator answers the API server."""
VARIABLE = "FAIRWAY_RECORD_PORT"
REGISTRY_READER = "fairway-registry-reader"
"""The role that lets users of other namespaces read models and datasets, where it is bound in a namespace."""
_RBAC = "rbac.authorization.k8s.io"
_FRONT_READER = "extension-apiserver-authentication-reader"
"""The API server's own role for those who must know it: which authority vouches for it."""


def record_objects(namespace: str, labels: Manifest) -> list[Manifest]:
    """Everything; the operator adds its certificate to the APIService when it starts."""
    return [
        {
            **_head("APIService", f"{parts.VERSION}.{parts.GROUP}", labels, "apiregistration.k8s.io/v1"),
            "spec": {
                "group": parts.GROUP,
                "version": parts.VERSION,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": {"name": parts.SERVICE, "namespace": namespace, "port": PORT},
            },
        },
        {
            **_head("Service", parts.SERVICE, labels, namespace=namespace),
            "spec": {
                "selector": {"app.kubernetes.io/name": "fairway-operator"},
                "ports": [{"name": "record", "port": PORT, "targetPort": PORT}],
            },
        },
        {
            **_head("RoleBinding", "fairway-record", labels, f"{_RBAC}/v1", "kube-system"),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": _FRONT_READER},
            "subjects": [{"kind": "ServiceAccount", "name": "fairway-operator", "namespace": namespace}],
        },
        *caller_roles(labels),
    ]


def caller_roles(labels: Manifest) -> list[Manifest]:
    """What people may do: added to the roles `view`, `edit` and `admin` that every cluster has, so that nobody must be told."""
    kinds = ["trainingjobs", "modelservices"]
    scales = [f"{kind}/scale" for kind in kinds]
    own = {
        "view": [_rule([*kinds, "jobqueues", "gpunodes"], "get", "list", "watch")],
        "edit": [
            _rule(kinds, "create", "update", "patch", "delete", "deletecollection"),
            _rule(scales, "get", "update", "patch"),
        ],
        "admin": [],
    }
    meant = {"view": (parts.READ,), "edit": (parts.WRITE,), "admin": (parts.REMOVE,)}
    above = {"view": ("view", "edit", "admin"), "edit": ("edit", "admin"), "admin": ("admin",)}
    return [
        {
            **_head("ClusterRole", f"fairway-{name}", {**labels, **_added_to(above[name])}, f"{_RBAC}/v1"),
            "rules": [*own[name], *parts.rules(*meant[name])],
        }
        for name in own
    ] + [
        {
            **_head("ClusterRole", REGISTRY_READER, labels, f"{_RBAC}/v1"),
            "rules": parts.rules(parts.READ, only=("models", "datasets")),
        }
    ]


def _added_to(roles: tuple[str, ...]) -> Manifest:
    return {f"{_RBAC}/aggregate-to-{role}": "true" for role in roles}


def _rule(resources: list[str], *verbs: str) -> Manifest:
    return {"apiGroups": [GROUP], "resources": resources, "verbs": list(verbs)}


def _head(kind: str, name: str, labels: Manifest, api: str = "v1", namespace: str = "") -> Manifest:
    metadata: Manifest = {"name": name, "labels": dict(labels), **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata}
