"""Safetensors: weights alone, which is data. They are kept; a server for them is a command."""

from __future__ import annotations

from fairway.errors import RefusedError
from fairway.registry.formats.record import Files, Format, by_suffix
from fairway.state.model import Signature


def _check(files: Files, name: str) -> Signature:
    path = files[name]
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        begins = file.read(1)
    if size < 8 or length > size - 8 or begins != b"{":
        message = f"{name} is no safetensors file"
        raise RefusedError(message, fix="save the weights again")
    return Signature()


RECORD = Format("safetensors", "a file NAME.safetensors", by_suffix(".safetensors"), _check, many=True)
