"""The inputs of a run inside a pod: folders of nodes, claims, versions of the registry, and URIs that are passed on unchanged.

Pure: `find` queries the registry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairway.engines.kubernetes.operator.installation import DocumentPermissions
from fairway.engines.kubernetes.operator.pod.policy import ReservedPodParts, is_below, reaches_shared
from fairway.errors import FairwayError, NotFoundError

CLAIM = "pvc://"
MODEL = "model://"
ROOT = "/fairway/data"
FETCHED = "/fairway/fetched"
_VERSION = re.compile(r"([^@/:]+/)?[^@/:]+@[^@/:]+")


@dataclass(frozen=True, slots=True)
class InputVersion:
    """A version of the registry that an input names."""

    path: str = ""
    """The path under which the operator serves it; empty when the version refers to a location elsewhere."""
    inner: str = ""
    """The file name, where the version is a single file."""
    elsewhere: str = ""


Find = Callable[[str], InputVersion]
"""Resolves `model://mnist@3`, `rows@2` or `team-b/rows@2` in a run's namespace. Raises `FairwayError` when there is none."""


def nowhere(reference: str) -> InputVersion:
    """Refuse a reference, where there is no registry."""
    message = f"no registry is available to look up {reference}"
    raise NotFoundError(message, fix="name a claim or a URI")


@dataclass(slots=True)
class PodInputs:
    """The values, volumes and mounts of a run's inputs."""

    values: dict[str, str] = field(default_factory=dict)
    """By name: a path inside the pod, or a reference."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    fetched: list[tuple[str, str]] = field(default_factory=list)
    """What to fetch from the operator: the path there and the folder in the pod."""
    filled: list[dict[str, Any]] = field(default_factory=list)
    """The mounts of the container that fetches it."""
    refused: list[str] = field(default_factory=list)
    """Inputs that are refused, each with its place in the document and the fix."""


def versions_in(data: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the inputs that are versions of a registry, by their place in the document.

    A place is a text such as `data.train`; the values are the kind (`models`, `datasets`) and the reference.
    """
    versions = {}
    for name, value in data.items():
        if value.startswith(MODEL):
            versions[f"data.{name}"] = ("models", value.removeprefix(MODEL))
        elif _VERSION.fullmatch(value):
            versions[f"data.{name}"] = ("datasets", value)
    return versions


def inputs(
    data: Mapping[str, str], allowed: DocumentPermissions, find: Find = nowhere, given: ReservedPodParts = ReservedPodParts()
) -> PodInputs:
    """Mount folders of the node where the policy allows it and claims of the namespace, and fetch versions; all read-only.

    `given`: what the installation gives to pods; no input may reach what is shared with other runs.
    """
    result = PodInputs()
    for name, value in data.items():
        if value.startswith(CLAIM):
            _claim(result, name, value)
        elif value.startswith(MODEL) or _VERSION.fullmatch(value):
            _version(result, name, value, find, allowed)
        elif "://" in value:
            result.values[name] = value
        elif value.startswith("/"):
            _folder(result, name, value, allowed)
        else:
            fix = "name an absolute path that nodes have, pvc://CLAIM/PATH, a version such as mnist@3, or a URI"
            result.refused.append(f"data.{name}: {value!r} is not on the nodes of the cluster; {fix}")
    for volume in result.volumes:
        name = volume["name"].removeprefix("data-")
        if any(reaches_shared(kind, source, given) for kind, source in volume.items() if kind != "name"):
            words = "also holds data of other runs; name another claim or folder, or a version of the registry"
            result.refused.append(f"data.{name}: {data[name]!r} {words}")
    return result


def _claim(found: PodInputs, name: str, value: str) -> None:
    claim, _, path = value.removeprefix(CLAIM).partition("/")
    found.volumes.append({"name": f"data-{name}", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
    found.mounts.append({"name": f"data-{name}", "mountPath": f"{ROOT}/{name}", "readOnly": True})
    found.values[name] = f"{ROOT}/{name}/{path}".rstrip("/")


def _folder(found: PodInputs, name: str, value: str, allowed: DocumentPermissions) -> None:
    if not is_below(value, allowed.host_paths):
        setting = f"allowed.host_paths: [{value}]"
        found.refused.append(f"data.{name}: {value!r} is not allowed on this cluster; an administrator may set `{setting}`")
        return
    found.volumes.append({"name": f"data-{name}", "hostPath": {"path": value}})
    found.mounts.append({"name": f"data-{name}", "mountPath": f"{ROOT}/{name}", "readOnly": True})
    found.values[name] = f"{ROOT}/{name}"


def _version(found: PodInputs, name: str, value: str, find: Find, allowed: DocumentPermissions) -> None:
    try:
        version = find(value)
    except FairwayError as error:
        found.refused.append(f"data.{name}: {error.message}; {error.fix}")
        return
    if version.elsewhere.startswith("/"):
        _folder(found, name, version.elsewhere, allowed)
        return
    if version.elsewhere:
        found.values[name] = version.elsewhere
        return
    volume = {"name": "fetched", "emptyDir": {}}
    if volume not in found.volumes:
        found.volumes.append(volume)
        found.mounts.append({"name": "fetched", "mountPath": FETCHED, "readOnly": True})
        found.filled.append({"name": "fetched", "mountPath": FETCHED})
    found.fetched.append((version.path, f"{FETCHED}/{name}"))
    found.values[name] = f"{FETCHED}/{name}/{version.inner}".rstrip("/")
