"""Query parameters and bodies of requests, checked; errors contain the value and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from starlette.requests import Request

from fairway.app.idempotency import IdempotencyKey, request_key
from fairway.errors import UsageError
from fairway.spec.job import TrainingJob
from fairway.spec.service import ModelService
from fairway.state.phase import JobPhase
from fairway.units import quantity, suggestion
from fairway.views.text.output_format import OutputFormat
from fairway.views.text.table import TextPage

_YES = frozenset({"1", "true", "yes", "on", ""})
_NO = frozenset({"0", "false", "no", "off"})
_LARGEST = 2**31
_Body = TypeVar("_Body")
_Placeable = TypeVar("_Placeable", TrainingJob, ModelService)


class RequestParameters:
    """The parameters of one request."""

    def __init__(self, request: Request) -> None:
        self._query = request.query_params
        self._request = request

    @property
    def namespace(self) -> str:
        """The requested namespace."""
        return self._query.get("namespace") or "default"

    def key(self, user: str = "") -> IdempotencyKey | None:
        """Return the idempotency key of the request, if it has one: its changes are then made at most once."""
        return request_key(self._query.get("key", ""), self.namespace, user)

    @property
    def name(self) -> str:
        """The name in the path."""
        return str(self._request.path_params["name"])

    @property
    def output(self) -> OutputFormat | None:
        """The requested format; None if none was requested, which means JSON for programs."""
        return OutputFormat(self.choice("output", [item.value for item in OutputFormat])) if self._query.get("output") else None

    @property
    def page(self) -> TextPage:
        """The layout of text output."""
        return TextPage(self.number("width", 0), self.flag("colour"), wide=self.output is OutputFormat.WIDE)

    def text(self, key: str, default: str = "") -> str:
        """Return a parameter as it is."""
        return self._query.get(key, default)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean parameter; the bare key means true."""
        text = self._query.get(key)
        if text is None:
            return default
        if text.lower() in _YES:
            return True
        if text.lower() in _NO:
            return False
        message = f"{key}={text!r} is not a boolean"
        raise UsageError(message, fix="write true or false")

    def number(self, key: str, default: int, least: int = 0) -> int:
        """Return an integer parameter."""
        value = self.optional_number(key, least)
        return default if value is None else value

    def optional_number(self, key: str, least: int = 0) -> int | None:
        """Return an integer parameter, or None."""
        text = self._query.get(key)
        if not text:
            return None
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not least <= int(text) < _LARGEST:
            message = f"{key}={text!r} is not a whole number of {least} or more"
            raise UsageError(message, fix=f"write for example {key}={max(least, 10)}")
        return int(text)

    def choice(self, key: str, choices: Iterable[str], default: str = "") -> str:
        """Return a parameter that must be one of `choices`."""
        words = list(choices)
        word = self._query.get(key, default)
        if word in words:
            return word
        near = suggestion.did_you_mean(word, words)
        message = f"{key}={word!r} is not known"
        raise UsageError(message, fix=near or f"use one of {', '.join(words)}")

    def phases(self) -> tuple[str, ...]:
        """Return the phases of all `phase` parameters, separated by commas, in any case; `active` means all unfinished ones."""
        meanings: dict[str, tuple[str, ...]] = {phase.value.lower(): (phase.value,) for phase in JobPhase}
        meanings["active"] = tuple(phase.value for phase in JobPhase if not phase.over)
        selected: dict[str, None] = {}
        for word in [word.strip() for text in self._query.getlist("phase") for word in text.split(",") if word.strip()]:
            if word.lower() not in meanings:
                near = suggestion.did_you_mean(word.lower(), meanings)
                fix = near or f"use one of {', '.join([*(phase.value for phase in JobPhase), 'active'])}"
                message = f"phase={word!r} is not a phase"
                raise UsageError(message, fix=fix)
            selected.update(dict.fromkeys(meanings[word.lower()]))
        return tuple(selected)

    def labels(self) -> dict[str, str]:
        """Return the labels of all `label` parameters, separated by commas: `label=team=nlp`."""
        result = {}
        for pair in [part for text in self._query.getlist("label") for part in text.split(",") if part]:
            key, mark, value = pair.partition("=")
            if not mark or not key:
                message = f"label={pair!r} is not a label"
                raise UsageError(message, fix="write KEY=VALUE, for example team=nlp")
            result[key] = value
        return result

    def since(self, now: float) -> float | None:
        """Return a time: given in seconds since the epoch, or as an age (`10m`)."""
        text = self._query.get("since")
        if not text:
            return None
        if re.fullmatch(r"[0-9]{9,11}(\.[0-9]+)?", text):
            return float(text)
        try:
            return now - quantity.seconds(text)
        except ValueError as problem:
            message = f"since={text!r} {problem}"
            raise UsageError(message, fix="write how long ago, for example since=10m") from None

    def pattern(self, key: str) -> str:
        """Return a regular expression, checked."""
        text = self._query.get(key, "")
        try:
            re.compile(text)
        except re.error as problem:
            message = f"{key}={text!r} is not a regular expression: {problem}"
            raise UsageError(message, fix="correct it, or put a backslash before characters that are meant literally") from None
        return text

    async def body(self, kind: type[_Body]) -> _Body:
        """Return the JSON body as a value of that type; an empty body means all defaults."""
        raw = await self._request.body()
        try:
            return msgspec.json.decode(raw or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            message = f"the body of {self._request.method} {self._request.url.path} is wrong: {problem}"
            raise UsageError(
                message, fix="send JSON with the fields of the API; the command and the daemon may differ in version"
            ) from None


def placed(document: _Placeable, namespace: str) -> _Placeable:
    """Return the document in the caller's namespace, unless the document specifies one."""
    if "namespace" in document.metadata.model_fields_set:
        return document
    return document.model_copy(update={"metadata": document.metadata.model_copy(update={"namespace": namespace})})
