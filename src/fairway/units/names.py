"""Names: which ones are legal, and how runs are numbered and addressed."""

from __future__ import annotations

import hashlib
import re
import unicodedata

NAME_LIMIT = 52
"""With this limit a name, a dash, a run number and a role fit into the 63 characters of a DNS label."""

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_MADE = re.compile(r".*--[0-9a-f]{10}")
"""Names that `model_name` generated: readable text, and a digest."""
_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RUN = re.compile(r"(?P<series>.+)-(?P<number>[1-9][0-9]*)")


def check_name(text: str) -> str:
    """Return the name, or raise `ValueError` with what is wrong and a name that would be legal."""
    if is_name(text):
        return text
    rule = f"at most {NAME_LIMIT} lower-case letters, digits and dashes, beginning with a letter"
    message = f"is not a valid name: {rule}; try {suggest_name(text)!r}"
    raise ValueError(message)


def is_name(text: str) -> bool:
    """Whether `check_name` accepts the text."""
    return bool(_NAME.fullmatch(text)) and len(text) <= NAME_LIMIT


def is_made(text: str) -> bool:
    """Whether the text has the form of a name that `model_name` generates: `resnet50--17602d153a`."""
    return is_name(text) and bool(_MADE.fullmatch(text))


def is_alias(text: str) -> bool:
    """Whether the text may be an alias of a version: no number, and nothing that other clients parse as one (`v3`, `Latest`)."""
    return bool(_ALIAS.fullmatch(text)) and text.lower() != "latest" and not re.fullmatch(r"[vV][0-9]+", text)


def model_name(text: str) -> str:
    """Return a legal name for a model whose name in another registry is any text: `ResNet50` gives `resnet50--17602d153a`.

    A legal name is kept, unless it has the form of a generated one. So two texts get the same name only if they read the same and
    have equal digests (40 bits of SHA-256). The text cannot be computed from the name: keep it with the model.
    """
    if is_name(text) and not is_made(text):
        return text
    # Combining characters such as accents are dropped; every other character that is not ASCII separates words.
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(letter))
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    slug = slug if slug[:1].isalpha() else f"model-{slug}".strip("-")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{slug[: NAME_LIMIT - 12].strip('-')}--{digest}"


def suggest_name(text: str) -> str:
    """Return the legal name nearest to a text; `job` when no legal character remains."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-0123456789")
    return plain[:NAME_LIMIT].strip("-") or "job"


def check_variable(text: str) -> str:
    """Return the environment variable's name, or raise `ValueError`."""
    if _VARIABLE.fullmatch(text):
        return text
    message = "is not a valid variable name: letters, digits and underscores, not beginning with a digit"
    raise ValueError(message)


def split_run(text: str) -> tuple[str, int | None]:
    """`mnist-7` gives `("mnist", 7)`; `mnist` gives `("mnist", None)`."""
    match = _RUN.fullmatch(text)
    return (match["series"], int(match["number"])) if match else (text, None)
