"""What the models say about their fields, in the few words that reading, writing and schemas need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.alias_generators import to_camel

from fairway.spec.model import SpecModel


class Kind(Enum):
    """What a field holds."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    LIST = "list"
    MAP = "map"
    MODEL = "model"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a field."""

    kind: Kind
    item: Shape | None = None
    """What a list or a map holds."""
    model: type[SpecModel] | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a model."""

    name: str
    """In the flat spelling."""
    alias: str
    """In the Kubernetes spelling."""
    shape: Shape


@cache
def fields_of(model: type[SpecModel]) -> Mapping[str, Field]:
    """The fields of a model by flat name, in order."""
    found = {
        flat_name(name): Field(flat_name(name), info.alias or to_camel(name), shape_of(info.annotation))
        for name, info in model.model_fields.items()
    }
    return MappingProxyType(found)


def flat_name(attribute: str) -> str:
    """A field's name in the flat spelling: `for`, which Python wants to be called `for_`."""
    return attribute.removesuffix("_")


def shape_of(annotation: object) -> Shape:
    """The shape that an annotation stands for; an optional field has the shape of what it holds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return shape_of(arguments[0])
    if origin in (Union, UnionType):
        return shape_of(next(one for one in arguments if one is not NoneType))
    if origin is dict:
        return Shape(Kind.ANY) if arguments[1] is Any else Shape(Kind.MAP, item=shape_of(arguments[1]))
    if origin is tuple:
        return Shape(Kind.LIST, item=shape_of(arguments[0]))
    if origin is Literal or annotation is str:
        return Shape(Kind.TEXT)
    if isinstance(annotation, type):
        if issubclass(annotation, SpecModel):
            return Shape(Kind.MODEL, model=annotation)
        for type_, kind in ((StrEnum, Kind.TEXT), (bool, Kind.BOOLEAN), (int, Kind.INTEGER)):
            if issubclass(annotation, type_):
                return Shape(kind)
    message = f"{annotation!r} is no type that a document field may have"
    raise TypeError(message)


@cache
def homes(model: type[SpecModel], *, flat: bool) -> Mapping[str, str]:
    """Where each field name of a document lives, in words: `gpu` lives "in `resources`". The shallowest home wins."""
    found: dict[str, str] = {}
    level = [(Shape(Kind.MODEL, model=model), "at the top level")]
    while level:
        below = []
        for shape, home in level:
            inner = shape.item or shape
            for field in fields_of(inner.model).values() if inner.model else ():
                name = field.name if flat else field.alias
                found.setdefault(name, home)
                below.append(
                    (
                        field.shape,
                        home if flat and name in ("metadata", "spec") else "in a role" if name == "roles" else f"in `{name}`",
                    )
                )
        level = below
    return MappingProxyType(found)
