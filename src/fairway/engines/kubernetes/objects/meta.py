"""Metadata of all objects, and types that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec


class ObjectPart(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """A part of an object; field names are converted to the API's camelCase."""


class OwnerReference(ObjectPart, frozen=True):
    """The owner of an object; when the owner is deleted, the object is deleted."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMetadata(ObjectPart, frozen=True):
    """Identity, labels and life cycle of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class KubernetesObject(ObjectPart, frozen=True):
    """Any object, with its metadata only."""

    metadata: ObjectMetadata = ObjectMetadata()


T = TypeVar("T", bound=KubernetesObject)


def key_of(thing: KubernetesObject) -> str:
    """Return `NAMESPACE/NAME`, or the name alone where there is no namespace: unique within a kind."""
    metadata = thing.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def owner_of(thing: KubernetesObject) -> OwnerReference | None:
    """Return the owner that controls the object; there is one at most."""
    return next((owner for owner in thing.metadata.owner_references if owner.controller), None)


class ObjectReference(ObjectPart, frozen=True):
    """A reference to another object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ObjectCondition(ObjectPart, frozen=True):
    """A condition that is true, false or unknown; since when, and why."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


def condition(conditions: tuple[ObjectCondition, ...], type_: str) -> ObjectCondition | None:
    """Return the condition of this type, if it is present."""
    return next((item for item in conditions if item.type == type_), None)


Manifest = Mapping[str, Any]
"""An object to be written: plain data with the API's field names."""
