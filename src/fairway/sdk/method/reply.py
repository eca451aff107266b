"""Decoding of the daemon's replies."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from fairway.errors import FairwayError

_View = TypeVar("_View")


def decode(data: bytes, kind: type[_View]) -> _View:
    """Decode a reply to a view of type `kind`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        message = f"the daemon's reply cannot be decoded: {error}"
        raise FairwayError(
            message, fix="the daemon may be of another version than this package: run `fairway daemon stop`, then try again"
        ) from error
