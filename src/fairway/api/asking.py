"""What a request asks: query values and bodies, checked, with errors that name the value and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from starlette.requests import Request

from fairway.app.receipt import RequestKey, request_key
from fairway.errors import UsageError
from fairway.spec.job import TrainingJob
from fairway.spec.service import ModelService
from fairway.state.phase import JobPhase
from fairway.units import quantity, suggest
from fairway.views.output import Output
from fairway.views.table import Page

_YES = frozenset({"1", "true", "yes", "on", ""})
_NO = frozenset({"0", "false", "no", "off"})
_LARGEST = 2**31
_Body = TypeVar("_Body")
_Placeable = TypeVar("_Placeable", TrainingJob, ModelService)


class Asked:
    """One request, to be asked for its values."""

    def __init__(self, request: Request) -> None:
        self._query = request.query_params
        self._request = request

    @property
    def namespace(self) -> str:
        """Where to look."""
        return self._query.get("namespace") or "default"

    def key(self, user: str = "") -> RequestKey | None:
        """The key of the request, if it has one: what it changes, it changes once."""
        return request_key(self._query.get("key", ""), self.namespace, user)

    @property
    def name(self) -> str:
        """The name in the path."""
        return str(self._request.path_params["name"])

    @property
    def output(self) -> Output | None:
        """The format asked for; None when nothing was said, which means JSON for programs."""
        return Output(self.choice("output", [item.value for item in Output])) if self._query.get("output") else None

    @property
    def page(self) -> Page:
        """What text is written for."""
        return Page(self.number("width", 0), self.flag("colour"), wide=self.output is Output.WIDE)

    def text(self, key: str, default: str = "") -> str:
        """A value as it is."""
        return self._query.get(key, default)

    def flag(self, key: str, default: bool = False) -> bool:
        """Yes or no; the bare key means yes."""
        given = self._query.get(key)
        if given is None:
            return default
        if given.lower() in _YES:
            return True
        if given.lower() in _NO:
            return False
        message = f"{key}={given!r} is neither yes nor no"
        raise UsageError(message, fix="write true or false")

    def number(self, key: str, default: int, least: int = 0) -> int:
        """A whole number."""
        found = self.optional_number(key, least)
        return default if found is None else found

    def optional_number(self, key: str, least: int = 0) -> int | None:
        """A whole number, or nothing."""
        given = self._query.get(key)
        if not given:
            return None
        if not re.fullmatch(r"-?[0-9]{1,10}", given) or not least <= int(given) < _LARGEST:
            message = f"{key}={given!r} is no whole number of {least} or more"
            raise UsageError(message, fix=f"write for example {key}={max(least, 10)}")
        return int(given)

    def choice(self, key: str, choices: Iterable[str], default: str = "") -> str:
        """One of a few words."""
        known = list(choices)
        given = self._query.get(key, default)
        if given in known:
            return given
        near = suggest.did_you_mean(given, known)
        message = f"{key}={given!r} is not known"
        raise UsageError(message, fix=near or f"use one of {', '.join(known)}")

    def phases(self) -> tuple[str, ...]:
        """Phases, given once or more, with commas or without, in any case; `active` means all that are not over."""
        known: dict[str, tuple[str, ...]] = {phase.value.lower(): (phase.value,) for phase in JobPhase}
        known["active"] = tuple(phase.value for phase in JobPhase if not phase.over)
        found: dict[str, None] = {}
        for word in [word.strip() for given in self._query.getlist("phase") for word in given.split(",") if word.strip()]:
            if word.lower() not in known:
                near = suggest.did_you_mean(word.lower(), known)
                fix = near or f"use one of {', '.join([*(phase.value for phase in JobPhase), 'active'])}"
                message = f"phase={word!r} is no phase"
                raise UsageError(message, fix=fix)
            found.update(dict.fromkeys(known[word.lower()]))
        return tuple(found)

    def labels(self) -> dict[str, str]:
        """`label=team=nlp`, given once or more, with commas or without."""
        found = {}
        for given in [part for text in self._query.getlist("label") for part in text.split(",") if part]:
            key, mark, value = given.partition("=")
            if not mark or not key:
                message = f"label={given!r} is no label"
                raise UsageError(message, fix="write KEY=VALUE, for example team=nlp")
            found[key] = value
        return found

    def since(self, now: float) -> float | None:
        """A moment: seconds since the epoch, or how long ago (`10m`)."""
        given = self._query.get("since")
        if not given:
            return None
        if re.fullmatch(r"[0-9]{9,11}(\.[0-9]+)?", given):
            return float(given)
        try:
            return now - quantity.seconds(given)
        except ValueError as problem:
            message = f"since={given!r} {problem}"
            raise UsageError(message, fix="write how long ago, for example since=10m") from None

    def pattern(self, key: str) -> str:
        """A regular expression, checked."""
        given = self._query.get(key, "")
        try:
            re.compile(given)
        except re.error as problem:
            message = f"{key}={given!r} is no regular expression: {problem}"
            raise UsageError(message, fix="mend it, or put a backslash before what is meant as it stands") from None
        return given

    async def body(self, kind: type[_Body]) -> _Body:
        """The JSON body as a value of that type; an empty body has all the defaults."""
        raw = await self._request.body()
        try:
            return msgspec.json.decode(raw or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            message = f"the body of {self._request.method} {self._request.url.path} is wrong: {problem}"
            raise UsageError(
                message, fix="send JSON with the fields of the API; the command and the daemon may differ in version"
            ) from None


def placed(document: _Placeable, namespace: str) -> _Placeable:
    """The document in the caller's namespace, unless it names one itself."""
    if "namespace" in document.metadata.model_fields_set:
        return document
    return document.model_copy(update={"metadata": document.metadata.model_copy(update={"namespace": namespace})})
