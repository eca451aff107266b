"""What documents may not request of a cluster unless its administrator allows it. Pure.

The escape hatch (`kubernetes.pod`) reaches everything that a pod can have. A document must not gain by it what its author could
not get otherwise: another's host, another's account, another's runs, another's place in the queue. Everything that the level
`baseline` of Pod Security forbids is forbidden here, too, whatever level the namespace has.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes.operator.installation import DocumentPermissions, FrameworkRuntime, InstallationSettings

OURS = frozenset({"inject", "code", "run", "shm", "bundle", "tmp", "cache", "environment", "fetched"})
"""Volumes that Fairway adds to pods of runs. A document's volume of the same name would be merged with it."""
OURS_BEGIN = "data-"
"""Prefix of the names of the volumes of inputs."""
PATHS = ("/fairway", "/dev/shm", "/dev/termination-log")
"""Folders of a container that Fairway fills, and the file in which it reports its end."""
_TOKEN = "serviceAccountToken"
_TELLING = {"persistentVolumeClaim": ("claimName",), "nfs": ("server",), "csi": ("driver", "volumeAttributes")}
"""By type of volume: the fields that identify it. Another path on the same server may reach the same files."""


@dataclass(frozen=True, slots=True)
class ReservedPodParts:
    """Volumes and paths that the installation gives to a pod, which a document may therefore not use for its own."""

    volumes: frozenset[str] = OURS
    paths: tuple[str, ...] = PATHS
    shared: tuple[Mapping[str, Any], ...] = ()
    """Volume sources whose content does not belong to this run alone."""


def taken(installation: InstallationSettings, runtime: FrameworkRuntime | None = None) -> ReservedPodParts:
    """Return what pods with this runtime are given."""
    volumes, mounts = (runtime.volumes, runtime.mounts) if runtime is not None else ((), ())
    shared = (installation.run_volume, installation.cache_volume, installation.record)
    return ReservedPodParts(
        OURS | {str(item.get("name")) for item in volumes},
        (*PATHS, *(str(item["mountPath"]) for item in mounts if "mountPath" in item)),
        tuple(item for item in shared if item and "emptyDir" not in item),
    )


HARMLESS = frozenset({"emptyDir", "configMap", "secret", "downwardAPI", "persistentVolumeClaim", "projected"})
"""Types of volumes whose content belongs to the namespace itself. Every other type must be allowed."""

_NEVER = ("hostPID", "hostIPC", "hostUsers", "ephemeralContainers", "overhead", "priority", "schedulingGates", "resourceClaims")
"""Fields of a pod that reach the processes of others, or that only the cluster itself may set."""
_INSTEAD = {
    "nodeName": "use placement.nodes of the role: every pod passes through the queue",
    "schedulerName": "the administrator chooses the scheduler",
}
_NOT_YOURS = "it also holds data of other runs; use another volume, the run's own folder is already mounted"
_KINDS = ("containers", "initContainers")
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe")


def refusals(spec: dict[str, Any], allowed: DocumentPermissions, given: ReservedPodParts = ReservedPodParts()) -> list[str]:
    """Return everything that is not allowed in a pod's spec, each with its place and the fix; empty when all is well."""
    return [
        *_misshapen(spec),
        *_of_pod(spec, allowed),
        *_of_context("securityContext", _mapping(spec.get("securityContext"))),
        *_of_volumes(spec, allowed, given),
        *_of_containers(spec, allowed, given),
    ]


def _misshapen(spec: dict[str, Any]) -> list[str]:
    """Report fields that must be lists and are not: additions to a pod must have a pod's structure."""
    misshapen = [name for name in ("volumes", *_KINDS) if name in spec and not isinstance(spec[name], list)]
    for kind in _KINDS:
        for container, place in _entries(spec, kind):
            misshapen += [
                f"{place}.{name}"
                for name in ("env", "volumeMounts", "ports", "command", "args")
                if container is not None and name in container and not isinstance(container[name], list)
            ]
    return [f"kubernetes.pod.{name}: is not a list; write one" for name in misshapen]


def _of_pod(spec: dict[str, Any], allowed: DocumentPermissions) -> Iterator[str]:
    if spec.get("hostNetwork") and not allowed.host_network:
        yield _refusal("hostNetwork", True, "allowed.host_network: true")
    for name in _NEVER:
        if spec.get(name):
            yield _never(name, spec[name])
    # A null in place of the setting would mean that the token is mounted.
    if spec.get("automountServiceAccountToken", False) is not False and _TOKEN not in allowed.volumes:
        yield _refusal("automountServiceAccountToken", spec["automountServiceAccountToken"], f"allowed.volumes: [{_TOKEN}]")
    for name, instead in _INSTEAD.items():
        # A null in place of the scheduler's name would mean another scheduler.
        if name in spec:
            yield f"kubernetes.pod.{name}: {spec[name]!r} cannot be set in a document; {instead}"
    yield from _of_classes(spec, allowed)


def _of_classes(spec: dict[str, Any], allowed: DocumentPermissions) -> Iterator[str]:
    """Refuse accounts and classes unless the administrator lists them."""
    for name in ("serviceAccountName", "serviceAccount"):
        account = spec.get(name) or "default"
        if account not in allowed.service_accounts:
            yield _refusal(name, account, f"allowed.service_accounts: [{account}]")
    for name, listed, setting in (
        ("priorityClassName", allowed.priority_classes, "priority_classes"),
        ("runtimeClassName", allowed.runtime_classes, "runtime_classes"),
    ):
        if spec.get(name) and spec[name] not in listed:
            yield _refusal(name, spec[name], f"allowed.{setting}: [{spec[name]}]")


def _of_volumes(spec: dict[str, Any], allowed: DocumentPermissions, given: ReservedPodParts) -> Iterator[str]:
    for volume, place in _entries(spec, "volumes"):
        if volume is None:
            yield f"kubernetes.pod.{place}: is not a volume; write a mapping with a name"
            continue
        if _is_taken(str(volume.get("name")), given):
            yield f"kubernetes.pod.{place}: Fairway's own volumes have this name; take another"
        sources = {name: value for name, value in volume.items() if name != "name"}
        if not sources or not all(isinstance(value, dict) for value in sources.values()):
            yield f"kubernetes.pod.{place}: has no volume source; write for example emptyDir: {{}}"
            continue
        for kind, source in sources.items():
            yield from _of_source(f"{place}.{kind}", kind, source, allowed)
            if reaches_shared(kind, source, given):
                yield f"kubernetes.pod.{place}.{kind}: {_NOT_YOURS}"


def _of_source(place: str, kind: str, source: dict[str, Any], allowed: DocumentPermissions) -> Iterator[str]:
    if kind == "hostPath":
        path = str(source.get("path", ""))
        if not is_below(path, allowed.host_paths):
            yield _refusal(place, path, f"allowed.host_paths: [{path}]")
    elif kind not in HARMLESS and kind not in allowed.volumes:
        yield _refusal(place, kind, f"allowed.volumes: [{kind}]")
    if kind == "projected" and _TOKEN not in allowed.volumes:
        tokens = [item for item, _ in _entries(source, "sources") if item is not None and _TOKEN in item]
        if tokens:
            yield _refusal(f"{place}.sources", _TOKEN, f"allowed.volumes: [{_TOKEN}]")


def _is_taken(name: str, given: ReservedPodParts) -> bool:
    return name in given.volumes or name.startswith(OURS_BEGIN)


def reaches_shared(kind: str, source: Mapping[str, Any], given: ReservedPodParts) -> bool:
    """Whether a volume holds what does not belong to this run alone: other runs, environments, the operator's record."""
    for shared in given.shared:
        reserved = _mapping(shared.get(kind))
        if kind == "hostPath" and reserved:
            paths = (_folder(reserved.get("path")), _folder(source.get("path")))
            if _contains(*paths) or _contains(*reversed(paths)):
                return True
        fields = _TELLING.get(kind, ())
        if reserved and fields and all(reserved.get(name) == source.get(name) for name in fields):
            return True
        if reserved and kind not in ("hostPath", *_TELLING) and reserved == source:
            return True
    return False


def _folder(path: object) -> list[str]:
    """Return the components of a path, taken as absolute."""
    return [part for part in posixpath.normpath(f"/{path or ''}").split("/") if part]


def _contains(outer: list[str], inner: list[str]) -> bool:
    return inner[: len(outer)] == outer


def is_below(path: str, allowed: tuple[str, ...]) -> bool:
    """Whether a folder of a node is one of those allowed, or is in one of them."""
    parts = path.strip("/").split("/")
    if ".." in parts:
        return False
    return any(parts[: len(root)] == root for root in (folder.strip("/").split("/") for folder in allowed))


def _of_containers(spec: dict[str, Any], allowed: DocumentPermissions, given: ReservedPodParts) -> Iterator[str]:
    names = {str(volume.get("name")) for volume, _ in _entries(spec, "volumes") if volume is not None}
    for kind in _KINDS:
        for container, place in _entries(spec, kind):
            if container is None:
                yield f"kubernetes.pod.{place}: is not a container; write a mapping with a name"
                continue
            yield from _of_container(place, container, allowed)
            yield from _of_mounts(place, container, names, given)


def _of_mounts(place: str, container: dict[str, Any], own: set[str], given: ReservedPodParts) -> Iterator[str]:
    for mount in (*_list(container.get("volumeMounts")), *_list(container.get("volumeDevices"))):
        fields = _mapping(mount)
        name = str(fields.get("name"))
        if name not in own or _is_taken(name, given):
            yield f"kubernetes.pod.{place}.volumeMounts: {name!r} is not a volume of the document; mount one that it adds"
        path = _folder(fields.get("mountPath") or fields.get("devicePath"))
        over = next(
            (reserved for reserved in given.paths if _contains(path, _folder(reserved)) or _contains(_folder(reserved), path)), ""
        )
        if over:
            at = f"/{'/'.join(path)}"
            yield f"kubernetes.pod.{place}.volumeMounts: {at!r} covers {over}, which Fairway fills; use another path"


def _of_container(place: str, container: dict[str, Any], allowed: DocumentPermissions) -> Iterator[str]:
    context = _mapping(container.get("securityContext"))
    if context.get("privileged") or context.get("allowPrivilegeEscalation"):
        yield f"kubernetes.pod.{place}.securityContext: a privileged container is never allowed; take it out"
    for capability in _list(_mapping(context.get("capabilities")).get("add")):
        if capability not in allowed.capabilities:
            yield _refusal(f"{place}.securityContext.capabilities", capability, f"allowed.capabilities: [{capability}]")
    yield from _of_context(f"{place}.securityContext", context)
    if any(_mapping(port).get("hostPort") for port in _list(container.get("ports"))) and not allowed.host_network:
        yield _refusal(f"{place}.ports.hostPort", "set", "allowed.host_network: true")
    yield from _of_handlers(place, container)


def _of_context(place: str, context: dict[str, Any]) -> Iterator[str]:
    """Refuse settings that remove the isolation between containers and their node."""
    for name in ("seccompProfile", "appArmorProfile"):
        if _mapping(context.get(name)).get("type") == "Unconfined":
            yield _never(f"{place}.{name}", "Unconfined")
    if context.get("procMount", "Default") != "Default":
        yield _never(f"{place}.procMount", context["procMount"])
    for name in ("seLinuxOptions", "sysctls"):
        if context.get(name):
            yield _never(f"{place}.{name}", context[name])
    if _mapping(context.get("windowsOptions")).get("hostProcess"):
        yield _never(f"{place}.windowsOptions.hostProcess", True)


def _of_handlers(place: str, container: dict[str, Any]) -> Iterator[str]:
    """Refuse probes of other hosts: the node itself runs probes, and a document must not reach other hosts from there."""
    handlers = {name: _mapping(container.get(name)) for name in _HANDLERS}
    handlers |= {name: _mapping(_mapping(container.get("lifecycle")).get(name)) for name in ("postStart", "preStop")}
    for name, handler in handlers.items():
        for way in ("httpGet", "tcpSocket"):
            host = _mapping(handler.get(way)).get("host")
            if host:
                yield _never(f"{place}.{name}.{way}.host", host)


def _entries(spec: dict[str, Any], name: str) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yield the entries of a list, each with its place; None for an entry that is no mapping."""
    for at, entry in enumerate(_list(spec.get(name))):
        if isinstance(entry, dict):
            yield entry, f"{name}[{entry.get('name', at)}]"
        else:
            yield None, f"{name}[{at}]"


def _list(value: Any) -> list[Any]:
    """Return the value if it is a list; any other value counts as a single entry, which is then refused."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _refusal(place: str, value: object, setting: str) -> str:
    return f"kubernetes.pod.{place}: {value!r} is not allowed on this cluster; an administrator may set `{setting}`"


def _never(place: str, value: object) -> str:
    return f"kubernetes.pod.{place}: {value!r} is never allowed; take it out"
