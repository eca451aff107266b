"""Replace invalid values of a document, so that the rest can be validated in the same pass.

The result is never used as a document; it only allows more mistakes to be found at once.
"""

from __future__ import annotations

import copy
from typing import Any

_RUNS = ["true"]
_ROLE: dict[str, Any] = {"command": _RUNS}
_STAND_INS: dict[str, Any] = {
    "roles": {"worker": _ROLE},
    "metadata": {"name": "x"},
    "spec": {"roles": {"worker": _ROLE}},
    "name": "x",
    "url": "x",
    "command": _RUNS,
    "script": "true",
}
"""Valid values for required fields, which cannot be removed without causing a new error."""


def mend(data: object, at: tuple[str | int, ...]) -> None:
    """Change the data so that pydantic's error at this path does not occur again."""
    if at and at[-1] == "[key]":
        at = at[:-1]
    if not at:
        return
    *steps, last = at
    for step in steps:
        data = _child(data, step)
    if isinstance(data, list) and isinstance(last, int) and last < len(data):
        data[last] = "*" if steps and steps[-1] == "members" else f"X{last}"
    elif isinstance(data, dict):
        stand_in = _ROLE if steps and steps[-1] == "roles" else _STAND_INS.get(str(last))
        if stand_in is None:
            data.pop(last, None)
        else:
            data[last] = copy.deepcopy(stand_in)


def _child(data: object, step: str | int) -> object:
    if isinstance(data, dict):
        return data.get(step)
    return data[step] if isinstance(data, list) and isinstance(step, int) and step < len(data) else None
