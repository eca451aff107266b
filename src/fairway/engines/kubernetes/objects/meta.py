"""The head that every object has, and what several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec


class Part(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """A part of an object, in the API's own spelling."""


class OwnerReference(Part, frozen=True):
    """Whose child an object is; when the owner goes, it goes."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Part, frozen=True):
    """Who an object is."""

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


class Thing(Part, frozen=True):
    """Any object, known by its metadata alone."""

    metadata: Metadata = Metadata()


T = TypeVar("T", bound=Thing)


def key_of(thing: Thing) -> str:
    """`NAMESPACE/NAME`, or the name alone where there is no namespace: unique within a kind."""
    metadata = thing.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def owner_of(thing: Thing) -> OwnerReference | None:
    """The one owner that controls it."""
    return next((owner for owner in thing.metadata.owner_references if owner.controller), None)


class ObjectReference(Part, frozen=True):
    """Which object something is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Condition(Part, frozen=True):
    """One thing that is so, or not, or not known; since when, and why."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


def condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of this type, if it is told."""
    return next((one for one in conditions if one.type == type_), None)


Manifest = Mapping[str, Any]
"""An object to be written: plain data in the API's spelling."""
