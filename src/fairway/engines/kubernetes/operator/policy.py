"""What documents may not ask of a cluster unless its administrator allows it. Pure.

The escape hatch (`kubernetes.pod`) reaches everything that a pod can have; a document must not get by it what its author
could not get otherwise: another's host, another's account.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairway.engines.kubernetes.operator.installation import Allowed

_HOST = ("hostPID", "hostIPC", "hostUsers")


def refusals(spec: dict[str, Any], allowed: Allowed) -> list[str]:
    """Everything that is not allowed in a pod's spec, each with its place and the fix; none when all is well."""
    return [*_of_pod(spec, allowed), *_of_volumes(spec, allowed), *_of_containers(spec, allowed)]


def _of_pod(spec: dict[str, Any], allowed: Allowed) -> Iterator[str]:
    if spec.get("hostNetwork") and not allowed.host_network:
        yield _refusal("hostNetwork", True, "allowed.host_network: true")
    for name in _HOST:
        if spec.get(name):
            yield f"kubernetes.pod.{name}: {spec[name]!r} is never allowed; take it out"
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    if account not in allowed.service_accounts:
        yield _refusal("serviceAccountName", account, f"allowed.service_accounts: [{account}]")


def _of_volumes(spec: dict[str, Any], allowed: Allowed) -> Iterator[str]:
    for volume in spec.get("volumes", ()):
        path = volume.get("hostPath", {}).get("path") if isinstance(volume, dict) else None
        if path is not None and not is_below(path, allowed.host_paths):
            yield _refusal(f"volumes[{volume.get('name', '')}].hostPath", path, f"allowed.host_paths: [{path}]")


def is_below(path: str, allowed: tuple[str, ...]) -> bool:
    """Whether a folder of a node is one of those allowed, or lies in one."""
    parts = path.strip("/").split("/")
    if ".." in parts:
        return False
    return any(parts[: len(root)] == root for root in (folder.strip("/").split("/") for folder in allowed))


def _of_containers(spec: dict[str, Any], allowed: Allowed) -> Iterator[str]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind, ()):
            context = container.get("securityContext") or {}
            place = f"{kind}[{container.get('name', '')}].securityContext"
            if context.get("privileged") or context.get("allowPrivilegeEscalation"):
                yield f"kubernetes.pod.{place}: a privileged container is never allowed; take it out"
            for capability in (context.get("capabilities") or {}).get("add", ()):
                if capability not in allowed.capabilities:
                    yield _refusal(f"{place}.capabilities", capability, f"allowed.capabilities: [{capability}]")
            if any(port.get("hostPort") for port in container.get("ports", ())) and not allowed.host_network:
                yield _refusal(f"{kind}[{container.get('name', '')}].ports.hostPort", "set", "allowed.host_network: true")


def _refusal(place: str, value: object, setting: str) -> str:
    return f"kubernetes.pod.{place}: {value!r} is not allowed on this cluster; an administrator may set `{setting}`"
