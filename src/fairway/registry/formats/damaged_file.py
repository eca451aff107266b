"""Damaged and malicious files: any error that a reader raises becomes a plain refusal."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from fairway.errors import RefusedError
from fairway.state.model import ModelSignature, TensorSpec

_LARGEST = (1 << 63) - 1
_LONGEST_NAME = 1000
_MOST_TENSORS = 100_000
_SHOWN = 200


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Refuse the named file if a value in it is not one that its format allows."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, struct.error) as problem:
        message = f"{printed(name)} is damaged: {printed(str(problem))}"
        raise RefusedError(message, fix="save the model again") from None


def printed(words: str) -> str:
    """Return text from a file in printable form: short, without control characters and surrogates."""
    short = words if len(words) <= _SHOWN else words[:_SHOWN] + "..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)


def check_signature(name: str, signature: ModelSignature) -> None:
    """Refuse a signature that no model has, so that everything stored of a version can be read again."""
    tensors = (*signature.inputs, *signature.outputs)
    if len(tensors) > _MOST_TENSORS:
        raise _wrong(name, f"it has too many inputs and outputs: {len(tensors):,}")
    for spec in tensors:
        _check(name, spec)


def _check(name: str, spec: TensorSpec) -> None:
    if len(spec.name) > _LONGEST_NAME or not _is_text(spec.name):
        raise _wrong(name, f"an input or output has the invalid name {printed(spec.name)!r}")
    for length in spec.shape:
        if type(length) is not int or not -1 <= length <= _LARGEST:
            raise _wrong(name, f"the shape of {printed(spec.name)!r} has the invalid length {str(length)[:20]}")


def _is_text(name: str) -> bool:
    """Return whether the name has no surrogates, which cannot be written."""
    return name.encode("utf-8", "replace").decode() == name


def _wrong(name: str, what: str) -> RefusedError:
    return RefusedError(f"{printed(name)} is damaged: {what}", fix="save the model again")
