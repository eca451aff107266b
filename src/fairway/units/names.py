"""Names: what may be called how, and how runs are numbered and addressed."""

from __future__ import annotations

import hashlib
import re
import unicodedata

NAME_LIMIT = 52
"""A name, a dash, a run number and a role still fit the 63 characters of a DNS label."""

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_MADE = re.compile(r".*--[0-9a-f]{10}")
"""Names that `model_name` made: text that can be read, and a digest."""
_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RUN = re.compile(r"(?P<series>.+)-(?P<number>[1-9][0-9]*)")


def check_name(text: str) -> str:
    """Return the name, or raise `ValueError` saying what is wrong and a name that would do."""
    if is_name(text):
        return text
    rule = f"at most {NAME_LIMIT} lower-case letters, digits and dashes, beginning with a letter"
    message = f"is no name: {rule}; try {suggest_name(text)!r}"
    raise ValueError(message)


def is_name(text: str) -> bool:
    """Whether `check_name` accepts the text."""
    return bool(_NAME.fullmatch(text)) and len(text) <= NAME_LIMIT


def is_made(text: str) -> bool:
    """Whether the text has the form of a name that `model_name` made of another one: `resnet50--17602d153a`."""
    return is_name(text) and bool(_MADE.fullmatch(text))


def is_alias(text: str) -> bool:
    """Whether the text may be an alias of a version: no number, and nothing that other clients read as one (`v3`, `Latest`)."""
    return bool(_ALIAS.fullmatch(text)) and text.lower() != "latest" and not re.fullmatch(r"[vV][0-9]+", text)


def model_name(text: str) -> str:
    """The legal name for a model that another registry calls by any text: `ResNet50` gives `resnet50--17602d153a`.

    A legal name is kept, save one that has the form of a made one. So two texts never get the same name, but for equal digests
    (40 bits of SHA-256) of texts that read the same. The text cannot be computed from the name: keep it with the model.
    """
    if is_name(text) and not is_made(text):
        return text
    # Accents and what else decomposes are dropped; every other character that is not ASCII separates words.
    plain = "".join(each for each in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(each))
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    slug = slug if slug[:1].isalpha() else f"model-{slug}".strip("-")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{slug[: NAME_LIMIT - 12].strip('-')}--{digest}"


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
