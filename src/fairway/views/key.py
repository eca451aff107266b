"""API keys, as people see them: never the key, nor what it is recognised by."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.state.access import ApiKey
from fairway.units import rate
from fairway.views import phrases
from fairway.views.table import Column, Page, table


class KeyView(msgspec.Struct, frozen=True):
    """One key of a service."""

    name: str
    rate: str
    """`100/s`; empty: no limit."""
    created: float
    used: float | None
    """When it was used last, to about ten minutes; None: not yet."""
    expires: float | None
    expired: bool


class KeyList(msgspec.Struct, frozen=True):
    """The keys of a service, in order of name."""

    keys: tuple[KeyView, ...]


class KeyMade(msgspec.Struct, frozen=True):
    """A key that was just made. It is shown this once."""

    name: str
    key: str
    expires: float | None


def key_view(key: ApiKey, now: float) -> KeyView:
    """One key as it is now."""
    expires = key.rule.expires or None
    expired = expires is not None and expires <= now
    return KeyView(key.rule.name, rate.show(key.rule.rate), key.created, key.used or None, expires, expired)


def keys_text(keys: Sequence[KeyView], now: float, page: Page) -> str:
    """One line a key."""
    if not keys:
        return "no keys; `fairway key create SERVICE --name NAME` makes one\n"
    columns = (
        Column("NAME"), Column("RATE", right=True), Column("AGE", right=True), Column("LAST USED", right=True),
        Column("EXPIRES", right=True),
    )  # fmt: skip
    rows = [[key.name, key.rate or "-", phrases.age(key.created, now), _used(key, now), _expires(key, now)] for key in keys]
    return table(columns, rows, page)


def _used(key: KeyView, now: float) -> str:
    return f"{phrases.age(key.used, now)} ago" if key.used is not None else "never"


def _expires(key: KeyView, now: float) -> str:
    if key.expires is None:
        return "never"
    return "expired" if key.expired else f"in {phrases.age(now, key.expires)}"
