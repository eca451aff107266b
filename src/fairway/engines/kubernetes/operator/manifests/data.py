"""The inputs of a run inside a pod: folders of nodes, claims, and references that are passed on as they are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairway.engines.kubernetes.operator.installation import Allowed
from fairway.engines.kubernetes.operator.policy import is_below

CLAIM = "pvc://"
ROOT = "/fairway/data"


@dataclass(slots=True)
class Inputs:
    """What pods get of a run's inputs."""

    values: dict[str, str] = field(default_factory=dict)
    """By name: a path inside the pod, or a reference."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What cannot be had, each with its place and the fix."""


def inputs(data: Mapping[str, str], allowed: Allowed) -> Inputs:
    """A folder is mounted from the node where policy allows it, a claim from its namespace; both to be read only."""
    found = Inputs()
    for name, value in data.items():
        if value.startswith(CLAIM):
            _claim(found, name, value)
        elif "://" in value:
            found.values[name] = value
        elif value.startswith("/"):
            _folder(found, name, value, allowed)
        else:
            fix = "name an absolute path that nodes have, pvc://CLAIM/PATH, or a URI"
            found.refused.append(f"data.{name}: {value!r} is on no node of the cluster; {fix}")
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
