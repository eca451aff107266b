"""Parameters of a request: a query or a JSON body, read field by field; errors contain name and value."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request

from fairway.errors import UsageError
from fairway.units import number as numbers

BODY_LIMIT = 16 << 20
VIEWS = ("ACTIVE_ONLY", "DELETED_ONLY", "ALL")
KEY_LIMIT, VALUE_LIMIT = 250, 8000
MODEL_LIMIT = 256
"""Maximum number of characters of the name of a registered model."""
_ENTITY = re.compile(r"[/\w.\- :]*")
_SHOWN = 300
_LATEST = 253_402_300_799
"""The last second of the year 9999."""


class MlflowParameters:
    """One object of a request."""

    def __init__(self, data: Mapping[str, Any], place: str = "") -> None:
        self._data = data
        self._place = place

    @classmethod
    async def of(cls, request: Request) -> MlflowParameters:
        """Return the query of a GET, the body of any other request."""
        if request.method == "GET":
            query = request.query_params
            return cls({key: values if len(values := query.getlist(key)) > 1 else values[0] for key in query})
        raw = bytearray()
        async for piece in request.stream():
            raw += piece
            if len(raw) > BODY_LIMIT:
                message = f"the body has more than {BODY_LIMIT >> 20} MiB"
                raise UsageError(message, fix="send less at once")
        try:
            data = msgspec.json.decode(bytes(raw) or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            message = f"the body is not JSON: {problem}"
            raise UsageError(message) from None
        if not isinstance(data, dict):
            message = "the body is not a JSON object"
            raise UsageError(message)
        return cls(data)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; without a default it is required."""
        value = self._data.get(name)
        if default is None and value in (None, ""):
            raise self.missing(name)
        if value is None:
            return default or ""
        if not isinstance(value, str):
            raise self.wrong(name, "it is not a string")
        return value

    def number(self, name: str, default: int = 0) -> int:
        """Return an integer; protocol buffers write large ones as strings."""
        value = self._data.get(name)
        if value is None:
            return default
        try:
            whole = int(value) if isinstance(value, str) else value
        except ValueError:
            whole = None
        number = numbers.int64(whole)
        if number is None:
            raise self.wrong(name, "it is not a 64-bit integer")
        return number

    def seconds(self, name: str) -> float:
        """Return a time in seconds since the epoch, which is sent in milliseconds; 0 if it is missing."""
        sent = self.number(name)
        if not 0 <= sent <= _LATEST * 1000:
            raise self.wrong(name, "it is not a time in milliseconds since 1970")
        return sent / 1000

    def moment(self, name: str) -> float:
        """Return a required time, as `seconds` does."""
        if not self.has(name):
            raise self.missing(name)
        return self.seconds(name)

    def real(self, name: str) -> float:
        """Return a number, including `"NaN"` and `"Infinity"`."""
        value = self._data.get(name)
        if value is None:
            raise self.missing(name)
        try:
            number = float(value) if isinstance(value, str) else numbers.real(value)
        except ValueError:
            number = None
        if number is None:
            raise self.wrong(name, "it is not a number")
        return number

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        value = self._data.get(name)
        if not isinstance(value, bool | None) and str(value).lower() not in ("true", "false"):
            raise self.wrong(name, "it is neither true nor false")
        return str(value).lower() == "true"

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        value = self._data.get(name) or []
        strings = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in strings):
            raise self.wrong(name, "it is not a list of strings")
        return strings

    def parts(self, name: str, most: int = 1000) -> list[MlflowParameters]:
        """Return a list of objects."""
        value = self._data.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(name, "it is not a list of objects")
        if len(value) > most:
            message = f"{self._place}{name} has {len(value)} entries, and one request can contain at most {most}"
            raise UsageError(message, fix="send them in several requests")
        return [MlflowParameters(item, f"{self._place}{name}[{number}].") for number, item in enumerate(value)]

    def part(self, name: str) -> MlflowParameters:
        """Return one object; an empty one if it is missing."""
        value = self._data.get(name) or {}
        if not isinstance(value, dict):
            raise self.wrong(name, "it is not an object")
        return MlflowParameters(value, f"{self._place}{name}.")

    def pairs(self, name: str, most: int = 1000, value_limit: int = VALUE_LIMIT) -> dict[str, str]:
        """Return `[{"key": ..., "value": ...}]` as a mapping."""
        return dict(item.pair(value_limit) for item in self.parts(name, most))

    def pair(self, value_limit: int = VALUE_LIMIT) -> tuple[str, str]:
        """Return `key` and `value`, the name and the value of a tag or a parameter."""
        return self.entity("key"), self.value("value", value_limit)

    def entity(self, name: str) -> str:
        """Return a name of a metric, a parameter or a tag, which as a path must not denote another name."""
        entity_name = self.key(name)
        if not _ENTITY.fullmatch(entity_name):
            raise self.wrong(name, "a name has letters, digits, spaces and the marks _ - . : / only")
        if posixpath.normpath(entity_name) != entity_name or entity_name == "." or entity_name.startswith(("..", "/")):
            raise self.wrong(name, "as a path it would mean another name")
        return entity_name

    def key(self, name: str, most: int = KEY_LIMIT) -> str:
        """Return a name of one line."""
        text = self.text(name)
        if len(text) > most:
            message = f"'{self._place}{name}' exceeds the maximum length of {most} characters"
            raise UsageError(message, fix="choose a shorter one")
        if any(ord(letter) < 32 for letter in text):
            raise self.wrong(name, "it has characters that cannot be printed")
        return text

    def value(self, name: str, limit: int = VALUE_LIMIT) -> str:
        """Return the value of a parameter or a tag."""
        text = self.text(name, "")
        if len(text) > limit:
            message = f"'{self._place}{name}' exceeds the maximum length of {limit} characters: it has {len(text)}"
            raise UsageError(message, fix="keep it in a file as an artifact")
        return text

    def has(self, name: str) -> bool:
        """Return whether the field is present."""
        return self._data.get(name) is not None

    def plain(self) -> Mapping[str, Any]:
        """Return the whole object, unparsed."""
        return self._data

    def missing(self, name: str) -> UsageError:
        """Return the error for a missing field."""
        return UsageError(f"Missing value for required parameter '{self._place}{name}'", fix="see the REST API of MLflow")

    def wrong(self, name: str, why: str) -> UsageError:
        """Return the error for an invalid value of a field."""
        text = json.dumps(self._data.get(name), separators=(",", ":"), sort_keys=True, default=str)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return UsageError(f"Invalid value {shown} for parameter '{self._place}{name}' supplied: {why}")


def run_id(fields: MlflowParameters) -> str:
    """Return the run's id: newer and older clients use different names for it, and send both."""
    value = fields.text("run_id", "") or fields.text("run_uuid", "")
    if not value:
        raise fields.missing("run_id")
    return value


def is_viewed(view: str, deleted: bool) -> bool:
    """Return whether a view includes deleted, or active, objects."""
    return view == "ALL" or deleted == (view == "DELETED_ONLY")


def one_of(fields: MlflowParameters, name: str, choices: Sequence[str]) -> str:
    """Return a string that must be one of `choices`; empty if it is missing."""
    word = fields.text(name, "")
    if word and word not in choices:
        raise fields.wrong(name, f"use one of {', '.join(choices)}")
    return word
