"""How containers of runs are confined: system calls, privileges and capabilities. Pure.

Applied last, after what the document adds: a document can ask for less than this, and for more only as far as `policy` allows.
Images of frameworks run as root, so no user is prescribed.
"""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.operator.installation import Confinement

Manifest = dict[str, Any]

ALL = "ALL"
_KINDS = ("initContainers", "containers")


def confined(spec: Manifest, rules: Confinement) -> Manifest:
    """The pod's spec with every container confined."""
    found = dict(spec)
    context = {name: value for name, value in (spec.get("securityContext") or {}).items() if value is not None}
    if rules.seccomp:
        context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    if context:
        found["securityContext"] = context
    else:
        found.pop("securityContext", None)
    for kind in _KINDS:
        if kind in spec:
            found[kind] = [_container(one, rules) for one in spec[kind]]
    return found


def _container(container: Manifest, rules: Confinement) -> Manifest:
    context = {name: value for name, value in (container.get("securityContext") or {}).items() if value is not None}
    if not rules.privilege_escalation:
        context["allowPrivilegeEscalation"] = False
    if ALL not in rules.capabilities:
        asked = context.get("capabilities") or {}
        added = dict.fromkeys((*rules.capabilities, *(asked.get("add") or ())))
        context["capabilities"] = {"drop": [ALL], **({"add": list(added)} if added else {})}
    return {**container, "securityContext": context} if context else container
