"""The inputs of a run inside a pod: folders of nodes, claims, versions of the registry, and URIs that are passed on as they are.

Pure: `find` looks into the registry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairway.engines.kubernetes.operator.installation import Allowed
from fairway.engines.kubernetes.operator.policy import Taken, is_below, reaches_shared
from fairway.errors import FairwayError, NotFoundError

CLAIM = "pvc://"
MODEL = "model://"
ROOT = "/fairway/data"
FETCHED = "/fairway/fetched"
_VERSION = re.compile(r"([^@/:]+/)?[^@/:]+@[^@/:]+")


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the registry that an input names."""

    path: str = ""
    """Where the operator gives it; empty: it refers to what lies elsewhere."""
    inner: str = ""
    """The file that is meant, where the version is one file."""
    elsewhere: str = ""


Find = Callable[[str], Version]
"""What `model://mnist@3`, `rows@2` or `team-b/rows@2` means in a run's namespace. Raises `FairwayError` for what is not there."""


def nowhere(reference: str) -> Version:
    """Where there is no registry."""
    message = f"there is no registry here that could have {reference}"
    raise NotFoundError(message, fix="name a claim or a URI")


@dataclass(slots=True)
class Inputs:
    """What pods get of a run's inputs."""

    values: dict[str, str] = field(default_factory=dict)
    """By name: a path inside the pod, or a reference."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    fetched: list[tuple[str, str]] = field(default_factory=list)
    """What the operator gives, by path, and the folder for it."""
    filled: list[dict[str, Any]] = field(default_factory=list)
    """The mounts of whoever fetches it."""
    refused: list[str] = field(default_factory=list)
    """What cannot be had, each with its place and the fix."""


def versions_in(data: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The inputs that are versions of a registry: by place (`data.train`) the kind (`models`, `datasets`) and the reference."""
    found = {}
    for name, value in data.items():
        if value.startswith(MODEL):
            found[f"data.{name}"] = ("models", value.removeprefix(MODEL))
        elif _VERSION.fullmatch(value):
            found[f"data.{name}"] = ("datasets", value)
    return found


def inputs(data: Mapping[str, str], allowed: Allowed, find: Find = nowhere, given: Taken = Taken()) -> Inputs:
    """A folder is mounted from the node where policy allows it, a claim from its namespace, a version fetched; all read-only.

    `given`: what the installation gives pods; no input reaches what is shared with other runs.
    """
    found = Inputs()
    for name, value in data.items():
        if value.startswith(CLAIM):
            _claim(found, name, value)
        elif value.startswith(MODEL) or _VERSION.fullmatch(value):
            _version(found, name, value, find, allowed)
        elif "://" in value:
            found.values[name] = value
        elif value.startswith("/"):
            _folder(found, name, value, allowed)
        else:
            fix = "name an absolute path that nodes have, pvc://CLAIM/PATH, a version such as mnist@3, or a URI"
            found.refused.append(f"data.{name}: {value!r} is on no node of the cluster; {fix}")
    for volume in found.volumes:
        name = volume["name"].removeprefix("data-")
        if any(reaches_shared(kind, source, given) for kind, source in volume.items() if kind != "name"):
            words = "holds what belongs to other runs too; name another claim or folder, or a version of the registry"
            found.refused.append(f"data.{name}: {data[name]!r} {words}")
    return found


def _claim(found: Inputs, name: str, value: str) -> None:
    claim, _, path = value.removeprefix(CLAIM).partition("/")
    found.volumes.append({"name": f"data-{name}", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
    found.mounts.append({"name": f"data-{name}", "mountPath": f"{ROOT}/{name}", "readOnly": True})
    found.values[name] = f"{ROOT}/{name}/{path}".rstrip("/")


def _folder(found: Inputs, name: str, value: str, allowed: Allowed) -> None:
    if not is_below(value, allowed.host_paths):
        setting = f"allowed.host_paths: [{value}]"
        found.refused.append(f"data.{name}: {value!r} is not allowed on this cluster; an administrator may set `{setting}`")
        return
    found.volumes.append({"name": f"data-{name}", "hostPath": {"path": value}})
    found.mounts.append({"name": f"data-{name}", "mountPath": f"{ROOT}/{name}", "readOnly": True})
    found.values[name] = f"{ROOT}/{name}"


def _version(found: Inputs, name: str, value: str, find: Find, allowed: Allowed) -> None:
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
