"""Security settings of run containers: system calls, privileges and capabilities. Pure.

They are applied last, after the document's additions: a document can request less than this, and more only as far as `policy`
allows. Images of frameworks run as root, so no user is prescribed.
"""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.operator.installation import ContainerConfinement

Manifest = dict[str, Any]

ALL = "ALL"
_KINDS = ("initContainers", "containers")


def confined(spec: Manifest, rules: ContainerConfinement) -> Manifest:
    """Return the pod's spec with every container confined."""
    result = dict(spec)
    context = {name: value for name, value in (spec.get("securityContext") or {}).items() if value is not None}
    if rules.seccomp:
        context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    if context:
        result["securityContext"] = context
    else:
        result.pop("securityContext", None)
    for kind in _KINDS:
        if kind in spec:
            result[kind] = [_container(container, rules) for container in spec[kind]]
    return result


def _container(container: Manifest, rules: ContainerConfinement) -> Manifest:
    context = {name: value for name, value in (container.get("securityContext") or {}).items() if value is not None}
    if not rules.privilege_escalation:
        context["allowPrivilegeEscalation"] = False
    if ALL not in rules.capabilities:
        capabilities = context.get("capabilities") or {}
        added = dict.fromkeys((*rules.capabilities, *(capabilities.get("add") or ())))
        context["capabilities"] = {"drop": [ALL], **({"add": list(added)} if added else {})}
    return {**container, "securityContext": context} if context else container
