"""Filters and sort orders of searches: `metrics.acc > 0.9 and params."learning rate" = '0.1'`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairway.errors import UsageError

Values = Mapping[str, Mapping[str, Any]]
"""The values of one object: `attributes`, `metrics`, `params`, `tags`."""

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<op><=|>=|!=|<>|=|<|>)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)
    |(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])
    |(?P<word>[A-Za-z_][\w./-]*)
    |(?P<mark>[(),.])
    )""",
    re.X,
)
_GROUPS = {
    "metric": "metrics", "metrics": "metrics", "param": "params", "params": "params", "parameter": "params",
    "parameters": "params", "tag": "tags", "tags": "tags", "attribute": "attributes", "attributes": "attributes",
    "attr": "attributes", "run": "attributes", "dataset": "datasets", "datasets": "datasets",
}  # fmt: skip
_OTHER_NAMES = {"run_uuid": "run_id", "created": "start_time", "Created": "start_time", "run name": "run_name"}
_LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class FilterClause:
    """One comparison."""

    group: str
    name: str
    operator: str
    value: Any

    def holds(self, values: Values) -> bool:
        """Return whether the comparison holds; for a missing value only IS NULL holds."""
        value = values.get(self.group, {}).get(self.name)
        if isinstance(value, list):
            return any(_COMPARE[self.operator](item, self.value) for item in value)
        if self.operator in ("IS NULL", "IS NOT NULL"):
            return (value is None) == (self.operator == "IS NULL")
        return value is not None and _COMPARE[self.operator](value, self.value)


def _alike(flags: int) -> Callable[[Any, Any], bool]:
    def compare(found: Any, pattern: Any) -> bool:
        parts = str(pattern).split("%")
        read = [re.compile("".join("." if char == "_" else re.escape(char) for char in part), flags | re.S) for part in parts]
        return _in_order(read, [len(part) for part in parts], str(found))

    return compare


def _in_order(parts: Sequence[re.Pattern[str]], lengths: Sequence[int], text: str) -> bool:
    """Return whether the parts follow each other in a text, the first at its beginning, the last at its end.

    Each part is matched at its first position, which leaves the most text to the others: one expression with gaps would try every
    position of each.
    """
    if len(parts) == 1:
        return parts[0].fullmatch(text) is not None
    if parts[0].match(text) is None:
        return False
    at, end = lengths[0], len(text) - lengths[-1]
    for part in parts[1:-1]:
        match = part.search(text, at)
        if match is None:
            return False
        at = match.end()
    return at <= end and parts[-1].match(text, end) is not None


def _same(found: Any, value: Any) -> bool:
    return bool(float(found) == value) if isinstance(value, float) and _is_number(found) else str(found) == str(value)


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    return lambda found, value: _is_number(found) and _is_number(value) and compare(float(found), float(value))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": _same,
    "!=": lambda found, value: not _same(found, value),
    "<": _ordered(lambda one, other: one < other),
    "<=": _ordered(lambda one, other: one <= other),
    ">": _ordered(lambda one, other: one > other),
    ">=": _ordered(lambda one, other: one >= other),
    "LIKE": _alike(0),
    "ILIKE": _alike(re.I),
    "IN": lambda found, value: str(found) in value,
    "NOT IN": lambda found, value: str(found) not in value,
}


@dataclass(frozen=True, slots=True)
class SearchSchema:
    """The fields of the searched objects. A filter with any other field is refused: it would silently match nothing."""

    attributes: Mapping[str, type]
    """The type of each attribute: `str` or `int`."""
    groups: tuple[str, ...] = ()
    """The groups that the objects have: `metrics`, `params`, `tags`, `datasets`."""

    def check(self, clause: FilterClause) -> None:
        """Raise `UsageError` for a comparison that makes no sense."""
        self.check_key(clause.group, clause.name)
        kind = self.attributes[clause.name] if clause.group == "attributes" else int if clause.group == "metrics" else str
        allowed = _OF_NUMBERS if kind is int else _OF_NAMES if clause.group in ("attributes", "datasets") else _OF_TEXTS
        if clause.operator not in allowed:
            message = f"Invalid comparator {clause.operator!r} for {clause.group}.{clause.name}"
            raise UsageError(message, fix=f"use one of {', '.join(allowed)}")
        if clause.value is not None and kind is int and not isinstance(clause.value, float):
            message = f"{clause.group}.{clause.name} is compared with a number, and {clause.value!r:.80} is none"
            raise UsageError(message, fix="write the number without quotes")
        if kind is str and isinstance(clause.value, float):
            message = f"{clause.group}.{clause.name} is compared with a text, and {clause.value} is a number"
            raise UsageError(message, fix="put the value in quotes")

    def check_key(self, group: str, name: str) -> None:
        """Raise `UsageError` for an unknown field."""
        if group != "attributes" and group not in self.groups:
            message = f"Invalid entity type {group!r}: the searched objects have no {group}"
            raise UsageError(message, fix=f"use one of {', '.join(('attributes', *self.groups))}")
        names = list(self.attributes) if group == "attributes" else _DATASET if group == "datasets" else None
        if names is not None and name not in names:
            message = f"Invalid attribute key {name[:80]!r} specified"
            raise UsageError(message, fix=f"use one of {', '.join(names)}")


_DATASET = ["name", "digest", "context"]
_OF_NUMBERS = ("=", "!=", "<", "<=", ">", ">=")
_OF_TEXTS = ("=", "!=", "LIKE", "ILIKE", "IS NULL", "IS NOT NULL")
_OF_NAMES = ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN")


def read_filter(text: str, searched: SearchSchema | None = None) -> tuple[FilterClause, ...]:
    """Return the comparisons of a filter, all of which must hold."""
    if not text.strip():
        return ()
    reader = _FilterParser(text)
    clauses = [reader.clause()]
    while not reader.at_end:
        reader.word("AND")
        clauses.append(reader.clause())
    if searched is not None:
        for clause in clauses:
            searched.check(clause)
    return tuple(clauses)


def ordered(
    things: Sequence[Any], orders: Sequence[str], values: Callable[[Any], Values], searched: SearchSchema | None = None
) -> list[Any]:
    """Sort by the given orders, the first being the most significant; NaN, and then missing values, come last."""
    result = list(things)
    keys = [_read_order(order) for order in orders]
    for group, name, down in reversed(keys):
        if searched is not None:
            searched.check_key(group, name)
        by_id = {id(thing): _single(values(thing).get(group, {}).get(name)) for thing in result}
        present = [thing for thing in result if by_id[id(thing)] is not None]
        numbers = [thing for thing in present if by_id[id(thing)] == by_id[id(thing)]]
        not_numbers = [thing for thing in present if by_id[id(thing)] != by_id[id(thing)]]
        numbers.sort(key=lambda thing: _sortable(by_id[id(thing)]), reverse=down)
        result = [*numbers, *not_numbers, *(thing for thing in result if by_id[id(thing)] is None)]
    return result


def _single(value: Any) -> Any:
    """Return the value by which an object with several values is sorted."""
    return (value[0] if value else None) if isinstance(value, list) else value


def _read_order(text: str) -> tuple[str, str, bool]:
    """Return the group, the name, and whether the order is descending."""
    reader = _FilterParser(text)
    group, name = reader.key()
    down = not reader.at_end and reader.word("ASC", "DESC") == "DESC"
    reader.end()
    return group, name, down


def _sortable(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if _is_number(value) else (1, 0.0, str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _FilterParser:
    """Parses a filter from left to right."""

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            message = f"the filter has {len(text)} characters"
            raise UsageError(message, fix=f"use at most {_LONGEST}")
        self._text = text
        self._at = 0
        self._tokens: list[tuple[str, str]] = []
        while self._text[self._at :].strip():
            match = _TOKEN.match(self._text, self._at)
            if match is None or match.end() == self._at:
                raise self._wrong()
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind]))
            self._at = match.end()
        self._next = 0

    @property
    def at_end(self) -> bool:
        """Whether all tokens were read."""
        return self._next >= len(self._tokens)

    def end(self) -> None:
        """Raise if more tokens follow."""
        if not self.at_end:
            raise self._wrong()

    def clause(self) -> FilterClause:
        """Read the next comparison."""
        group, name = self.key()
        kind, operator = self._take("op", "word")
        operator = {"<>": "!="}.get(operator, operator.upper())
        if operator == "IS":
            operator = "IS NOT NULL" if self.word("NOT", "NULL") == "NOT" and self.word("NULL") else "IS NULL"
            return FilterClause(group, name, operator, None)
        if operator == "NOT":
            self.word("IN")
            operator = "NOT IN"
        if operator not in _COMPARE:
            raise self._wrong()
        if operator.endswith("IN"):
            return FilterClause(group, name, operator, self._several())
        kind, value = self._take("text", "number")
        return FilterClause(group, name, operator, float(value) if kind == "number" else _unquoted(value))

    def key(self) -> tuple[str, str]:
        """Read the field of a comparison: its group and its name."""
        kind, first = self._take("word", "text")
        group, mark, name = first.partition(".") if kind == "word" else ("", "", _unquoted(first))
        if mark and not name:
            # The name is quoted: metrics."validation loss"
            name = _unquoted(self._take("text")[1])
        elif not mark:
            group, name = "attributes", name or first
        if group not in _GROUPS:
            raise self._wrong()
        return _GROUPS[group], _OTHER_NAMES.get(name, name)

    def word(self, *choices: str) -> str:
        """Read one of these words."""
        token = self._take("word")[1].upper()
        if token not in choices:
            raise self._wrong()
        return token

    def _several(self) -> tuple[str, ...]:
        values = []
        mark = self._take("mark")[1]
        while mark in "(,":
            values.append(_unquoted(self._take("text", "number")[1]))
            mark = self._take("mark")[1]
        return tuple(values)

    def _take(self, *kinds: str) -> tuple[str, str]:
        if self.at_end or self._tokens[self._next][0] not in kinds:
            raise self._wrong()
        self._next += 1
        return self._tokens[self._next - 1]

    def _wrong(self) -> UsageError:
        message = f"{self._text[:200]!r} is not a valid filter or order"
        return UsageError(message, fix="write for example: metrics.accuracy > 0.9 and params.lr = '0.1'")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] in "'\"`" else text
