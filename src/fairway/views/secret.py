"""Secrets, by name only: a value never leaves the store through a view."""

from __future__ import annotations

import msgspec


class SecretView(msgspec.Struct, frozen=True):
    """That a secret exists."""

    name: str


class SecretList(msgspec.Struct, frozen=True):
    """The secrets that exist."""

    secrets: tuple[SecretView, ...]
