"""The objects that make the record an API of the cluster: the APIService, its Service, and the roles of callers. Pure."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.record import resource
from fairway.spec.custom_resource import GROUP

Manifest = dict[str, Any]

PORT = 8443
"""The port on which the operator serves the API server."""
VARIABLE = "FAIRWAY_RECORD_PORT"
REGISTRY_READER = "fairway-registry-reader"
"""The role that lets users of other namespaces read models and datasets, where it is bound in a namespace."""
_RBAC = "rbac.authorization.k8s.io"
_FRONT_READER = "extension-apiserver-authentication-reader"
"""The API server's own role for extension servers, which must read the authority that signs its certificate."""


def record_objects(namespace: str, labels: Manifest) -> list[Manifest]:
    """Return all objects; the operator adds its certificate to the APIService when it starts."""
    return [
        {
            **_head("APIService", f"{resource.VERSION}.{resource.GROUP}", labels, "apiregistration.k8s.io/v1"),
            "spec": {
                "group": resource.GROUP,
                "version": resource.VERSION,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": {"name": resource.SERVICE, "namespace": namespace, "port": PORT},
            },
        },
        {
            **_head("Service", resource.SERVICE, labels, namespace=namespace),
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
    """Return the roles of users.

    They are aggregated to the roles `view`, `edit` and `admin` of every cluster, so they need no binding.
    """
    kinds = ["trainingjobs", "modelservices"]
    scales = [f"{kind}/scale" for kind in kinds]
    kind_rules = {
        "view": [_rule([*kinds, "jobqueues", "gpunodes"], "get", "list", "watch")],
        "edit": [
            _rule(kinds, "create", "update", "patch", "delete", "deletecollection"),
            _rule(scales, "get", "update", "patch"),
        ],
        "admin": [],
    }
    meanings = {"view": (resource.READ,), "edit": (resource.WRITE,), "admin": (resource.REMOVE,)}
    targets = {"view": ("view", "edit", "admin"), "edit": ("edit", "admin"), "admin": ("admin",)}
    return [
        {
            **_head("ClusterRole", f"fairway-{name}", {**labels, **_added_to(targets[name])}, f"{_RBAC}/v1"),
            "rules": [*kind_rules[name], *resource.rules(*meanings[name])],
        }
        for name in kind_rules
    ] + [
        {
            **_head("ClusterRole", REGISTRY_READER, labels, f"{_RBAC}/v1"),
            "rules": resource.rules(resource.READ, only=("models", "datasets")),
        }
    ]


def _added_to(roles: tuple[str, ...]) -> Manifest:
    return {f"{_RBAC}/aggregate-to-{role}": "true" for role in roles}


def _rule(resources: list[str], *verbs: str) -> Manifest:
    return {"apiGroups": [GROUP], "resources": resources, "verbs": list(verbs)}


def _head(kind: str, name: str, labels: Manifest, api: str = "v1", namespace: str = "") -> Manifest:
    metadata: Manifest = {"name": name, "labels": dict(labels), **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata}
