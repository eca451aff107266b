"""Record of how the task ended, as the short message that Kubernetes stores for a container.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import json
from typing import Any

MOST = 3500
"""Maximum size of the message in bytes; the kubelet keeps 4096."""


def encode(task: str, rank: int, code: int | None, signal: int | None, words: str = "") -> str:
    """Return the record as text; the words are cut if they do not fit."""
    plain = {"task": task, "rank": rank, "code": code, "signal": signal, "words": words[:MOST]}
    return json.dumps(plain)


def decode(text: str) -> dict[str, Any] | None:
    """Return the record that `encode` wrote; None for anything else, such as the message of another program."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(plain, dict) and {"task", "rank", "code", "signal", "words"} <= plain.keys()
    return plain if is_record else None


def exit_code(code: int | None, signal: int | None) -> int:
    """Return the exit code of the container: like shells, 128 plus the number of a signal."""
    return 128 + signal if signal is not None else (code or 0)
