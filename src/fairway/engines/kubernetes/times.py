"""Times as the API writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds(text: str | None) -> float | None:
    """A time of the API's as seconds since the epoch; None for one that cannot be read, such as a year 0."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def stamp(at: float) -> str:
    """As most objects have it: whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
