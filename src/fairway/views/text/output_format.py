"""The output formats: `-o json|yaml|name|table|wide`. JSON keys are those of the API."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec
import yaml


class OutputFormat(StrEnum):
    """The format of a reply."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"
    WIDE = "wide"
    NAME = "name"


def to_json(view: object, *, pretty: bool = False) -> bytes:
    """Encode a view as JSON; values that are not numbers become null."""
    data = msgspec.json.encode(view)
    return msgspec.json.format(data, indent=2) + b"\n" if pretty else data


def to_yaml(view: object) -> str:
    """Encode a view as YAML, with keys in the order of the view and multi-line texts as blocks."""
    plain = msgspec.json.decode(msgspec.json.encode(view))
    return str(yaml.dump(plain, Dumper=_ViewDumper, sort_keys=False, allow_unicode=True, width=120))


def names(found: Iterable[str]) -> str:
    """Return one name per line, for pipes."""
    return "".join(f"{name}\n" for name in found)


# The C dumper is ten times as fast, if PyYAML was built with it.
_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _ViewDumper(_Base):  # type: ignore[misc]
    """Writes YAML as a person would."""


def _text(dumper: Any, value: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_ViewDumper.add_representer(str, _text)
