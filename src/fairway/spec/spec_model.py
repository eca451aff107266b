"""Base class and field types of all document models.

Models are frozen and strict about unknown fields; they have snake_case names with camelCase aliases. The names are the flat
spelling and the API; the aliases are the Kubernetes spelling.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from fairway.spec import condition
from fairway.units import names, quantity, suggestion


class SpecModel(BaseModel):
    """Base class of document models. Attribute docstrings become descriptions in the schema and in the reference."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


def _checked(parse: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def _retention(text: str) -> None:
    if text == "forever":
        return
    try:
        quantity.seconds(text)
    except ValueError:
        message = "is neither a length of time nor `forever`; write for example 30d or forever"
        raise ValueError(message) from None


def _time_slice(text: str) -> None:
    if text == "never":
        return
    message = "is neither a length of time nor `never`; write for example 1h or never"
    try:
        if quantity.seconds(text) > 0:
            return
    except ValueError:
        raise ValueError(message) from None
    raise ValueError(message)


def _member(text: str) -> None:
    kind, mark, name = text.partition(":")
    if text == "*" or (mark and kind in ("user", "group") and _ACCOUNT.fullmatch(name)):
        return
    meant = suggestion.nearest(kind, ("user", "group")) if mark else "user"
    plain = (name if mark else text).strip()
    fix = f"write {meant or 'user'}:{plain}" if _ACCOUNT.fullmatch(plain) else "write for example user:ann or group:nlp"
    message = f"is not a member: members are user:NAME, group:NAME or *; {fix}"
    raise ValueError(message)


def _gpu_type(text: str) -> None:
    if not text.strip():
        message = "is not a GPU type; write for example A100"
        raise ValueError(message)


def _shared_memory(text: str) -> None:
    if text == "auto":
        return
    try:
        quantity.byte_count(text)
    except ValueError:
        message = "is neither an amount of memory nor `auto`; write for example 1Gi or auto"
        raise ValueError(message) from None


def _model_reference(text: str) -> None:
    model, mark, version = text.partition("@")
    namespace, inside, name = model.rpartition("/")
    named = _MODEL.fullmatch(name) and (_NAMESPACE.fullmatch(namespace) or not inside)
    if not text or (named and (_MODEL_VERSION.fullmatch(version) or not mark)):
        return
    message = "is not a model name: write for example mnist, mnist@7 or mnist@champion (from another namespace: team-a/mnist@7)"
    raise ValueError(message)


def _pattern(text: str) -> None:
    try:
        with warnings.catch_warnings():
            # An unusual pattern may still be right, and the user would not see Python's warnings.
            warnings.simplefilter("ignore")
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        message = f"is not a regular expression: {error}; correct it, or put it in single quotes"
        raise ValueError(message) from None


def _like(pattern: str, **more: int) -> FieldInfo:
    """Return a field with the pattern for JSON Schema, used by editors and Kubernetes; the validator does the actual check."""
    info: FieldInfo = Field(json_schema_extra={"pattern": f"^{pattern}$", **more})
    return info


_NUMBER = r"([0-9]+(\.[0-9]+)?|\.[0-9]+)"
_TIME = rf"(({_NUMBER}(ms|s|m|h|d|w))+|{_NUMBER})"
_MEMORY = rf"{_NUMBER}([kKMGTP]|[KMGTP]i|[KMGT]i?B)?"

_MODEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_MODEL_VERSION = re.compile(r"[1-9][0-9]*|[A-Za-z_][A-Za-z0-9_-]*")
_ACCOUNT = re.compile(r"[^\s:,]+")

Duration = Annotated[str, _checked(quantity.seconds), _like(_TIME)]
"""A length of time as text: `90s`, `5m`, `48h`, `30d`."""
Retention = Annotated[str, _checked(_retention), _like(f"({_TIME}|forever)")]
"""A length of time as text, or `forever`."""
TimeSlice = Annotated[str, _checked(_time_slice), _like(f"({_TIME}|never)")]
"""A length of time as text, or `never`."""
Amount = Annotated[str, _checked(quantity.number), _like(f"{_NUMBER}[mk]?")]
"""A countable amount as text: `1`, `0.25`, `500m`."""
Bytes = Annotated[str, _checked(quantity.byte_count), _like(_MEMORY)]
"""An amount of memory as text: `512Mi`, `2Gi`, `1G`."""
SharedMemory = Annotated[str, _checked(_shared_memory), _like(f"({_MEMORY}|auto)")]
"""An amount of memory as text, or `auto`."""
GpuType = Annotated[str, _checked(_gpu_type), _like(r".*\S.*")]
"""A GPU type as reported by the device probe: `A100`."""
Member = Annotated[str, _checked(_member), _like(r"(\*|(user|group):[^\s:,]+)")]
"""A member: `user:ann`, `group:nlp`, or `*` for all users."""
Name = Annotated[str, AfterValidator(names.check_name), _like("[a-z]([a-z0-9-]*[a-z0-9])?", maxLength=names.NAME_LIMIT)]
"""A DNS label: lower-case letters, digits and dashes, at most 52 characters."""
VariableName = Annotated[str, AfterValidator(names.check_variable), _like("[A-Za-z_][A-Za-z0-9_]*")]
"""The name of an environment variable."""
Percent = Annotated[str, _checked(quantity.percent), _like(rf"({_NUMBER}%|0?\.[0-9]+|[01])")]
"""A fraction as text: `5%`, `0.05`."""
ModelReference = Annotated[str, _checked(_model_reference)]
"""A model version: `mnist`, `mnist@7`, `mnist@champion`."""
LinePattern = Annotated[str, _checked(_pattern)]
"""A regular expression."""
StopCondition = Annotated[str, _checked(lambda text: condition.parse(text) if text else None)]
"""A condition over metrics, or an empty text."""
