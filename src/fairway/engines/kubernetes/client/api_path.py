"""API paths of resources. Pure: from a resource, a namespace and a name to the path of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from fairway.engines.kubernetes.objects import Manifest

Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class ApiResource(Generic[Model]):
    """A kind of object: its path, and the type as which it is decoded."""

    model: type[Model]
    """The type as which objects are decoded; `dict` for plain data."""
    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """Return the path of all objects, in one namespace or in the whole cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{segment(namespace)}" if namespace and self.namespaced else ""
        return f"{root}{middle}/{self.plural}"

    def one(self, name: str, namespace: str = "", subresource: str = "") -> str:
        """Return the path of an object, or of a subresource such as `status`."""
        if not name:
            message = f"a {self.kind} without a name has no path"
            raise ValueError(message)
        if self.namespaced and not namespace:
            message = f"the {self.kind} {name!r} is in a namespace, and none is given"
            raise ValueError(message)
        path = f"{self.collection(namespace)}/{segment(name)}"
        return f"{path}/{subresource}" if subresource else path

    def named(self, name: str, namespace: str = "") -> str:
        """Return the name for messages: `Pod team/train-0`."""
        return f"{self.kind} {namespace}/{name}" if namespace and self.namespaced else f"{self.kind} {name}"


def part(resource: ApiResource[Any], subresource: str = "") -> str:
    """Return `pods` or `pods/status`, as RBAC rules name it."""
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def segment(name: str) -> str:
    """Return a name quoted as a single segment of a path, so that it cannot reach another path."""
    if name in (".", ".."):
        message = f"{name!r} is not the name of an object"
        raise ValueError(message)
    return quote(name, safe="")


def query(**parts: str | int | bool | None) -> str:
    """Return `?a=b&c=d` of the non-empty values, with names in the API's camelCase; empty when there are none."""
    texts = {name: _text(value) for name, value in parts.items() if value is not None and value is not False and value != ""}
    return f"?{urlencode(texts)}" if texts else ""


def _text(value: str | int | bool | None) -> str:
    return "true" if value is True else str(value)


def place_of(manifest: Manifest) -> tuple[str, str, str, str]:
    """Return a manifest's apiVersion, kind, namespace and name."""
    metadata: Mapping[str, Any] = manifest.get("metadata") or {}
    fields = (manifest.get("apiVersion"), manifest.get("kind"), metadata.get("namespace", ""), metadata.get("name"))
    for field, value in zip(("apiVersion", "kind", "metadata.namespace", "metadata.name"), fields, strict=True):
        if not isinstance(value, str) or (not value and field != "metadata.namespace"):
            message = f"the manifest has no {field}: {str(dict(manifest))[:200]}"
            raise ValueError(message)
    api_version, kind, namespace, name = map(str, fields)
    return api_version, kind, namespace, name


def discovered(api_version: str, listed: Mapping[str, Any]) -> dict[str, ApiResource[dict[str, Any]]]:
    """Return the resources of one group and version by kind, from a discovery response.

    Subresources (with a slash) are left out.
    """
    group, _, version = api_version.rpartition("/")
    return {
        entry["kind"]: ApiResource(dict, group, version, entry["name"], entry["kind"], bool(entry.get("namespaced")))
        for entry in listed.get("resources", ())
        if "/" not in entry["name"]
    }


def discovery_path(api_version: str) -> str:
    """Return the discovery path of a group and version."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
