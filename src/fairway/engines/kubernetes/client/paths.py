"""Where a resource lives in the API: pure, from a resource, a namespace and a name to the path of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from fairway.engines.kubernetes.objects import Manifest

Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class Resource(Generic[Model]):
    """One kind of object: where it lives, and as what it is read."""

    model: type[Model]
    """As what it is decoded; `dict` for plain data."""
    group: str
    """Empty for the oldest kinds."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What objects say as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """The path of all of them, in one namespace or in the whole cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{segment(namespace)}" if namespace and self.namespaced else ""
        return f"{root}{middle}/{self.plural}"

    def one(self, name: str, namespace: str = "", subresource: str = "") -> str:
        """The path of one of them, or of a part of it such as `status`."""
        if not name:
            message = f"a {self.kind} without a name has no path"
            raise ValueError(message)
        if self.namespaced and not namespace:
            message = f"the {self.kind} {name!r} lies in a namespace, and none is given"
            raise ValueError(message)
        path = f"{self.collection(namespace)}/{segment(name)}"
        return f"{path}/{subresource}" if subresource else path

    def named(self, name: str, namespace: str = "") -> str:
        """`Pod team/train-0`: for people."""
        return f"{self.kind} {namespace}/{name}" if namespace and self.namespaced else f"{self.kind} {name}"


def part(resource: Resource[Any], subresource: str = "") -> str:
    """`pods`, `pods/status`: as rules of access name it."""
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def segment(name: str) -> str:
    """A name as one part of a path: it can lead nowhere else."""
    if name in (".", ".."):
        message = f"{name!r} is no name of an object"
        raise ValueError(message)
    return quote(name, safe="")


def query(**parts: str | int | bool | None) -> str:
    """`?a=b&c=d` of what is given; camelCase as the API has it, nothing when all is empty."""
    given = {name: _text(value) for name, value in parts.items() if value is not None and value is not False and value != ""}
    return f"?{urlencode(given)}" if given else ""


def _text(value: str | int | bool | None) -> str:
    return "true" if value is True else str(value)


def place_of(manifest: Manifest) -> tuple[str, str, str, str]:
    """What a manifest says of itself: apiVersion, kind, namespace, name."""
    metadata: Mapping[str, Any] = manifest.get("metadata") or {}
    found = (manifest.get("apiVersion"), manifest.get("kind"), metadata.get("namespace", ""), metadata.get("name"))
    for field, value in zip(("apiVersion", "kind", "metadata.namespace", "metadata.name"), found, strict=True):
        if not isinstance(value, str) or (not value and field != "metadata.namespace"):
            message = f"the manifest has no {field}: {str(dict(manifest))[:200]}"
            raise ValueError(message)
    api_version, kind, namespace, name = map(str, found)
    return api_version, kind, namespace, name


def discovered(api_version: str, listed: Mapping[str, Any]) -> dict[str, Resource[dict[str, Any]]]:
    """The resources of one group and version by kind, from what discovery lists. Subresources (with a slash) are none."""
    group, _, version = api_version.rpartition("/")
    return {
        one["kind"]: Resource(dict, group, version, one["name"], one["kind"], bool(one.get("namespaced")))
        for one in listed.get("resources", ())
        if "/" not in one["name"]
    }


def discovery_path(api_version: str) -> str:
    """Where a group and version lists its resources."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
