"""What a request says: a query or a JSON body, read field by field; what is wrong is told by name and value."""

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
"""Characters of the name of a registered model."""
_ENTITY = re.compile(r"[/\w.\- :]*")
_SHOWN = 300
_LATEST = 253_402_300_799
"""The last second of the year 9999."""


class Fields:
    """One object of a request."""

    def __init__(self, data: Mapping[str, Any], place: str = "") -> None:
        self._data = data
        self._place = place

    @classmethod
    async def of(cls, request: Request) -> Fields:
        """The query of a GET, the body of anything else."""
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
            message = f"the body is no JSON: {problem}"
            raise UsageError(message) from None
        if not isinstance(data, dict):
            message = "the body is no JSON object"
            raise UsageError(message)
        return cls(data)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it must be there."""
        found = self._data.get(name)
        if default is None and found in (None, ""):
            raise self.missing(name)
        if found is None:
            return default or ""
        if not isinstance(found, str):
            raise self.wrong(name, "it is no text")
        return found

    def number(self, name: str, default: int = 0) -> int:
        """A whole number; protocol buffers write large ones as text."""
        found = self._data.get(name)
        if found is None:
            return default
        try:
            whole = int(found) if isinstance(found, str) else found
        except ValueError:
            whole = None
        number = numbers.int64(whole)
        if number is None:
            raise self.wrong(name, "it is no whole number of 64 bits")
        return number

    def seconds(self, name: str) -> float:
        """A time, sent in milliseconds, in seconds since the epoch; 0 when it is missing."""
        sent = self.number(name)
        if not 0 <= sent <= _LATEST * 1000:
            raise self.wrong(name, "it is no time in milliseconds since 1970")
        return sent / 1000

    def moment(self, name: str) -> float:
        """A time as `seconds`, which must be there."""
        if not self.has(name):
            raise self.missing(name)
        return self.seconds(name)

    def real(self, name: str) -> float:
        """A number, also one that is none: `"NaN"`, `"Infinity"`."""
        found = self._data.get(name)
        if found is None:
            raise self.missing(name)
        try:
            number = float(found) if isinstance(found, str) else numbers.real(found)
        except ValueError:
            number = None
        if number is None:
            raise self.wrong(name, "it is no number")
        return number

    def flag(self, name: str) -> bool:
        """Yes or no."""
        found = self._data.get(name)
        if not isinstance(found, bool | None) and str(found).lower() not in ("true", "false"):
            raise self.wrong(name, "it is neither true nor false")
        return str(found).lower() == "true"

    def texts(self, name: str) -> list[str]:
        """Texts, in order."""
        found = self._data.get(name) or []
        listed = found if isinstance(found, list) else [found]
        if not all(isinstance(each, str) for each in listed):
            raise self.wrong(name, "it is no list of texts")
        return listed

    def parts(self, name: str, most: int = 1000) -> list[Fields]:
        """Objects, in order."""
        found = self._data.get(name) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.wrong(name, "it is no list of objects")
        if len(found) > most:
            message = f"{self._place}{name} has {len(found)} entries, and one request can contain at most {most}"
            raise UsageError(message, fix="send them in several requests")
        return [Fields(each, f"{self._place}{name}[{number}].") for number, each in enumerate(found)]

    def part(self, name: str) -> Fields:
        """One object; an empty one where it is missing."""
        found = self._data.get(name) or {}
        if not isinstance(found, dict):
            raise self.wrong(name, "it is no object")
        return Fields(found, f"{self._place}{name}.")

    def pairs(self, name: str, most: int = 1000, value_limit: int = VALUE_LIMIT) -> dict[str, str]:
        """`[{"key": ..., "value": ...}]` as a mapping."""
        return dict(each.pair(value_limit) for each in self.parts(name, most))

    def pair(self, value_limit: int = VALUE_LIMIT) -> tuple[str, str]:
        """`key` and `value`, the name and the value of a tag or a parameter."""
        return self.entity("key"), self.value("value", value_limit)

    def entity(self, name: str) -> str:
        """A name of a metric, a parameter or a tag: no other name than its own when it is read as a path."""
        found = self.key(name)
        if not _ENTITY.fullmatch(found):
            raise self.wrong(name, "a name has letters, digits, spaces and the marks _ - . : / only")
        if posixpath.normpath(found) != found or found == "." or found.startswith(("..", "/")):
            raise self.wrong(name, "as a path it would mean another name")
        return found

    def key(self, name: str, most: int = KEY_LIMIT) -> str:
        """A name of one line."""
        found = self.text(name)
        if len(found) > most:
            message = f"'{self._place}{name}' exceeds the maximum length of {most} characters"
            raise UsageError(message, fix="choose a shorter one")
        if any(ord(letter) < 32 for letter in found):
            raise self.wrong(name, "it has characters that cannot be printed")
        return found

    def value(self, name: str, limit: int = VALUE_LIMIT) -> str:
        """A value of a parameter or a tag."""
        found = self.text(name, "")
        if len(found) > limit:
            message = f"'{self._place}{name}' exceeds the maximum length of {limit} characters: it has {len(found)}"
            raise UsageError(message, fix="keep it in a file as an artifact")
        return found

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return self._data.get(name) is not None

    def plain(self) -> Mapping[str, Any]:
        """All of it, as it came."""
        return self._data

    def missing(self, name: str) -> UsageError:
        """The refusal of a request without that field."""
        return UsageError(f"Missing value for required parameter '{self._place}{name}'", fix="see the REST API of MLflow")

    def wrong(self, name: str, why: str) -> UsageError:
        """The refusal of a request for the value of that field."""
        text = json.dumps(self._data.get(name), separators=(",", ":"), sort_keys=True, default=str)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return UsageError(f"Invalid value {shown} for parameter '{self._place}{name}' supplied: {why}")


def run_id(fields: Fields) -> str:
    """The run that is meant: newer and older clients call it differently, and send both."""
    found = fields.text("run_id", "") or fields.text("run_uuid", "")
    if not found:
        raise fields.missing("run_id")
    return found


def is_viewed(view: str, deleted: bool) -> bool:
    """Whether a view shows what is deleted, or is not."""
    return view == "ALL" or deleted == (view == "DELETED_ONLY")


def one_of(fields: Fields, name: str, choices: Sequence[str]) -> str:
    """A word of a few; empty when it is missing."""
    found = fields.text(name, "")
    if found and found not in choices:
        raise fields.wrong(name, f"use one of {', '.join(choices)}")
    return found
