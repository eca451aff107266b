"""How Python shows values to users: one short line, and a card in a notebook. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec

_HEAD = ("reference", "name", "kind", "version", "phase", "action", "status", "reason", "message", "summary", "step", "total")
"""Fields that identify a value, in the order in which they are shown."""
_TIMES = frozenset({"time", "created", "started", "finished", "since"})
_SHOWN = 60
"""Maximum number of characters of one field."""
_MOST_ROWS = 50
_MOST_NAMES = 3
_STYLE = "border-collapse:collapse;text-align:left"


class NotebookView(msgspec.Struct, frozen=True):
    """A value with a short representation: `JobView(mnist-7, Running)`. In a notebook it is a card, with all text escaped."""

    def __repr__(self) -> str:
        """Return the representation in one line."""
        return f"{type(self).__name__}({', '.join([*_head(self), *_lists(self)])})"

    def _repr_html_(self) -> str:
        """Return a table of its plain fields, and one for each list of values in it."""
        rows = [(name, _text(name, value)) for name, value in _fields(self) if _is_plain(value)]
        parts = [f"<b>{html.escape(type(self).__name__)}</b>", _table([], rows)]
        for name, value in _fields(self):
            if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
                parts += [f"<i>{html.escape(name)}</i>", _of_many(value)]
        return "".join(parts)


def _fields(value: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for name in value.__struct_fields__:
        content = getattr(value, name)
        if content not in (None, "", (), {}) and content is not msgspec.UNSET:
            yield name, content


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, Enum))


def _head(value: msgspec.Struct) -> list[str]:
    known = {name: content for name, content in _fields(value) if _is_plain(content)}
    chosen = [name for name in _HEAD if name in known] or list(known)[:2]
    return [_text(name, known[name]) for name in chosen[:4]]


def _lists(value: msgspec.Struct) -> list[str]:
    """Return `3 jobs: mnist-3, mnist-2, mnist-1` for each list of values."""
    texts = []
    for name, content in _fields(value):
        if isinstance(content, tuple) and isinstance(content[0], msgspec.Struct):
            names = [_head(item)[0] for item in content[:_MOST_NAMES] if _head(item)]
            rest = ", ..." if len(content) > _MOST_NAMES else ""
            texts.append(f"{len(content)} {name}" + (f": {', '.join(names)}{rest}" if names else ""))
    return texts


def _of_many(values: tuple[msgspec.Struct, ...]) -> str:
    shown = values[:_MOST_ROWS]
    columns = [name for name in shown[0].__struct_fields__ if any(_is_plain(getattr(item, name, None)) for item in shown)][:8]
    rows = [tuple(_text(name, getattr(item, name, "")) for name in columns) for item in shown]
    more = f"<div>and {len(values) - len(shown)} more</div>" if len(values) > len(shown) else ""
    return _table(columns, rows) + more


def _table(columns: list[str], rows: list[tuple[str, ...]] | list[tuple[str, str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<table style="{_STYLE}">{f"<tr>{head}</tr>" if head else ""}{body}</table>'


def _text(name: str, value: object) -> str:
    if value is None or value is msgspec.UNSET:
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    if name in _TIMES and isinstance(value, float):
        return _moment(value)
    text = f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _moment(value: float) -> str:
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return str(value)
