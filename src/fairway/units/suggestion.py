"""Did-you-mean: finds the known name nearest to an unknown one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LONGEST = 80
"""Longer names are no typing mistakes; comparing them would only cost time."""
_SHORTEST_PREFIX = 3
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """Return the known name that was most likely meant, or an empty text.

    Case, dashes, underscores and camelCase do not matter; `repl` finds `replicas` when only one name has that prefix.
    """
    if not name or len(name) > _LONGEST:
        return ""
    plain = {_plain(other): other for other in known}
    normal = _plain(name)
    if normal in plain:
        return plain[normal]
    prefixed = [other for other in plain if other.startswith(normal)]
    if len(normal) >= _SHORTEST_PREFIX and len(prefixed) == 1:
        return plain[prefixed[0]]
    close = difflib.get_close_matches(normal, plain, n=1, cutoff=cutoff)
    return plain[close[0]] if close else ""


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``did you mean `x`?``, or an empty text when no known name is near."""
    similar = nearest(name, known, cutoff=cutoff)
    return f"did you mean `{similar}`?" if similar else ""


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]+", "_", _HUMP.sub("_", name)).strip("_").lower()
