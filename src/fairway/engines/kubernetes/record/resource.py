"""The resources of the record API, and the roles that allow requests for them. Pure.

The API server proxies everything under `/apis/record.fairway.dev`: it authenticates the caller, and checks that a role allows the
request. So everything here is a namespaced resource, and changes are made in the objects of `fairway.dev`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

GROUP = "record.fairway.dev"
VERSION = "v1alpha1"
ROOT = f"/apis/{GROUP}/{VERSION}"
SERVICE = "fairway-record"
"""The Service through which the API server reaches the operator."""

READ, WRITE, REMOVE = "read", "write", "remove"


@dataclass(frozen=True, slots=True)
class RecordResource:
    """A resource or subresource (`jobs/log`): its HTTP methods, each with its meaning."""

    name: str
    methods: Mapping[str, str]


def _part(name: str, **methods: str) -> RecordResource:
    return RecordResource(name, {method.upper(): meaning for method, meaning in methods.items()})


PARTS: tuple[RecordResource, ...] = (
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
"""All resources. The API server does not proxy anything else: for example routes that write files of the daemon's machine.

The operator never reads a path that a caller names: files of a model or a dataset are sent before, as `blobs` (see
`model.py`).
"""

_VERBS = {"GET": ("get", "list"), "POST": ("create",), "DELETE": ("delete",)}
"""The verbs of the API server by HTTP method."""


def meaning(resource: str, subresource: str, method: str) -> str:
    """Return the meaning of a request: `read`, `write` or `remove`; empty when there is no such resource."""
    name = f"{resource}/{subresource}" if subresource else resource
    return next((part.methods.get(method, "") for part in PARTS if part.name == name), "")


def rules(*meanings: str, only: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return RBAC rules that allow requests of these meanings, for all resources or for `only` some with their subresources."""
    by_verbs: dict[tuple[str, ...], list[str]] = {}
    for part in PARTS:
        if only and part.name.partition("/")[0] not in only:
            continue
        matching = [verb for method, means in part.methods.items() if means in meanings for verb in _VERBS[method]]
        if matching:
            by_verbs.setdefault(tuple(matching), []).append(part.name)
    return [{"apiGroups": [GROUP], "resources": names, "verbs": list(verbs)} for verbs, names in by_verbs.items()]


def resources() -> dict[str, Any]:
    """Return the discovery document of the version.

    No resource declares `delete` or `list`: controllers would list and delete it with its namespace. Behind it are objects of
    another group, which are deleted with the namespace anyway.
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
    """Return the discovery document of the group."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version}


def groups() -> dict[str, Any]:
    """Return the discovery document of all groups."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}
