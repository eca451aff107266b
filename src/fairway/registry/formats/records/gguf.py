"""GGUF: language models of llama.cpp. It is data; llama.cpp runs chat templates in it in a sandboxed interpreter."""

from __future__ import annotations

import struct

from fairway.errors import RefusedError
from fairway.registry.formats.model_format import Files, ModelFormat, RequiredPackage, by_suffix, head
from fairway.state.model import ModelSignature

_HEADER = struct.Struct("<4sIQQ")
_VERSIONS = (2, 3)
_LEAST_TENSOR = 8 + 4 + 4 + 8
"""Minimum bytes of a tensor's description: the length of its name, dimensions, type, offset."""
_LEAST_VALUE = 8 + 4 + 1
"""Minimum bytes of a value: the length of its name, its type, and itself."""


def _check(files: Files, entry: str) -> ModelSignature:
    """Check the file. A language model has no tensors that clients name: it takes prompts and returns text."""
    begins = head(files[entry], _HEADER.size)
    if len(begins) < _HEADER.size or _HEADER.unpack(begins)[0] != b"GGUF":
        message = f"{entry} is not a GGUF file"
        raise RefusedError(message, fix="convert the model with llama.cpp's convert_hf_to_gguf.py")
    version = _HEADER.unpack(begins)[1]
    if version not in _VERSIONS:
        message = f"{entry} is of GGUF version {version}, and llama.cpp reads {' and '.join(map(str, _VERSIONS))}"
        raise RefusedError(message, fix="convert the model again; a version like 50331648 means another byte order")
    _, _, tensors, values = _HEADER.unpack(begins)
    minimum = _HEADER.size + tensors * _LEAST_TENSOR + values * _LEAST_VALUE
    if minimum > (size := files[entry].stat().st_size):
        message = f"{entry} is cut short: it declares {tensors:,} tensors and {values:,} values, but has {size:,} bytes"
        raise RefusedError(message, fix="copy or download it again")
    return ModelSignature()


RECORD = ModelFormat(
    "gguf",
    "a file NAME.gguf",
    by_suffix(".gguf"),
    _check,
    loader="gguf",
    packages=((RequiredPackage("xllamacpp", "xllamacpp"), RequiredPackage("llama_cpp", "llama-cpp-python")),),
    many=True,
)
