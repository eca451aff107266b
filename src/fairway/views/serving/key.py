"""Views of API keys, without the keys themselves and their digests."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.state.serving.access import ApiKey
from fairway.units import rate
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table


class KeyView(msgspec.Struct, frozen=True):
    """A key of a service."""

    name: str
    rate: str
    """`100/s`; empty for no limit."""
    created: float
    used: float | None
    """Time of the last use, to about ten minutes; None if never used."""
    expires: float | None
    expired: bool


class KeyList(msgspec.Struct, frozen=True):
    """The keys of a service, in order of name."""

    keys: tuple[KeyView, ...]


class NewKeyView(msgspec.Struct, frozen=True):
    """A new key. Only this reply contains the key itself."""

    name: str
    key: str
    expires: float | None


def key_view(key: ApiKey, now: float) -> KeyView:
    """Return the view of a key."""
    expires = key.rule.expires or None
    expired = expires is not None and expires <= now
    return KeyView(key.rule.name, rate.show(key.rule.rate), key.created, key.used or None, expires, expired)


def keys_text(keys: Sequence[KeyView], now: float, page: TextPage) -> str:
    """Return a table with one line per key."""
    if not keys:
        return "no keys; `fairway key create SERVICE --name NAME` makes one\n"
    columns = (
        Column("NAME"), Column("RATE", right=True), Column("AGE", right=True), Column("LAST USED", right=True),
        Column("EXPIRES", right=True),
    )  # fmt: skip
    rows = [[key.name, key.rate or "-", phrase.age(key.created, now), _used(key, now), _expires(key, now)] for key in keys]
    return table(columns, rows, page)


def _used(key: KeyView, now: float) -> str:
    return f"{phrase.age(key.used, now)} ago" if key.used is not None else "never"


def _expires(key: KeyView, now: float) -> str:
    if key.expires is None:
        return "never"
    return "expired" if key.expired else f"in {phrase.age(now, key.expires)}"
