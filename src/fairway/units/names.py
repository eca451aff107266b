"""Names: what may be called how, and how runs are numbered and addressed."""

from __future__ import annotations

import re

NAME_LIMIT = 52
"""A name, a dash, a run number and a role still fit the 63 characters of a DNS label."""

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RUN = re.compile(r"(?P<series>.+)-(?P<number>[1-9][0-9]*)")


def check_name(text: str) -> str:
    """Return the name, or raise `ValueError` saying what is wrong and a name that would do."""
    if _NAME.fullmatch(text) and len(text) <= NAME_LIMIT:
        return text
    rule = f"at most {NAME_LIMIT} lower-case letters, digits and dashes, beginning with a letter"
    message = f"is no name: {rule}; try {suggest_name(text)!r}"
    raise ValueError(message)


def suggest_name(text: str) -> str:
    """The nearest legal name to any text; `job` when nothing is left of it."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-0123456789")
    return plain[:NAME_LIMIT].strip("-") or "job"


def check_variable(text: str) -> str:
    """Return the environment variable's name, or raise `ValueError`."""
    if _VARIABLE.fullmatch(text):
        return text
    message = "is no variable name: letters, digits and underscores, not beginning with a digit"
    raise ValueError(message)


def split_run(text: str) -> tuple[str, int | None]:
    """`mnist-7` gives `("mnist", 7)`; `mnist` gives `("mnist", None)`."""
    match = _RUN.fullmatch(text)
    return (match["series"], int(match["number"])) if match else (text, None)
