"""The service account of a process, with its roles. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes.install.rbac_rule import CLUSTER_RULES, OWN_RULES, Rule
from fairway.engines.kubernetes.install.section import RBAC, Manifest, head


def account(process: str, namespace: str) -> list[Manifest]:
    """Return the process's account, its role in the whole cluster, and its role in its own namespace."""
    name = f"fairway-{process}"
    return [
        head("ServiceAccount", name, namespace),
        *cluster_role(name, CLUSTER_RULES[process], name, namespace),
        {**head("Role", name, namespace, f"{RBAC}/v1"), "rules": _rules(OWN_RULES[process])},
        {
            **head("RoleBinding", name, namespace, f"{RBAC}/v1"),
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": _who(name, namespace),
        },
    ]


def cluster_role(name: str, rules: tuple[Rule, ...], who: str, namespace: str) -> list[Manifest]:
    """Return a cluster role and its binding to an account."""
    return [
        {**head("ClusterRole", name, api=f"{RBAC}/v1"), "rules": _rules(rules)},
        {
            **head("ClusterRoleBinding", name, api=f"{RBAC}/v1"),
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": _who(who, namespace),
        },
    ]


def _who(name: str, namespace: str) -> list[Manifest]:
    return [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]


def _rules(rules: tuple[Rule, ...]) -> list[Rule]:
    return [dict(rule) for rule in rules]
