"""The record as a cluster's API serves it: its group, what is in it, and who may ask for what. Pure.

The API server passes on what is under `/apis/record.fairway.dev`: it knows the caller, and whether a role lets the caller do
this. So everything here is a resource of a namespace, and what is changed is changed in the objects of `fairway.dev`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

GROUP = "record.fairway.dev"
VERSION = "v1alpha1"
ROOT = f"/apis/{GROUP}/{VERSION}"
SERVICE = "fairway-record"
"""The Service that leads the API server to the operator."""

READ, WRITE, REMOVE = "read", "write", "remove"


@dataclass(frozen=True, slots=True)
class Part:
    """What may be asked of one resource, or of a part of one (`jobs/log`): HTTP methods by what they mean."""

    name: str
    methods: Mapping[str, str]


def _part(name: str, **methods: str) -> Part:
    return Part(name, {method.upper(): meaning for method, meaning in methods.items()})


PARTS: tuple[Part, ...] = (
    _part("jobs", get=READ, post=WRITE, delete=WRITE),
    *(_part(f"jobs/{name}", get=READ) for name in ("log", "events", "why", "metrics", "top")),
    *(_part(f"jobs/{name}", post=WRITE) for name in ("stop", "resume")),
    _part("services", get=READ, post=WRITE, delete=WRITE),
    *(_part(f"services/{name}", get=READ) for name in ("log", "events", "why", "top", "settled")),
    _part("services/scale", post=WRITE),
    _part("services/keys", get=READ, post=WRITE, delete=WRITE),
    _part("services/rollout", get=READ, post=WRITE),
    _part("models", get=READ, post=WRITE, delete=REMOVE),
    *(_part(f"models/{name}", get=READ) for name in ("diff", "events", "log")),
    *(_part(f"models/{name}", post=WRITE) for name in ("promote", "tags")),
    _part("datasets", get=READ, post=WRITE, delete=REMOVE),
    *(_part(f"datasets/{name}", get=READ) for name in ("diff", "events", "log")),
    _part("queues", get=READ, delete=WRITE),
    *(_part(name, get=READ) for name in ("events", "nodes", "top", "health", "schema")),
    *(_part(name, post=WRITE) for name in ("apply", "code", "blobs")),
    _part("render", post=READ),
)
"""All of it. What is not here is not passed on: routes that write files of the daemon's machine, for example.

No path that a caller names is read there: what becomes a model or a dataset was sent before, as `blobs` (see `registering.py`).
"""

_VERBS = {"GET": ("get", "list"), "POST": ("create",), "DELETE": ("delete",)}
"""What the API server calls a request, by its method."""


def meaning(resource: str, subresource: str, method: str) -> str:
    """What a request means: `read`, `write` or `remove`; empty when there is no such thing."""
    name = f"{resource}/{subresource}" if subresource else resource
    return next((part.methods.get(method, "") for part in PARTS if part.name == name), "")


def rules(*meanings: str, only: Collection[str] = ()) -> list[dict[str, Any]]:
    """What a role must say to allow requests of these meanings, of all resources or `only` of some with their parts."""
    found: dict[tuple[str, ...], list[str]] = {}
    for part in PARTS:
        if only and part.name.partition("/")[0] not in only:
            continue
        asked = [verb for method, means in part.methods.items() if means in meanings for verb in _VERBS[method]]
        if asked:
            found.setdefault(tuple(asked), []).append(part.name)
    return [{"apiGroups": [GROUP], "resources": names, "verbs": list(verbs)} for verbs, names in found.items()]


def resources() -> dict[str, Any]:
    """What discovery answers for the version.

    No resource is said to have `delete` or `list`: controllers would list and delete them with their namespace, and what they
    would delete are objects of another group, which go by themselves.
    """
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {
                "name": part.name,
                "singularName": "" if "/" in part.name else part.name.removesuffix("s"),
                "namespaced": True,
                "kind": "Record",
                "verbs": [verb for method in part.methods for verb in _VERBS[method] if verb not in ("delete", "list")],
            }
            for part in PARTS
        ],
    }


def group() -> dict[str, Any]:
    """What discovery answers for the group."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version}


def groups() -> dict[str, Any]:
    """What discovery answers for all groups."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}
