"""Trees of plain values: documents before they are parsed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def lay_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge two trees; where both have a value, that of `above` counts."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = lay_over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
