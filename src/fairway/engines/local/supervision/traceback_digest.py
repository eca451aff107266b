"""Names the Python traceback at the end of a text, so that the same mistake is recognised. Standard library only."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RANK = re.compile(r"^(\[[^\]\n]{1,40}\]:? ?)+", re.MULTILINE)
"""`[rank0]: `, which launchers put before every line."""
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(, in (?P<name>.+))?$')
_TYPE = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(:|$)")


def digest(text: str) -> str:
    """A short name made of the exception's type and its frames, never of its message; empty when there is no traceback."""
    lines = _RANK.sub("", _COLOUR.sub("", text).replace("\r", "")).split("\n")
    begins = [number for number, line in enumerate(lines) if line.strip() == _BEGIN]
    if not begins:
        return ""
    parts: list[str] = []
    for line in lines[begins[-1] + 1 :]:
        frame = _FRAME.match(line)
        if frame:
            parts.append(f"{frame['file']}:{frame['line']}:{frame['name'] or ''}")
        elif line[:1] not in ("", " ", "\t"):
            kind = _TYPE.match(line)
            parts.append(kind["type"] if kind else "")
            break
    if not parts:
        return ""
    # Loaded only here: it weighs more than all the rest of a supervisor, and most tasks end well.
    import hashlib  # noqa: PLC0415

    return hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:16]
