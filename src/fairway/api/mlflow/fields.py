"""What a request says: a query or a JSON body, read field by field; what is wrong is told by name and value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request

from fairway.errors import UsageError
from fairway.units import number as numbers

BODY_LIMIT = 16 << 20
KEY_LIMIT, VALUE_LIMIT = 250, 8000
MODEL_LIMIT = 256
"""Characters of the name of a registered model."""
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
        if found is None:
            if default is None:
                raise self._wrong(name, "is missing")
            return default
        if isinstance(found, bool) or not isinstance(found, str | int):
            raise self._wrong(name, f"is {str(found)[:80]!r}, which is no text")
        return str(found)

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
            raise self._wrong(name, f"is {numbers.shown(found)}, which is no whole number of 64 bits")
        return number

    def seconds(self, name: str) -> float:
        """A time, sent in milliseconds, in seconds since the epoch; 0 when it is missing."""
        sent = self.number(name)
        if not 0 <= sent <= _LATEST * 1000:
            raise self._wrong(name, f"is {sent}, which is no time in milliseconds since 1970")
        return sent / 1000

    def real(self, name: str) -> float:
        """A number, also one that is none: `"NaN"`, `"Infinity"`."""
        found = self._data.get(name)
        try:
            number = float(found) if isinstance(found, str) else numbers.real(found)
        except ValueError:
            number = None
        if number is None:
            raise self._wrong(name, f"is {numbers.shown(found)}, which is no number")
        return number

    def flag(self, name: str) -> bool:
        """Yes or no."""
        return str(self._data.get(name, "")).lower() == "true"

    def texts(self, name: str) -> list[str]:
        """Texts, in order."""
        found = self._data.get(name) or []
        listed = found if isinstance(found, list) else [found]
        if not all(isinstance(each, str) for each in listed):
            raise self._wrong(name, "is no list of texts")
        return listed

    def parts(self, name: str, most: int = 1000) -> list[Fields]:
        """Objects, in order."""
        found = self._data.get(name) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self._wrong(name, "is no list of objects")
        if len(found) > most:
            raise self._wrong(name, f"has {len(found)} entries, and {most} is the most")
        return [Fields(each, f"{self._place}{name}[{number}].") for number, each in enumerate(found)]

    def part(self, name: str) -> Fields:
        """One object; an empty one where it is missing."""
        found = self._data.get(name) or {}
        if not isinstance(found, dict):
            raise self._wrong(name, "is no object")
        return Fields(found, f"{self._place}{name}.")

    def pairs(self, name: str, most: int = 1000) -> dict[str, str]:
        """`[{"key": ..., "value": ...}]` as a mapping."""
        return dict(each.pair() for each in self.parts(name, most))

    def pair(self) -> tuple[str, str]:
        """`key` and `value`."""
        return self.key("key"), self.value("value")

    def key(self, name: str, most: int = KEY_LIMIT) -> str:
        """A name of a metric, a parameter or a tag."""
        found = self.text(name)
        if not found or len(found) > most or any(ord(letter) < 32 for letter in found):
            raise self._wrong(name, f"is {found[:80]!r}; it needs 1 to {most} printable characters")
        return found

    def value(self, name: str) -> str:
        """A value of a parameter or a tag."""
        found = self.text(name, "")
        if len(found) > VALUE_LIMIT:
            raise self._wrong(name, f"has {len(found)} characters, and {VALUE_LIMIT} is the most")
        return found

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return self._data.get(name) is not None

    def plain(self) -> Mapping[str, Any]:
        """All of it, as it came."""
        return self._data

    def _wrong(self, name: str, what: str) -> UsageError:
        return UsageError(f"{self._place}{name} {what}", fix="see the REST API of MLflow")


def run_id(fields: Fields) -> str:
    """The run that is meant: newer and older clients call it differently, and send both."""
    return fields.text("run_id", "") or fields.text("run_uuid")


def one_of(fields: Fields, name: str, choices: Sequence[str]) -> str:
    """A word of a few; empty when it is missing."""
    found = fields.text(name, "")
    if found and found not in choices:
        message = f"{name} is {found[:80]!r}"
        raise UsageError(message, fix=f"use one of {', '.join(choices)}")
    return found
