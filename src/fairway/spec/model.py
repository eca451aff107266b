"""The base of every document model: frozen, strict about unknown fields, snake_case names with camelCase aliases.

The names are the flat spelling and the API; the aliases are the Kubernetes spelling.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from fairway.units import names, quantity


class SpecModel(BaseModel):
    """A part of a document. Attribute docstrings become descriptions in the schema and in the reference."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


def _checked(parse: object) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)  # type: ignore[operator]
        return text

    return AfterValidator(check)


Duration = Annotated[str, _checked(quantity.seconds)]
"""A length of time as text: `90s`, `5m`, `48h`, `30d`."""
Amount = Annotated[str, _checked(quantity.number)]
"""A countable amount as text: `1`, `0.25`, `500m`."""
Bytes = Annotated[str, _checked(quantity.byte_count)]
"""An amount of memory as text: `512Mi`, `2Gi`, `1G`."""
Name = Annotated[str, AfterValidator(names.check_name)]
"""A DNS label: lower-case letters, digits and dashes, at most 52 characters."""
VariableName = Annotated[str, AfterValidator(names.check_variable)]
"""The name of an environment variable."""
