"""Did you mean: the known name nearest to one that is not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LONGEST = 80
"""Names beyond this are no typing mistakes; comparing them would only cost time."""
_SHORTEST_PREFIX = 3
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """The known name that was most likely meant, or an empty text.

    Case, dashes, underscores and camelCase do not matter; `repl` finds `replicas` when only one name begins so.
    """
    if not name or len(name) > _LONGEST:
        return ""
    plain = {_plain(other): other for other in known}
    wanted = _plain(name)
    if wanted in plain:
        return plain[wanted]
    begun = [other for other in plain if other.startswith(wanted)]
    if len(wanted) >= _SHORTEST_PREFIX and len(begun) == 1:
        return plain[begun[0]]
    close = difflib.get_close_matches(wanted, plain, n=1, cutoff=cutoff)
    return plain[close[0]] if close else ""


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """``did you mean `x`?``, or an empty text when nothing is near."""
    found = nearest(name, known, cutoff=cutoff)
    return f"did you mean `{found}`?" if found else ""


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]+", "_", _HUMP.sub("_", name)).strip("_").lower()
