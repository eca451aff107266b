"""Fields of the models, reduced to the types that reading, writing and schemas need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.alias_generators import to_camel

from fairway.spec.spec_model import SpecModel


class FieldKind(Enum):
    """Kind of value that a field holds."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    LIST = "list"
    MAP = "map"
    MODEL = "model"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class FieldShape:
    """The type of a field."""

    kind: FieldKind
    item: FieldShape | None = None
    """The shape of the items of a list or the values of a map."""
    model: type[SpecModel] | None = None


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of a model."""

    name: str
    """Name in the flat spelling."""
    alias: str
    """Name in the Kubernetes spelling."""
    shape: FieldShape


@cache
def fields_of(model: type[SpecModel]) -> Mapping[str, SpecField]:
    """Return the fields of a model by flat name, in order."""
    result = {
        flat_name(name): SpecField(flat_name(name), info.alias or to_camel(name), shape_of(info.annotation))
        for name, info in model.model_fields.items()
    }
    return MappingProxyType(result)


def flat_name(attribute: str) -> str:
    """Return the flat name of an attribute: `for` for `for_`, the name that Python requires."""
    return attribute.removesuffix("_")


def shape_of(annotation: object) -> FieldShape:
    """Return the shape of an annotation; an optional field has the shape of its value."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return shape_of(arguments[0])
    if origin in (Union, UnionType):
        return shape_of(next(argument for argument in arguments if argument is not NoneType))
    if origin is dict:
        return FieldShape(FieldKind.ANY) if arguments[1] is Any else FieldShape(FieldKind.MAP, item=shape_of(arguments[1]))
    if origin is tuple:
        return FieldShape(FieldKind.LIST, item=shape_of(arguments[0]))
    if origin is Literal or annotation is str:
        return FieldShape(FieldKind.TEXT)
    if isinstance(annotation, type):
        if issubclass(annotation, SpecModel):
            return FieldShape(FieldKind.MODEL, model=annotation)
        for type_, kind in ((StrEnum, FieldKind.TEXT), (bool, FieldKind.BOOLEAN), (int, FieldKind.INTEGER)):
            if issubclass(annotation, type_):
                return FieldShape(kind)
    message = f"{annotation!r} is not a type that a document field can have"
    raise TypeError(message)


@cache
def homes(model: type[SpecModel], *, flat: bool) -> Mapping[str, str]:
    """Return where each field name of a document belongs, in words: `gpu` belongs "in `resources`".

    If a name exists at several levels, the shallowest wins.
    """
    home_of: dict[str, str] = {}
    level = [(FieldShape(FieldKind.MODEL, model=model), "at the top level")]
    while level:
        below = []
        for shape, home in level:
            inner = shape.item or shape
            for field in fields_of(inner.model).values() if inner.model else ():
                name = field.name if flat else field.alias
                home_of.setdefault(name, home)
                below.append(
                    (
                        field.shape,
                        home if flat and name in ("metadata", "spec") else "in a role" if name == "roles" else f"in `{name}`",
                    )
                )
        level = below
    return MappingProxyType(home_of)
