"""Views of secrets, by name only: a view never contains a value."""

from __future__ import annotations

import msgspec


class SecretView(msgspec.Struct, frozen=True):
    """The name of an existing secret."""

    name: str


class SecretList(msgspec.Struct, frozen=True):
    """The secrets that exist."""

    secrets: tuple[SecretView, ...]
