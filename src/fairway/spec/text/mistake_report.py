"""Collect mistakes in documents, and translate pydantic's errors to plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from fairway.errors import DocumentMistake, SpecError
from fairway.spec.text.syntax_tree import TextPosition, step_into
from fairway.units import suggestion

LIMIT = 100
"""Maximum number of mistakes reported for one document; further ones are only counted."""

_SHOWN = 60
_WORDS = {
    word: number
    for number, word in enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"))
}
_NUMERIC = re.compile(r"\s*[-+]?\d+\s*")


class MistakeReport:
    """The mistakes of one document, without duplicates."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.left_out = 0
        self._found: dict[tuple[str, str], DocumentMistake] = {}
        self._paths: set[str] = set()

    def add(self, message: str, *, path: str, place: TextPosition, value: str = "", fix: str = "") -> None:
        """Add a mistake."""
        if (path, message) in self._found:
            return
        if self.is_full:
            self.left_out += 1
            return
        self._paths.add(path)
        self._found[path, message] = DocumentMistake(
            message, path=path, value=value, fix=fix, file=self.file, line=place.line, column=place.column
        )

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, so that further mistakes are only counted."""
        return len(self._found) >= LIMIT

    def has(self, path: str) -> bool:
        """Return whether a mistake at this path was added."""
        return path in self._paths

    def __iter__(self) -> Iterator[DocumentMistake]:
        """Yield the mistakes in the order of their positions in the text."""
        yield from sorted(self._found.values(), key=lambda mistake: (mistake.line, mistake.column))
        if self.left_out:
            yield DocumentMistake(f"has {self.left_out} more mistakes", file=self.file, fix="correct the mistakes above first")


def spec_error(error: ValidationError, file: str = "") -> SpecError:
    """Return the mistakes of a model that was built by a program, with paths in field names."""
    mistakes = []
    for entry in error.errors(include_url=False):
        path = ""
        for step in entry["loc"]:
            path = f"{path}[{step}]" if isinstance(step, int) else path if step == "[key]" else step_into(path, to_snake(step))
        message, fix = in_words(entry["type"], entry.get("ctx", {}), entry["input"], entry["msg"])
        value = "" if entry["type"] == "missing" else show(entry["input"])
        mistakes.append(DocumentMistake(message, path=path, value=value, fix=fix, file=file))
    return SpecError(mistakes)


def show(value: object) -> str:
    """Return a value as one short printable text: text in quotes, numbers unchanged, and an empty text for lists and mappings."""
    if isinstance(value, str):
        short = value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
        return '"' + "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in short) + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)[:_SHOWN] if isinstance(value, int | float) else ""


def in_words(kind: str, context: Mapping[str, Any], value: object, message: str) -> tuple[str, str]:
    """Return the message and the fix for one of pydantic's errors."""
    if kind in ("value_error", "assertion_error"):
        return split_fix(str(context.get("error", message)))
    if kind in ("enum", "literal_error"):
        return _not_one_of(str(context.get("expected", "")), value)
    if kind in _WANTED:
        expected, fix = _WANTED[kind]
        return f"{_what(value)}, not {expected}", _number_fix(value) or fix if expected == "a whole number" else fix
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _BOUNDS:
        words, key, fix = _BOUNDS[kind]
        return words.format(context[key]), fix.format(context[key])
    return message[:1].lower() + message[1:], ""


def split_fix(text: str) -> tuple[str, str]:
    """Split `what is wrong; the fix` into its two parts."""
    message, _, fix = text.partition("; ")
    return message, fix


_WANTED = {
    "string_type": ("text", "put it in quotes"),
    "string_unicode": ("text", "write it in UTF-8"),
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
        ("a whole number", "write a whole number, without quotes"),
    ),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("true or false", "write true or false, without quotes")),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), ("a mapping", "write `name: value` lines below it")),
    **dict.fromkeys(("tuple_type", "list_type"), ("a list", "write [a, b], or one `- a` line for each")),
}
_PLAIN = {
    "missing": ("is missing", "add it"),
    "extra_forbidden": ("is not a field here", "remove it"),
    "too_short": ("is empty", "add at least one"),
    "string_too_short": ("is empty", "add text, or leave it out"),
}
_BOUNDS = {
    "greater_than_equal": ("is less than {}", "ge", "write {} or more"),
    "less_than_equal": ("is more than {}", "le", "write {} or less"),
    "greater_than": ("is not more than {}", "gt", "write more than {}"),
    "less_than": ("is not less than {}", "lt", "write less than {}"),
}


def _what(value: object) -> str:
    if value is None:
        return "is empty"
    if isinstance(value, bool):
        return "is a boolean"
    kinds = {
        str: "is text",
        int: "is a number",
        float: "is a number",
        list: "is a list",
        tuple: "is a list",
        dict: "is a mapping",
    }
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "has another type")


_EXACT = 2.0**53
"""Below this, a float represents a whole number exactly."""


def _number_fix(value: object) -> str:
    if isinstance(value, float) and value == value // 1 and abs(value) < _EXACT:
        return f"write {int(value)}"
    if not isinstance(value, str):
        return ""
    if _NUMERIC.fullmatch(value):
        return f"write {value.strip()}, without quotes"
    return f"write {_WORDS[value.lower()]}" if value.lower() in _WORDS else ""


def _not_one_of(expected: str, value: object) -> tuple[str, str]:
    choices = re.findall(r"'([^']*)'", expected)
    listed = ", ".join(choices[:-1]) + " or " + choices[-1] if len(choices) > 1 else "".join(choices)
    near = suggestion.nearest(value, choices, cutoff=0.6) if isinstance(value, str) else ""
    return f"is not {listed}", f"did you mean `{near}`?" if near else f"write {choices[0]}" if len(
        choices
    ) == 1 else "choose one of them"
