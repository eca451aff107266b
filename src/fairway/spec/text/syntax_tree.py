"""YAML text as a tree whose nodes keep their line and column.

No types are assigned here: a plain `1`, `yes` or `1e3` keeps its text, and the code that knows the field decides what it means
(`resolve` is for fields of unknown type). Hostile text is rejected early, before it costs resources: too long, too deep, or too
many nodes after aliases are expanded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import yaml

from fairway.errors import DocumentMistake

TEXT_LIMIT = 1024 * 1024
"""Maximum size of one text, in bytes."""
NODE_LIMIT = 100_000
"""Maximum number of keys and values in one text; an alias counts as all the nodes that it refers to."""
DEPTH_LIMIT = 64

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_PAIR = re.compile(r"(?<!\\)(?P<before>(?:\\\\)*)\\u(?P<high>d[89ab][0-9a-f]{2})\\u(?P<low>d[c-f][0-9a-f]{2})", re.I)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|(0|[1-9][0-9]*)(?=[eE]))([eE][-+]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = frozenset(
    {None, "!", *(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp"))}
)

_SYNTAX = {
    "mapping values are not allowed": (
        "has a colon that is not valid YAML here",
        "check the indentation, or put quotes round the text",
    ),
    "found character that cannot start any token": (
        "has a character that is not valid here",
        "indent with spaces, not tabs, and put quotes round text that begins with @, ` or %",
    ),
    "found a tab character": ("has a tab where spaces should be", "indent with spaces"),
    "did not find expected key": ("is not a `key: value` line", "check the indentation and the quotes above it"),
    "did not find expected '-' indicator": ("is not a list item", "begin it with `- `, like the lines above"),
    **dict.fromkeys(
        ("expected alphabetic or numeric character", "did not find expected alphabetic or numeric character"),
        ("has a `*` or `&` that YAML takes for the name of an anchor", 'put quotes round it: "*"'),
    ),
    "found unexpected end of stream": ("ends inside quotes", "close them"),
}
"""Clearer messages and fixes for common errors of the parser, by the start of its message."""


@dataclass(frozen=True, slots=True)
class TextPosition:
    """Line and column, counted from 1; 0 if the value does not come from a text."""

    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """One value, as written."""

    text: str
    place: TextPosition = TextPosition()
    plain: bool = True
    """Whether it was written without quotes, so that it may be a number, a boolean or null."""


@dataclass(frozen=True, slots=True)
class YamlSequence:
    """A list."""

    items: tuple[Node, ...]
    place: TextPosition = TextPosition()
    written: bool = True
    """False if the items were split from one text, so that an index has no meaning for the user."""


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """A key and its value."""

    name: str
    value: Node
    place: TextPosition = TextPosition()
    written: str | None = None
    """The key as the user wrote it; None for a level that the user did not write."""


@dataclass(frozen=True, slots=True)
class YamlMapping:
    """Keys and values, in order, without duplicate keys."""

    entries: tuple[YamlEntry, ...]
    place: TextPosition = TextPosition()

    def get(self, name: str) -> YamlEntry | None:
        """Return the entry with this name, or None."""
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def names(self) -> set[str]:
        """All names."""
        return {entry.name for entry in self.entries}


Node = YamlScalar | YamlSequence | YamlMapping
Plain = str | int | float | bool | None


def compose(text: str) -> tuple[list[Node], list[DocumentMistake]]:
    """Return the documents of a text, and the mistakes in its YAML. Documents before a syntax error are returned too."""
    composer = _TreeBuilder()
    try:
        _check_text(text)
        composer.run(_joined_pairs(text.removeprefix("\ufeff")))
    except _RejectedTextError as refused:
        composer.mistakes.append(refused.mistake)
    except yaml.MarkedYAMLError as error:
        composer.mistakes.append(_syntax_mistake(error, text))
    except yaml.YAMLError as error:
        composer.mistakes.append(
            DocumentMistake(f"is not valid YAML: {str(error).splitlines()[0]}", fix="save the file as UTF-8 text")
        )
    return composer.documents, composer.mistakes


def resolve(scalar: YamlScalar) -> Plain:
    """Return the value of a scalar whose field is unknown, as in YAML 1.2, where `yes`, `on` and `0123` are text."""
    text = scalar.text
    if not scalar.plain:
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text) if _FLOAT.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text


def is_nothing(node: Node) -> bool:
    """Return whether the value is empty or null. `~` may be meant as a folder, so it is left to the field."""
    return isinstance(node, YamlScalar) and node.plain and node.text in ("", "null", "Null", "NULL")


def step_into(path: str, name: str) -> str:
    """Return the path of a key below a path. Unusual keys are quoted, so that a path stays on one readable line."""
    shown = name if name.isprintable() and name and " " not in name else repr(name)
    return f"{path}.{shown}" if path else shown


def from_data(value: object, depth: int = 0) -> Node:
    """Return the tree of plain data, such as parsed JSON. Raises `ValueError` for values that no document can hold."""
    if depth > DEPTH_LIMIT:
        message = f"is nested more than {DEPTH_LIMIT} deep"
        raise ValueError(message)
    if isinstance(value, dict):
        return YamlMapping(tuple(_entry(str(key), from_data(item, depth + 1)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return YamlSequence(tuple(from_data(item, depth + 1) for item in value))
    if isinstance(value, str):
        return YamlScalar(_unicode(value), plain=False)
    if value is None:
        return YamlScalar("null")
    if isinstance(value, bool):
        return YamlScalar("true" if value else "false")
    if isinstance(value, int | float):
        return YamlScalar(repr(value))
    message = f"contains a {type(value).__name__}, which a document cannot contain"
    raise ValueError(message)


def _entry(name: str, value: Node) -> YamlEntry:
    return YamlEntry(_unicode(name), value, written=name)


def _unicode(text: str) -> str:
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        message = f"contains text that is not valid Unicode: {text[:40]!r}"
        raise ValueError(message)
    return str(text)


class _RejectedTextError(Exception):
    def __init__(self, mistake: DocumentMistake) -> None:
        super().__init__()
        self.mistake = mistake


@dataclass(slots=True)
class _OpenCollection:
    """A list or mapping that is not closed yet."""

    place: TextPosition
    anchor: str | None
    mapping: bool
    items: list[Node] = field(default_factory=list)
    entries: dict[str, YamlEntry] = field(default_factory=dict)
    merged: list[Node] = field(default_factory=list)
    key: YamlScalar | None = None
    size: int = 1
    height: int = 1


class _TreeBuilder:
    """Build trees from the parser's events, without recursion, and enforce the limits."""

    def __init__(self) -> None:
        self.documents: list[Node] = []
        self.mistakes: list[DocumentMistake] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._stack: list[_OpenCollection] = []
        self._total = 0

    def run(self, text: str) -> None:
        """Build the tree of every document in the text."""
        for event in yaml.parse(text, Loader=_LOADER):
            place = TextPosition(event.start_mark.line + 1, event.start_mark.column + 1)
            if isinstance(event, yaml.ScalarEvent):
                self._check_tag(event.tag, place)
                self._count(1, place)
                plain = event.style in (None, "") and event.tag not in ("!", _TAG + "str")
                self._finish(YamlScalar(event.value, place, plain), event.anchor, 1, 1)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._check_tag(event.tag, place)
                self._count(1, place)
                self._check_depth(1, place)
                self._stack.append(_OpenCollection(place, event.anchor, isinstance(event, yaml.MappingStartEvent)))
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                frame = self._stack.pop()
                self._finish(self._closed(frame), frame.anchor, frame.size, frame.height)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(str(event.anchor), place)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()

    def _alias(self, anchor: str, place: TextPosition) -> None:
        if anchor not in self._anchors:
            message = "refers to an undefined anchor, or to itself"
            raise _RejectedTextError(self._mistake(message, place, value=f"*{anchor}", fix=f"define it earlier with `&{anchor}`"))
        node, size, height = self._anchors[anchor]
        self._count(size, place)
        self._check_depth(height, place)
        self._finish(node, None, size, height)

    def _finish(self, node: Node, anchor: str | None, size: int, height: int) -> None:
        """Add a complete node to the open list or mapping, or to the documents."""
        if anchor is not None:
            self._anchors[anchor] = (node, size, height)
        if not self._stack:
            self.documents.append(node)
            return
        frame = self._stack[-1]
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if not frame.mapping:
            frame.items.append(node)
        elif frame.key is None:
            self._take_key(frame, node)
        else:
            self._take_value(frame, frame.key, node)
            frame.key = None

    def _take_key(self, frame: _OpenCollection, node: Node) -> None:
        if isinstance(node, YamlScalar) and not (node.plain and node.text == ""):
            frame.key = node
            return
        kind = {YamlMapping: "a mapping", YamlSequence: "a list", YamlScalar: "nothing"}[type(node)]
        self.mistakes.append(
            self._mistake(f"has {kind} where a key should be", node.place, fix="write `key: value`, with a text as the key")
        )
        frame.key = _NO_KEY

    def _take_value(self, frame: _OpenCollection, key: YamlScalar, node: Node) -> None:
        if key is _NO_KEY:
            return
        if key.plain and key.text == "<<":
            frame.merged.extend(node.items if isinstance(node, YamlSequence) else [node])
            return
        first = frame.entries.get(key.text)
        if first is not None:
            message = f"is defined twice; the first is on line {first.place.line}"
            self.mistakes.append(self._mistake(message, key.place, fix="keep one of them"))
            return
        frame.entries[key.text] = YamlEntry(key.text, node, key.place, key.text)

    def _closed(self, frame: _OpenCollection) -> Node:
        if not frame.mapping:
            return YamlSequence(tuple(frame.items), frame.place)
        for node in frame.merged:
            if not isinstance(node, YamlMapping):
                self.mistakes.append(
                    self._mistake(
                        "merges a value that is not a mapping",
                        node.place,
                        fix="write `<<: *name`, where `name` is the anchor of a mapping",
                    )
                )
                continue
            for entry in node.entries:
                frame.entries.setdefault(entry.name, entry)
        return YamlMapping(tuple(frame.entries.values()), frame.place)

    def _count(self, more: int, place: TextPosition) -> None:
        self._total += more
        if self._total > NODE_LIMIT:
            message = f"has more than {NODE_LIMIT:,} values once aliases are followed"
            raise _RejectedTextError(self._mistake(message, place, fix="make it smaller"))

    def _check_depth(self, height: int, place: TextPosition) -> None:
        if len(self._stack) + height > DEPTH_LIMIT:
            message = f"is nested more than {DEPTH_LIMIT} deep"
            raise _RejectedTextError(DocumentMistake(message, fix="make it flatter", line=place.line, column=place.column))

    def _check_tag(self, tag: str | None, place: TextPosition) -> None:
        if tag not in _KNOWN_TAGS:
            message = "is a tag that is not supported here"
            self.mistakes.append(self._mistake(message, place, value=str(tag).replace(_TAG, "!!"), fix="remove it"))

    def _mistake(self, message: str, place: TextPosition, *, value: str = "", fix: str = "") -> DocumentMistake:
        path = ""
        for frame in self._stack:
            if frame.mapping and frame.key is not None:
                path = step_into(path, frame.key.text)
            elif not frame.mapping:
                path = f"{path}[{len(frame.items)}]"
        return DocumentMistake(message, path=path, value=value, fix=fix, line=place.line, column=place.column)


_NO_KEY = YamlScalar("")
"""Placeholder for an invalid key, so that its value is skipped."""


def _check_text(text: str) -> None:
    """Reject text that the parser must not get; takes at most one pass over the text."""
    size = len(text) if len(text) > TEXT_LIMIT else len(text.encode("utf-8", "surrogatepass"))
    if size > TEXT_LIMIT:
        message = f"is too long: {size:,} bytes; the limit is {TEXT_LIMIT:,} bytes"
        raise _RejectedTextError(DocumentMistake(message, fix="a document describes a job; keep data in separate files"))
    match = _UNPRINTABLE.search(text, 1 if text.startswith("\ufeff") else 0)
    if match:
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - text.rfind("\n", 0, match.start())
        message = f"contains the character U+{ord(match.group()):04X}, which YAML does not allow"
        raise _RejectedTextError(
            DocumentMistake(message, fix="remove it, or write it as an escape in double quotes", line=line, column=column)
        )


def _joined_pairs(text: str) -> str:
    """Replace escaped surrogate pairs by the character that they encode. JSON allows such escapes, YAML does not."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    return _PAIR.sub(lambda match: match["before"] + bytes.fromhex(match["high"] + match["low"]).decode("utf-16-be"), text)


def _syntax_mistake(error: yaml.MarkedYAMLError, text: str) -> DocumentMistake:
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context or "cannot be read")
    translation = next((words for start, words in _SYNTAX.items() if problem.startswith(start)), None)
    message, fix = translation or (
        f"is not valid YAML: {problem}",
        "check the indentation and the quotes here and on the line before",
    )
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    rows = text.splitlines()
    shown = rows[line - 1].strip()[:60] if 0 < line <= len(rows) else ""
    return DocumentMistake(
        message, value=f"`{shown}`" if shown.isprintable() and shown else "", fix=fix, line=line, column=column
    )
