"""Times in the formats of the Kubernetes API. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds(text: str | None) -> float | None:
    """Parse an API time to seconds since the epoch; None for a time that cannot be parsed, such as a year 0."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def stamp(at: float) -> str:
    """Format a time as most objects have it: in whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
