"""Trees of plain values: what documents are before they are read."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def lay_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two trees as one; where both say something, the one above wins."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = lay_over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
