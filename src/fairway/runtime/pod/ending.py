"""How the task ended, in the few words that Kubernetes keeps of a container. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import json
from typing import Any

MOST = 3500
"""Bytes; the kubelet keeps 4096."""


def encode(task: str, rank: int, code: int | None, signal: int | None, words: str = "") -> str:
    """The record as text; the words are cut where they would not fit."""
    plain = {"task": task, "rank": rank, "code": code, "signal": signal, "words": words[:MOST]}
    return json.dumps(plain)


def decode(text: str) -> dict[str, Any] | None:
    """What `encode` wrote; None for anything else, such as what another program wrote there."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return None
    known = isinstance(plain, dict) and {"task", "rank", "code", "signal", "words"} <= plain.keys()
    return plain if known else None


def exit_code(code: int | None, signal: int | None) -> int:
    """What the container exits with: shells add 128 to a signal."""
    return 128 + signal if signal is not None else (code or 0)
